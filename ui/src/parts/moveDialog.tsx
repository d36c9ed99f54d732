import { Autocomplete, MultiSelect, NumberInput, Stack, Switch } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "../api/client";
import { clusterQuery, topicQuery } from "../app/queries";
import { useT } from "../i18n";
import { type PlanRow, plannedRow, rowOf, targets, throttleBytes } from "../lib/moves";
import { Planned } from "./plan";
import { done } from "./toast";

export function Throttle({ value, onChange }: { value: number | string; onChange: (v: number | string) => void }) {
  const t = useT();
  return (
    <NumberInput
      label={t("moves.throttle")}
      description={t("moves.throttleHint")}
      min={0}
      max={1_000_000}
      value={value}
      onChange={onChange}
      suffix=" MiB/s"
    />
  );
}

/** Moves partitions of a topic to other nodes: what is asked for, the node's plan, the move. */
export function MoveDialog({ topic: given, partitions: chosen, close }: { topic?: string; partitions?: number[]; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [topic, setTopic] = useState(given ?? "");
  const [asked] = useDebouncedValue(topic, 200);
  const [partitions, setPartitions] = useState<string[]>((chosen ?? []).map(String));
  const [nodes, setNodes] = useState<string[]>([]);
  const [spread, setSpread] = useState(true);
  const [throttle, setThrottle] = useState<number | string>("");
  const cluster = useQuery({ ...clusterQuery, retry: false });
  const names = useQuery({
    queryKey: ["move-topics", asked],
    enabled: !given,
    queryFn: () => take(api.GET("/v1/topics", { params: { query: { q: asked || undefined, internal: true, limit: 20, fields: "name" } } })),
  });
  const known = useQuery({ ...topicQuery(asked), enabled: asked !== "", retry: false });
  const all = known.data?.name === topic ? known.data.partitions : [];
  const moves = targets(partitions.map(Number), nodes.map(Number), spread && partitions.length > 1).map((m) => ({ topic, ...m }));
  const limit = throttleBytes(throttle);
  const body = { moves, ...(limit === undefined ? {} : { throttle_bytes_per_s: limit }) };
  const send = (dry_run?: boolean) => take(api.POST("/v1/reassignments", { params: { query: { dry_run } }, body }));
  return (
    <Planned
      title={t("moves.title")}
      text={t("moves.text")}
      input={JSON.stringify(body)}
      ready={topic !== "" && moves.length > 0 && nodes.length > 0}
      action={t("moves.move", { n: moves.length })}
      close={close}
      form={
        <Stack gap="sm">
          {!given && (
            <Autocomplete
              label={t("topic.one")}
              value={topic}
              data={((names.data?.items ?? []) as { name: string }[]).map((i) => i.name)}
              onChange={(v) => {
                setTopic(v);
                setPartitions([]);
              }}
              data-autofocus
            />
          )}
          <MultiSelect
            label={t("partitions.which")}
            value={partitions}
            onChange={setPartitions}
            data={all.map((p) => ({ value: String(p.partition), label: String(p.partition) }))}
            searchable
            clearable
            clearButtonProps={{ "aria-label": t("act.clear") }}
          />
          <MultiSelect
            label={t("moves.nodes")}
            description={t("moves.nodesHint")}
            value={nodes}
            onChange={setNodes}
            searchable
            data={(cluster.data?.brokers ?? []).map((b) => ({
              value: String(b.id),
              label: `${t("node.id")} ${b.id}${b.rack ? ` · ${b.rack}` : ""}${b.state === "online" ? "" : ` · ${t(`node.state.${b.state}`)}`}`,
            }))}
          />
          {partitions.length > 1 && (
            <Switch label={t("moves.spread")} checked={spread} onChange={(e) => setSpread(e.currentTarget.checked)} />
          )}
          <Throttle value={throttle} onChange={setThrottle} />
        </Stack>
      }
      plan={async (): Promise<PlanRow[]> => {
        const to = new Map(moves.map((m) => [m.partition, m.replicas]));
        return (await send(true)).results.map((r) => ({ ...rowOf(r), to: to.get(r.partition) ?? [] }));
      }}
      run={async () => {
        const { results } = await send();
        const refused = results.filter((r) => r.problem).length;
        done(t("moves.begun", { n: results.length - refused }));
        void client.invalidateQueries();
      }}
    />
  );
}

/** Evens out replicas and leaders over the nodes, by the node's own plan. */
export function RebalanceDialog({ close }: { close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [throttle, setThrottle] = useState<number | string>("");
  const limit = throttleBytes(throttle);
  const body = limit === undefined ? {} : { throttle_bytes_per_s: limit };
  const send = (dry_run?: boolean) => take(api.POST("/v1/reassignments/rebalance", { params: { query: { dry_run } }, body }));
  return (
    <Planned
      title={t("moves.rebalance")}
      text={t("moves.rebalanceText")}
      input={JSON.stringify(body)}
      action={t("moves.rebalance")}
      close={close}
      form={<Throttle value={throttle} onChange={setThrottle} />}
      plan={async () => (await send(true)).moves.map(plannedRow)}
      run={async () => {
        const { moves } = await send();
        done(t("moves.begun", { n: moves.filter((m) => !m.problem).length }));
        void client.invalidateQueries();
      }}
    />
  );
}
