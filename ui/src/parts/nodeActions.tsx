import { Alert, Anchor, Group, List, Progress, Stack, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleCheck, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { api, take } from "../api/client";
import { useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { plannedRow } from "../lib/moves";
import { Danger } from "./danger";
import { GatedButton, useMay } from "./gate";
import { Link, useGo } from "./link";
import type { Broker } from "./nodes";
import { Planned } from "./plan";
import { Loaded } from "./states";
import { done } from "./toast";

/** What can be done with a node: drain it, take that back, remove it. */
export function NodeActions({ of: b }: { of: Broker }) {
  const t = useT();
  const go = useGo();
  const client = useQueryClient();
  const reason = useMay(b.actions, "cluster")("alter");
  const [open, setOpen] = useState<"drain" | "undrain" | "remove" | null>(null);
  const broker = b.id;
  const header = { "If-Match": `"${b.etag}"` };
  const close = () => setOpen(null);
  const drain = (dry_run?: boolean) =>
    take(api.POST("/v1/brokers/{broker}/drain", { params: { path: { broker }, query: { dry_run }, header: dry_run ? {} : header } }));
  const undrain = (dry_run?: boolean) =>
    take(api.POST("/v1/brokers/{broker}/undrain", { params: { path: { broker }, query: { dry_run } } }));
  const why = b.replicas > 0 && b.state === "offline" ? t("node.removeHolds", { n: b.replicas }) : t("node.removeOnline");
  const barred = b.actions.includes("delete") ? null : why;
  return (
    <>
      <Group gap="xs">
        {b.draining ? (
          <GatedButton reason={reason} variant="default" onClick={() => setOpen("undrain")}>
            {t("node.undrain")}
          </GatedButton>
        ) : (
          <GatedButton reason={reason} variant="default" onClick={() => setOpen("drain")}>
            {t("node.drain")}
          </GatedButton>
        )}
        <GatedButton reason={reason ?? barred} variant="light" color="red" onClick={() => setOpen("remove")}>
          {t("node.remove")}
        </GatedButton>
      </Group>
      {open === "drain" && (
        <Planned
          title={t("node.drainOf", { node: broker })}
          text={t("node.drainText")}
          action={t("node.drain")}
          always
          close={close}
          plan={async () => (await drain(true)).plan.moves.map(plannedRow)}
          run={async () => {
            await drain();
            done(t("node.drainBegun", { node: broker }));
            void client.invalidateQueries();
          }}
        />
      )}
      {open === "undrain" && (
        <Planned
          title={t("node.undrainOf", { node: broker })}
          text={t("node.undrainText")}
          action={t("node.undrain")}
          always
          close={close}
          plan={async () => (await undrain(true)).plan.moves.map(plannedRow)}
          run={async () => {
            await undrain();
            done(t("node.undrained", { node: broker }));
            void client.invalidateQueries();
          }}
        />
      )}
      {open === "remove" && (
        <Danger
          title={t("node.removeOf", { node: broker })}
          name={String(broker)}
          action={t("node.remove")}
          impact={t("node.removeImpact")}
          close={close}
          run={async () => {
            await take(api.DELETE("/v1/brokers/{broker}", { params: { path: { broker }, header } }));
            done(t("node.removed", { node: broker }));
            void client.invalidateQueries();
            go({ to: "/nodes" });
          }}
        />
      )}
    </>
  );
}

/** How far the draining of a node has come. */
export function DrainProgress({ of: b }: { of: Broker }) {
  const t = useT();
  const running = useQuery({
    queryKey: ["operations", "drain"],
    queryFn: () => take(api.GET("/v1/operations", { params: { query: { state: "running", limit: 1000 } } })),
    refetchInterval: 1000,
    retry: false,
    enabled: b.draining,
  });
  if (!b.draining) return null;
  if (b.replicas === 0)
    return (
      <Alert
        color="teal"
        variant="light"
        role="status"
        icon={<CircleCheck size={20} aria-hidden />}
        styles={{ message: { color: "inherit" } }}
      >
        {t("node.drained")}
      </Alert>
    );
  return (
    <Alert
      color="blue"
      variant="light"
      role="status"
      title={t("node.draining")}
      styles={{ title: { color: "inherit" }, message: { color: "inherit" } }}
    >
      <Loaded of={running} rows={1}>
        {({ items }) => {
          const o = items.find((i) => i.kind === "drain-broker" && i.resource.name === String(b.id));
          const { done: n, total, unit } = o?.progress ?? { done: 0, total: b.replicas, unit: "partitions" as const };
          return (
            <Stack gap={4}>
              <Progress value={total ? (n / total) * 100 : 0} aria-label={t("operations.progress")} />
              <Text size="sm">
                {unit === "bytes"
                  ? t("node.drainBytes", { done: bytes(n), total: bytes(total), n: b.replicas })
                  : t("node.drainProgress", { done: count(n), n: total })}
                {o && o.eta_ms !== null && ` · ${t("operations.eta", { eta: duration(o.eta_ms) })}`}
              </Text>
              <Anchor component={Link} to="/reassignments" size="sm" c="inherit" underline="always">
                {t("nav.reassignments")}
              </Anchor>
            </Stack>
          );
        }}
      </Loaded>
    </Alert>
  );
}

/** Whether a node can be stopped without harm, and why not. */
export function CanStop({ of: b }: { of: Broker }) {
  const t = useT();
  const answer = useQuery({
    queryKey: ["can-stop", b.id],
    queryFn: () => take(api.GET("/v1/brokers/{broker}/can-stop", { params: { path: { broker: b.id } } })),
    refetchInterval: 3000,
    retry: false,
  });
  return (
    <section aria-label={t("node.canStop")}>
      <Loaded of={answer} rows={1}>
        {({ safe, reasons }) => (
          <Alert
            color={safe ? "teal" : "yellow"}
            variant="light"
            icon={safe ? <CircleCheck size={20} aria-hidden /> : <TriangleAlert size={20} aria-hidden />}
            title={`${t("node.canStop")} ${t(safe ? "checker.yes" : "checker.no")}`}
            styles={{ title: { color: "inherit" }, message: { color: "inherit" } }}
          >
            {safe ? (
              t("node.canStopText")
            ) : (
              <List size="sm">
                {reasons.slice(0, 10).map((r) => (
                  <List.Item key={r}>{r}</List.Item>
                ))}
              </List>
            )}
          </Alert>
        )}
      </Loaded>
    </section>
  );
}
