export const resetKinds = ["earliest", "latest", "timestamp", "offset", "shift"] as const;
export type ResetKind = (typeof resetKinds)[number];

export interface ResetForm {
  to: ResetKind;
  /** The offset, or by how many records; as it is typed. */
  number: string;
  /** Milliseconds since 1970. */
  time: number | undefined;
  /** Empty: all that the group has offsets of. */
  topics: string[];
  /** Of the one topic; empty: all. */
  partitions: string[];
}

export interface ResetBody {
  to: ResetKind;
  value?: number;
  topics?: string[];
  partitions?: { topic: string; partition: number }[];
}

/** The request that a form means, or null where it is not complete. */
export function resetBody(form: ResetForm): ResetBody | null {
  const body: ResetBody = { to: form.to };
  if (form.to === "timestamp") {
    if (form.time === undefined) return null;
    body.value = form.time;
  } else if (form.to === "offset" || form.to === "shift") {
    if (!(form.to === "shift" ? /^-?\d+$/ : /^\d+$/).test(form.number) || !Number.isSafeInteger(Number(form.number))) return null;
    body.value = Number(form.number);
  }
  const [topic] = form.topics;
  if (form.partitions.length > 0 && topic !== undefined && form.topics.length === 1)
    body.partitions = form.partitions.map((p) => ({ topic, partition: Number(p) }));
  else if (form.topics.length > 0) body.topics = form.topics;
  return body;
}

export interface Move {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
}

/** How many records come again and how many are passed over; what was never committed counts for neither. */
export function movesInAll(moves: Move[]): { again: number; over: number } {
  let again = 0;
  let over = 0;
  for (const { from, to } of moves) {
    if (from === null) continue;
    if (to < from) again += from - to;
    else over += to - from;
  }
  return { again, over };
}

/** Numbers in order, with runs drawn together: 0–3, 7. */
export function ranges(numbers: number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === (sorted[j] ?? 0) + 1) j++;
    parts.push(j === i ? String(sorted[i]) : j === i + 1 ? `${sorted[i]}, ${sorted[j]}` : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}
