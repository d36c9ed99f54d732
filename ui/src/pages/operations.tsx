import { Badge, Group, Progress, Select, Stack, Table, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { operationsSearch, usePageSearch } from "../app/search";
import { useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { CopyAs } from "../parts/copy";
import { Danger } from "../parts/danger";
import { GatedButton, useMay } from "../parts/gate";
import { Scroll } from "../parts/scroll";
import { Empty, Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";
import { done } from "../parts/toast";

type Operation = Schemas["Operation"];
const colors = { running: "blue", done: "teal", failed: "red", cancelled: "gray" } as const;

export function OperationsPage() {
  const t = useT();
  usePageTitle(t("nav.operations"));
  const [search, change] = usePageSearch(operationsSearch);
  const [cancelling, setCancelling] = useState<Operation | null>(null);
  const client = useQueryClient();
  const operations = useQuery({
    queryKey: ["operations", search.state ?? ""],
    queryFn: () =>
      take(api.GET("/v1/operations", { params: { query: { state: search.state, limit: 200, sort: "-created_at" } as never } })),
    // What runs is watched closely, the rest is not.
    refetchInterval: (q) => (q.state.data?.items.some((o) => o.state === "running") ? 1000 : 5000),
  });
  return (
    <Stack>
      <PageHead title={t("nav.operations")} note={t("operations.note")}>
        <CopyAs
          request={() => ({ method: "GET", path: "/v1/operations" })}
          cli={() => "tidewire operation list"}
          json={() => operations.data?.items}
        />
      </PageHead>
      <Select
        aria-label={t("operations.state")}
        placeholder={t("operations.all")}
        clearable
        clearButtonProps={{ "aria-label": t("act.clear") }}
        w={200}
        data={["running", "done", "failed", "cancelled"].map((v) => ({ value: v, label: t(`operations.state.${v}` as never) }))}
        value={search.state ?? null}
        onChange={(v) => change({ state: (v ?? undefined) as typeof search.state })}
      />
      <Loaded of={operations}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title={t("operations.none")} />
          ) : (
            <Scroll label={t("nav.operations")}>
              <Table miw={820}>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t("operations.kind")}</Table.Th>
                    <Table.Th>{t("operations.state")}</Table.Th>
                    <Table.Th w={220}>{t("operations.progress")}</Table.Th>
                    <Table.Th>{t("rules.resource")}</Table.Th>
                    <Table.Th>{t("operations.started")}</Table.Th>
                    <Table.Th aria-label={t("act.cancel")} />
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {items.map((o) => (
                    <Row key={o.id} o={o} cancel={() => setCancelling(o)} />
                  ))}
                </Table.Tbody>
              </Table>
            </Scroll>
          )
        }
      </Loaded>
      {cancelling && (
        <Danger
          title={t("operations.cancel")}
          action={t("operations.cancel")}
          impact={t("operations.cancelImpact", { kind: cancelling.kind })}
          close={() => setCancelling(null)}
          run={async () => {
            await take(api.DELETE("/v1/operations/{id}", { params: { path: { id: cancelling.id } } }));
            done(t("operations.cancelled"));
            void client.invalidateQueries({ queryKey: ["operations"] });
          }}
        />
      )}
    </Stack>
  );
}

function Row({ o, cancel }: { o: Operation; cancel: () => void }) {
  const t = useT();
  const may = useMay(o.actions, o.id);
  const { done: n, total, unit } = o.progress;
  const amount = (v: number | null) => (unit === "bytes" ? bytes(v) : count(v));
  const error = o.error as { detail?: string } | null;
  return (
    <Table.Tr>
      <Table.Td>{o.kind}</Table.Td>
      <Table.Td>
        <Badge variant="outline" c="inherit" tt="none" color={colors[o.state]} miw="max-content">
          {t(`operations.state.${o.state}`)}
        </Badge>
        {error && (
          <Text size="xs" maw={260}>
            {error.detail}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        {o.state === "running" && <Progress value={total ? (n / total) * 100 : 0} aria-label={t("operations.progress")} />}
        <Text size="xs" c="dimmed">
          {amount(n)} / {amount(total)} {unit === "bytes" ? "" : t(`operations.unit.${unit}`)}{" "}
          {o.eta_ms !== null && `· ${t("operations.eta", { eta: duration(o.eta_ms) })}`}
        </Text>
      </Table.Td>
      <Table.Td style={{ overflowWrap: "anywhere" }}>
        {o.resource.type} {o.resource.name}
        {o.resource.partition !== null && `:${o.resource.partition}`}
      </Table.Td>
      <Table.Td>
        <Time at={o.created_at} />
        <Text size="xs" c="dimmed">
          {o.principal ?? t("operations.node")}
        </Text>
      </Table.Td>
      <Table.Td>
        {o.state === "running" && (
          <Group justify="flex-end">
            <GatedButton size="compact-sm" variant="default" reason={may("cancel")} onClick={cancel}>
              {t("operations.cancel")}
            </GatedButton>
          </Group>
        )}
      </Table.Td>
    </Table.Tr>
  );
}
