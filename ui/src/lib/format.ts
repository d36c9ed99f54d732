/** Numbers with thousands separators; an unknown one is a dash. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { maximumFractionDigits: value < 10 && !Number.isInteger(value) ? 1 : 0 });
}

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes in binary units, with three significant digits at most. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  let rest = value;
  let unit = 0;
  while (Math.abs(rest) >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit++;
  }
  const digits = unit === 0 || rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return `${unit === 0 ? Math.round(rest).toLocaleString("en-US") : Number(rest.toFixed(digits))} ${units[unit]}`;
}

const spans: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** A span of milliseconds in its two largest units. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const parts: string[] = [];
  let rest = Math.round(ms);
  for (const [unit, size] of spans) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0) parts.push(`${n} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export type TimeMode = "utc" | "local" | "relative";

const pad = (n: number, width = 2) => String(n).padStart(width, "0");

/** A time as the switch says. Times beyond what a Date holds are shown as their number. */
export function time(ms: number, mode: TimeMode, now: number): string {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  if (mode === "relative") {
    const gap = now - ms;
    if (Math.abs(gap) < 1000) return "now";
    return gap > 0 ? `${duration(gap)} ago` : `in ${duration(-gap)}`;
  }
  if (mode === "utc") return `${date.toISOString().replace("T", " ").replace("Z", "")} UTC`;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** A setting's value with its unit in words: 604800000 ms → "7 d". Empty where words add nothing. */
export function settingInWords(value: string, unit: string | null): string {
  if (!/^-?\d+$/.test(value)) return "";
  const n = Number(value);
  if (!Number.isSafeInteger(n) || n < 0) return n < 0 ? "" : "∞";
  if (unit === "ms" && n >= 1000) return duration(n);
  if (unit === "bytes" && n >= 1024) return bytes(n);
  return "";
}
