import { Button, Group, Progress, Stack, Table, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { useMayCluster } from "../app/cluster";
import { useT } from "../i18n";
import { bytes, duration } from "../lib/format";
import { CopyAs, quote } from "../parts/copy";
import { Danger } from "../parts/danger";
import { GatedButton, type Reason } from "../parts/gate";
import { Link } from "../parts/link";
import { MoveDialog, RebalanceDialog } from "../parts/moveDialog";
import { Scroll } from "../parts/scroll";
import { Empty, Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";
import { done } from "../parts/toast";

type Move = Schemas["Reassignment"];

export function ReassignmentsPage() {
  const t = useT();
  usePageTitle(t("nav.reassignments"));
  const client = useQueryClient();
  const reason = useMayCluster("alter");
  const [open, setOpen] = useState<"move" | "rebalance" | null>(null);
  const [cancelling, setCancelling] = useState<Move | null>(null);
  const [most, setMost] = useState(100);
  const list = useQuery({
    queryKey: ["reassignments", most],
    queryFn: () => take(api.GET("/v1/reassignments", { params: { query: { limit: most } } })),
    // What moves is watched closely.
    refetchInterval: (q) => (q.state.data?.items.length ? 1000 : 3000),
  });
  return (
    <Stack>
      <PageHead title={t("nav.reassignments")} note={t("moves.note")}>
        <GatedButton reason={reason} onClick={() => setOpen("move")}>
          {t("moves.title")}
        </GatedButton>
        <GatedButton reason={reason} variant="default" onClick={() => setOpen("rebalance")}>
          {t("moves.rebalance")}
        </GatedButton>
        <CopyAs
          request={() => ({ method: "GET", path: "/v1/reassignments" })}
          cli={() => "tidewire reassignment list"}
          json={() => list.data?.items}
        />
      </PageHead>
      <Loaded of={list}>
        {({ items, total }) =>
          items.length === 0 ? (
            <Empty title={t("moves.none")}>
              <Text size="sm">{t("moves.noneText")}</Text>
            </Empty>
          ) : (
            <>
              <MoveTable items={items} reason={reason} cancel={setCancelling} />
              {total > items.length && most < 1000 && (
                <Group>
                  <Button variant="default" size="compact-sm" onClick={() => setMost(1000)}>
                    {t("offsets.more", { n: total - items.length })}
                  </Button>
                </Group>
              )}
            </>
          )
        }
      </Loaded>
      {open === "move" && <MoveDialog close={() => setOpen(null)} />}
      {open === "rebalance" && <RebalanceDialog close={() => setOpen(null)} />}
      {cancelling && (
        <Danger
          title={t("moves.cancel")}
          action={t("moves.cancel")}
          impact={
            <>
              {t("moves.cancelImpact", {
                partition: `${cancelling.topic}:${cancelling.partition}`,
                nodes: cancelling.from.join(", "),
              })}{" "}
              <CopyAs
                size="compact-xs"
                request={() => ({
                  method: "DELETE",
                  path: `/v1/reassignments/${encodeURIComponent(cancelling.topic)}/${cancelling.partition}`,
                })}
                cli={() => `tidewire reassignment cancel ${quote(`${cancelling.topic}/${cancelling.partition}`)}`}
              />
            </>
          }
          close={() => setCancelling(null)}
          run={async () => {
            const { topic, partition } = cancelling;
            await take(api.DELETE("/v1/reassignments/{topic}/{partition}", { params: { path: { topic, partition } } }));
            done(t("moves.cancelled", { partition: `${topic}:${partition}` }));
            void client.invalidateQueries();
          }}
        />
      )}
    </Stack>
  );
}

function MoveTable({ items, reason, cancel }: { items: Move[]; reason: Reason; cancel: (m: Move) => void }) {
  const t = useT();
  return (
    <Scroll label={t("nav.reassignments")}>
      <Table miw={820} aria-label={t("nav.reassignments")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("topic.partition")}</Table.Th>
            <Table.Th>{t("moves.from")}</Table.Th>
            <Table.Th>{t("moves.to")}</Table.Th>
            <Table.Th>{t("partitions.isr")}</Table.Th>
            <Table.Th w={220}>{t("operations.progress")}</Table.Th>
            <Table.Th>{t("operations.started")}</Table.Th>
            <Table.Th aria-label={t("act.cancel")} />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((m) => {
            const { done: n, total } = m.progress ?? { done: 0, total: 0 };
            return (
              <Table.Tr key={`${m.topic}:${m.partition}`}>
                <Table.Td style={{ overflowWrap: "anywhere" }}>
                  <Link to="/topics/$topic/partitions" params={{ topic: m.topic }} className="tw-link">
                    {m.topic}:{m.partition}
                  </Link>
                </Table.Td>
                <Table.Td>{m.from.join(", ")}</Table.Td>
                <Table.Td>{m.to.join(", ")}</Table.Td>
                <Table.Td>{m.isr.join(", ") || "–"}</Table.Td>
                <Table.Td>
                  {m.progress === null ? (
                    <Text size="sm" c="dimmed">
                      {t("moves.unknown")}
                    </Text>
                  ) : (
                    <>
                      <Progress value={total ? (n / total) * 100 : 100} aria-label={t("operations.progress")} />
                      <Text size="xs" c="dimmed">
                        {bytes(n)} / {bytes(total)}
                        {m.eta_ms !== null && ` · ${t("operations.eta", { eta: duration(m.eta_ms) })}`}
                      </Text>
                    </>
                  )}
                </Table.Td>
                <Table.Td>
                  <Time at={m.since} />
                  <Text size="xs" c="dimmed">
                    {m.principal ?? t("moves.byCluster")}
                  </Text>
                </Table.Td>
                <Table.Td ta="right">
                  <GatedButton size="compact-sm" variant="default" reason={reason} onClick={() => cancel(m)}>
                    {t("moves.cancel")}
                  </GatedButton>
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </Scroll>
  );
}
