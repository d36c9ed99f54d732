import { useNavigate, useSearch } from "@tanstack/react-router";
import type { Decoder } from "../lib/decode";
import { decoders } from "../lib/decode";

type Raw = Record<string, unknown>;

const text = (raw: Raw, name: string): string | undefined => {
  const value = raw[name];
  return typeof value === "string" && value !== "" ? value : undefined;
};
const word = <T extends string>(raw: Raw, name: string, words: readonly T[]): T | undefined => words.find((w) => w === raw[name]);
const whole = (raw: Raw, name: string): number | undefined => {
  // A number already where the router has read the address, or a link gives it.
  const value = typeof raw[name] === "number" ? String(raw[name]) : text(raw, name);
  if (value === undefined || !/^\d+$/.test(value)) return undefined;
  const n = Number(value);
  return Number.isSafeInteger(n) ? n : undefined;
};

/** The address's search part without JSON: what is written there is what is meant. */
export const parseSearch = (search: string): Record<string, string> => Object.fromEntries(new URLSearchParams(search));
export function stringifySearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(search))
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  const out = params.toString();
  return out === "" ? "" : `?${out}`;
}

export const loginSearch = (raw: Raw) => ({ to: text(raw, "to"), token: text(raw, "token") });
export const listSearch = (raw: Raw) => ({
  q: text(raw, "q"),
  sort: text(raw, "sort"),
  internal: raw.internal === "true" ? "true" : undefined,
});

export const groupsSearch = (raw: Raw) => ({ q: text(raw, "q"), sort: text(raw, "sort") });
export const apiSearch = (raw: Raw) => ({ q: text(raw, "q"), open: text(raw, "open") });

export const seeks = ["newest", "oldest", "time", "offset", "live"] as const;
export type Seek = (typeof seeks)[number];
/** Where and what the messages page reads: all of it is in the address. */
export const messagesSearch = (raw: Raw) => ({
  seek: word(raw, "seek", seeks),
  time: whole(raw, "time"),
  partition: whole(raw, "partition"),
  offset: whole(raw, "offset"),
  q: text(raw, "q"),
  in: text(raw, "in"),
  cursor: text(raw, "cursor"),
  decoder: word<Decoder>(raw, "decoder", decoders),
  open: /^\d+:\d+$/.test(String(raw.open)) ? String(raw.open) : undefined,
});
export const produceSearch = (raw: Raw) => ({ from: /^\d+:\d+$/.test(String(raw.from)) ? String(raw.from) : undefined });
export const configSearch = (raw: Raw) => ({ q: text(raw, "q"), modified: raw.modified === "true" ? "true" : undefined });
export const partitionsSearch = (raw: Raw) => ({ unhealthy: raw.unhealthy === "true" ? "true" : undefined });
export const accessSearch = (raw: Raw) => ({
  tab: word(raw, "tab", ["users", "rules", "checker"] as const),
  principal: text(raw, "principal"),
  user: text(raw, "user"),
});
export const auditSearch = (raw: Raw) => ({
  q: text(raw, "q"),
  principal: text(raw, "principal"),
  action: text(raw, "action"),
  resource: text(raw, "resource"),
  outcome: word(raw, "outcome", ["success", "refused", "failed", "unknown"] as const),
});
export const operationsSearch = (raw: Raw) => ({ state: word(raw, "state", ["running", "done", "failed", "cancelled"] as const) });
export const metricsSearch = (raw: Raw) => ({
  span: word(raw, "span", ["15m", "1h", "6h", "24h"] as const),
  node: whole(raw, "node"),
});
export const missingSearch = (raw: Raw) => ({ q: text(raw, "q") });

/** The page's search parameters, and a function that changes some of them. */
export function usePageSearch<T extends object>(
  codec: (raw: Raw) => T,
): [T, (change: Partial<T>, options?: { replace?: boolean }) => void] {
  const raw = useSearch({ strict: false }) as Raw;
  const navigate = useNavigate();
  const change = (next: Partial<T>, { replace = false } = {}) => {
    void navigate({ to: ".", search: ((old: Raw) => ({ ...old, ...next })) as never, replace, resetScroll: false });
  };
  return [codec(raw), change];
}
