import type { Schemas } from "../api/client";

export type Setting = Schemas["ConfigItem"];
/** A change that waits to be saved: a new value, or null for going back to the default. */
export type Staged = Record<string, string | null>;

export const groups = ["retention", "messages", "segments", "replication", "other"] as const;
export type SettingGroup = (typeof groups)[number];

export function groupOf(name: string): SettingGroup {
  if (/^(retention|cleanup|delete\.retention|min\.cleanable|min\.compaction|max\.compaction|dedupe|local\.retention|remote)/.test(name))
    return "retention";
  if (/^(max\.message|message|compression)/.test(name)) return "messages";
  if (/^(segment|flush|index|preallocate|file)/.test(name)) return "segments";
  if (/(isr|replica|leader)/.test(name)) return "replication";
  return "other";
}

/** What a setting becomes with a staged change. */
export const after = (item: Setting, change: string | null): string => (change === null ? item.default : change);

/** Drops changes that change nothing. */
export function prune(staged: Staged, items: Setting[]): Staged {
  const by = new Map(items.map((i) => [i.name, i]));
  return Object.fromEntries(
    Object.entries(staged).filter(([name, change]) => {
      const item = by.get(name);
      return item && (change === null ? item.source === "topic" || item.source === "cluster" : change !== item.value);
    }),
  );
}

export interface Conflict {
  name: string;
  was: string;
  theirs: string;
  mine: string | null;
}

/** What somebody else changed since, beside what is staged here: every setting that moved. */
export function conflicts(before: Setting[], now: Setting[], staged: Staged): Conflict[] {
  const old = new Map(before.map((i) => [i.name, i]));
  return now.flatMap((item) => {
    const was = old.get(item.name);
    if (!was || was.value === item.value) return [];
    const change = staged[item.name];
    return [{ name: item.name, was: was.value, theirs: item.value, mine: change === undefined ? null : after(item, change) }];
  });
}

/** The body of a PATCH for some staged changes: only keys that are named change. */
export function patchOf(staged: Staged, names = Object.keys(staged)): { set?: Record<string, string>; unset?: string[] } {
  const set = Object.fromEntries(names.flatMap((n) => (typeof staged[n] === "string" ? [[n, staged[n]]] : [])));
  const unset = names.filter((n) => staged[n] === null);
  return { ...(Object.keys(set).length > 0 ? { set } : {}), ...(unset.length > 0 ? { unset } : {}) };
}

/** What is wrong with a value, by what the setting says of itself. */
export function faultOf(item: Setting, value: string): "number" | "min" | "max" | null {
  if (item.type !== "long" && item.type !== "int" && item.type !== "double") return null;
  if (!(item.type === "double" ? /^-?\d+(\.\d+)?$/ : /^-?\d+$/).test(value)) return "number";
  if (item.min !== null && Number(value) < item.min) return "min";
  if (item.max !== null && Number(value) > item.max) return "max";
  return null;
}
