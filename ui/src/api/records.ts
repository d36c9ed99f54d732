import type { Field } from "../lib/decode";
import { prefix } from "../lib/prefix";
import { call, type Schemas } from "./client";

/**
 * A record as the console reads it. Records are always asked for as text: what is UTF-8 then
 * comes as a string of exactly its bytes, JSON values too, and the rest as base64. So no
 * number in a payload ever passes through JSON.parse, which would round it.
 */
export interface Rec {
  topic: string;
  partition: number;
  offset: number;
  timestamp: number;
  timestamp_type: string;
  key: string | null;
  key_encoding: Field["encoding"];
  value: string | null;
  value_encoding: Field["encoding"];
  headers: { name: string; name_encoding?: string; value: string | null; encoding: Field["encoding"] }[];
  preview?: Schemas["Preview"];
}

export const keyOf = (r: Rec): Field => ({ value: r.key, encoding: r.key_encoding });
export const payloadOf = (r: Rec): Field => ({ value: r.value, encoding: r.value_encoding });
export const idOf = (r: Pick<Rec, "partition" | "offset">): string => `${r.partition}:${r.offset}`;

/** What a read looked at. */
export interface Coverage {
  records: number;
  bytes: number;
  partitions: { partition: number; from: number; to: number }[];
}

export interface Page {
  records: Rec[];
  next: string | null;
  prev: string | null;
  /** Why it ended: max-records, max-time, latest, earliest, … */
  reason: string;
  /** Where to go on, also at an end. */
  cursor: string | null;
  scanned: Coverage | null;
}

/** Which records: one of the places to begin, or the cursor of an earlier answer. */
export interface Ask {
  topic: string;
  seek: "newest" | "oldest" | "time" | "offset";
  time?: number;
  partition?: number;
  offset?: number;
  cursor?: string;
  q?: string;
  in?: string;
}

export const pageSize = 50;
/** Of each key, value and header a list gets so much (bytes). */
export const previewBytes = 1024;
const text = { encoding: "text", key_encoding: "text", header_encoding: "text" };

/** The path of a read; without a number of records it is a stream up to the end. */
export function browsePath(ask: Ask, records: number | null, more: Record<string, string> = {}): string {
  const params = new URLSearchParams(text);
  if (ask.cursor) params.set("cursor", ask.cursor);
  else {
    if (ask.seek === "newest") params.set("direction", "backward");
    if (ask.seek === "time") params.set("from", String(ask.time ?? 0));
    if (ask.partition !== undefined) params.set("partitions", String(ask.partition));
  }
  if (ask.q) {
    params.set("q", ask.q);
    if (ask.in) params.set("q_in", ask.in);
  }
  if (records !== null) params.set("max_records", String(records));
  for (const [name, value] of Object.entries(more)) params.set(name, value);
  return `/v1/topics/${encodeURIComponent(ask.topic)}/records?${params}`;
}

interface BrowseAnswer {
  records: Rec[];
  next_cursor: string | null;
  prev_cursor: string | null;
  end: { reason: string; cursor: string };
  scanned: Coverage;
}

export function addCoverage(a: Coverage | null, b: Coverage): Coverage {
  if (!a) return b;
  const ranges = new Map(a.partitions.map((p) => [p.partition, p]));
  for (const p of b.partitions) {
    const old = ranges.get(p.partition);
    ranges.set(p.partition, old ? { partition: p.partition, from: Math.min(old.from, p.from), to: Math.max(old.to, p.to) } : p);
  }
  return {
    records: a.records + b.records,
    bytes: a.bytes + b.bytes,
    partitions: [...ranges.values()].sort((x, y) => x.partition - y.partition),
  };
}

const byOffset = (ask: Ask): boolean => ask.seek === "offset" && !ask.cursor && !ask.q && ask.partition !== undefined;
const firstPath = (ask: Ask): string => browsePath(ask, pageSize, { preview_bytes: String(previewBytes) });

/** A read that was begun before the page that shows it; it serves once, and not for long. */
let ahead: { path: string; answer: Promise<Response>; end: number } | null = null;
const aheadTime = 2000;

/** Begins to read what readPage will be asked for in a moment; searches, which can be stopped, are not begun. */
export function readAhead(ask: Ask): void {
  if (byOffset(ask) || ask.q) return;
  const path = firstPath(ask);
  const answer = call(path);
  answer.catch(() => undefined); // whoever takes it hears of it
  ahead = { path, answer, end: performance.now() + aheadTime };
}

function begun(path: string): Promise<Response> | null {
  const it = ahead;
  ahead = null;
  return it && it.path === path && performance.now() < it.end ? it.answer : null;
}

/**
 * Reads a page. A search is asked for in pieces of under a second, so that its progress is
 * seen and Stop ends it at once; `progress` gets what was found so far after each.
 */
export async function readPage(ask: Ask, signal: AbortSignal, progress: (page: Page) => void): Promise<Page> {
  if (byOffset(ask) && ask.partition !== undefined) return readFrom(ask.topic, ask.partition, ask.offset ?? 0, signal);
  let page: Page = { records: [], next: null, prev: null, reason: "", cursor: ask.cursor ?? null, scanned: null };
  for (let first = true; ; first = false) {
    const piece: Ask = first ? ask : { ...ask, cursor: page.cursor ?? undefined };
    const path = browsePath(piece, pageSize - page.records.length, {
      preview_bytes: String(previewBytes),
      ...(ask.q ? { max_time_ms: "700" } : {}),
    });
    const answer = (await (await ((first && begun(path)) || call(path, { signal }))).json()) as BrowseAnswer;
    signal.throwIfAborted();
    page = {
      records: [...page.records, ...answer.records],
      next: answer.next_cursor,
      prev: first ? answer.prev_cursor : page.prev,
      reason: answer.end.reason,
      cursor: answer.end.cursor,
      scanned: addCoverage(page.scanned, answer.scanned),
    };
    progress(page);
    if (!ask.q || answer.end.reason !== "max-time" || page.records.length >= pageSize) return page;
  }
}

/** A page of one partition from an offset on. */
async function readFrom(topic: string, partition: number, offset: number, signal: AbortSignal): Promise<Page> {
  const params = new URLSearchParams({
    ...text,
    offset: String(offset),
    max_records: String(pageSize),
    preview_bytes: String(previewBytes),
  });
  const answer = await (await call(`/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/records?${params}`, { signal })).json();
  const { records, next_offset, high_watermark } = answer as { records: Rec[]; next_offset: number; high_watermark: number };
  return { records, next: null, prev: null, reason: next_offset >= high_watermark ? "latest" : "max-records", cursor: null, scanned: null };
}

export const recordPath = (topic: string, id: string): string => {
  const [partition, offset] = id.split(":");
  return `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/records/${offset}`;
};

/** One record: whole, or of each of its parts the first bytes, with their lengths in `preview`. */
export async function readRecord(topic: string, id: string, signal?: AbortSignal, firstBytes?: number): Promise<Rec> {
  const params = new URLSearchParams(text);
  if (firstBytes !== undefined) params.set("preview_bytes", String(firstBytes));
  return (await call(`${recordPath(topic, id)}?${params}`, { signal })).json();
}

/** A record in the form that produce takes, with equal bytes: `as it is` in the sense of the API. */
export function asInput(r: Rec): Record<string, unknown> {
  return {
    key: r.key,
    ...(r.key_encoding === "base64" ? { key_encoding: "base64" } : {}),
    value: r.value,
    ...(r.value_encoding === "base64" ? { value_encoding: "base64" } : {}),
    headers: r.headers.map((h) => ({ name: h.name, value: h.value, ...(h.encoding === "base64" ? { encoding: "base64" } : {}) })),
  };
}

/** The address of a topic's live tail. */
export const tailURL = (): string =>
  `${window.location.protocol === "https:" ? "wss" : "ws"}://${window.location.host}${prefix}/v1/ws/consume`;

/** The same as a stream of events over HTTP. */
export function streamURL(topic: string, q?: string, within?: string): string {
  const params = new URLSearchParams({ ...text, from: "latest", follow: "true", preview_bytes: String(previewBytes) });
  if (q) {
    params.set("q", q);
    if (within) params.set("q_in", within);
  }
  return `${prefix}/v1/topics/${encodeURIComponent(topic)}/records?${params}`;
}

/** The records of a stream of lines, as they come. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part !== "") yield part;
  }
  if (rest !== "") yield rest;
}
