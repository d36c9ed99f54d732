import type { Schemas } from "../api/client";
import type { Key, Values } from "../i18n";

type Cluster = Pick<
  Schemas["Cluster"],
  "quorum" | "brokers" | "offline_partitions" | "under_replicated_partitions" | "under_min_isr_partitions"
>;

/** One thing that is wrong, or that nothing is. */
export interface Finding {
  color: "red" | "yellow" | "teal";
  key: Key;
  values: Values;
  /** Where more is told of it. */
  to?: string;
}

const ids = (brokers: { id: number }[]) => brokers.map((b) => b.id).join(", ");

/** What is to be said of a cluster, the worst first; "healthy" alone where nothing is wrong. */
export function findings(c: Cluster): Finding[] {
  const out: Finding[] = [];
  const { available, voters, online, majority } = c.quorum;
  if (!available && online.length < majority)
    out.push({ color: "red", key: "health.quorum", values: { online: online.length, n: voters.length, majority }, to: "/nodes" });
  else if (!available) out.push({ color: "red", key: "health.noController", values: {}, to: "/nodes" });
  if (c.offline_partitions > 0) out.push({ color: "red", key: "health.offline", values: { n: c.offline_partitions }, to: "/replication" });
  if (c.under_min_isr_partitions > 0)
    out.push({ color: "red", key: "health.minIsr", values: { n: c.under_min_isr_partitions }, to: "/replication" });
  const away = c.brokers.filter((b) => b.state === "offline" || b.state === "fenced");
  if (away.length > 0) out.push({ color: "yellow", key: "health.nodes", values: { n: away.length, names: ids(away) }, to: "/nodes" });
  const behind = c.brokers.filter((b) => b.out_of_sync > 0);
  if (c.under_replicated_partitions > 0)
    out.push({
      color: "yellow",
      key: behind.length > 0 ? "health.underOn" : "health.under",
      values: { n: c.under_replicated_partitions, nodes: behind.length, names: ids(behind) },
      to: "/replication",
    });
  const draining = c.brokers.filter((b) => b.draining);
  if (draining.length > 0)
    out.push({ color: "yellow", key: "health.draining", values: { n: draining.length, names: ids(draining) }, to: "/nodes" });
  return out.length > 0 ? out : [{ color: "teal", key: "health.healthy", values: {} }];
}

/** Where a node's own console is, as far as its address is known. */
export function consoleOf(address: string | null | undefined, here: { protocol: string }, path: string): string | null {
  return address ? `${here.protocol}//${address}${path}` : null;
}

export interface ReplicaRow {
  broker: number;
  role: "leader" | "in-sync" | "out-of-sync" | "adding";
  end: number | null;
  lag: number | null;
  /** For how long it has not been at the log end (ms); null where that is not known, or it is there. */
  behindMs: number | null;
}

type Partition = Pick<Schemas["PartitionState"], "leader" | "replicas" | "isr" | "adding" | "replica_states">;

/** A partition's replicas as its leader knows them, or, while it does not answer, as the metadata does. */
export function replicaRows(p: Partition, now: number): ReplicaRow[] {
  const known = new Map((p.replica_states ?? []).map((r) => [r.broker, r]));
  return p.replicas.map((broker) => {
    const s = known.get(broker);
    const inSync = s ? s.in_sync : p.isr.includes(broker);
    const caughtUp = s?.lag === 0 ? null : (s?.last_caught_up_ms ?? null);
    return {
      broker,
      role: broker === p.leader ? "leader" : inSync ? "in-sync" : p.adding.includes(broker) ? "adding" : "out-of-sync",
      end: s?.log_end_offset ?? null,
      lag: s?.lag ?? null,
      behindMs: caughtUp === null ? null : Math.max(0, now - caughtUp),
    };
  });
}
