/** A partition of a plan: where its replicas are, where they go, and why it does not. */
export interface PlanRow {
  topic: string;
  partition: number;
  from: number[];
  to: number[];
  problem: string | null;
}

interface Result {
  topic: string;
  partition: number;
  replicas: number[];
  adding: number[];
  removing: number[];
  problem?: unknown;
}

const detail = (problem: unknown): string | null =>
  problem ? ((problem as { detail?: string; title?: string }).detail ?? (problem as { title?: string }).title ?? "") : null;

/** What a call has told of each partition, beside what was asked for. */
export const rowOf = (r: Result): PlanRow => ({
  topic: r.topic,
  partition: r.partition,
  from: r.replicas.filter((id) => !r.adding.includes(id)),
  to: r.replicas.filter((id) => !r.removing.includes(id)),
  problem: detail(r.problem),
});

export const plannedRow = (m: { topic: string; partition: number; from: number[]; to: number[]; problem?: unknown }): PlanRow => ({
  topic: m.topic,
  partition: m.partition,
  from: m.from,
  to: m.to,
  problem: detail(m.problem),
});

/** What of a plan is copied: the replicas that are at none of the old places. */
export const copies = (rows: PlanRow[]): number => rows.reduce((n, r) => n + r.to.filter((id) => !r.from.includes(id)).length, 0);

/**
 * The replicas that partitions are to have. The first of each is its preferred leader; spread,
 * the partitions take turns with the nodes, so that they are not all led by one.
 */
export function targets(partitions: number[], nodes: number[], spread: boolean): { partition: number; replicas: number[] }[] {
  return partitions.map((partition, i) => {
    const at = spread && nodes.length > 0 ? i % nodes.length : 0;
    return { partition, replicas: [...nodes.slice(at), ...nodes.slice(0, at)] };
  });
}

/** A throttle in MiB a second, as bytes; undefined leaves it as it is, 0 takes it away. */
export function throttleBytes(mib: number | string): number | undefined {
  if (mib === "") return undefined;
  const n = Math.round(Number(mib) * 1024 * 1024);
  return Number.isFinite(n) && n >= 0 ? n : undefined;
}
