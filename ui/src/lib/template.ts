/** Fills {{i}}, {{uuid}} and {{now}} (milliseconds) in a text; other braces stay. */
export function fillTemplate(text: string, i: number, now: number, uuid: () => string): string {
  return text.replace(/\{\{(i|uuid|now)\}\}/g, (_, word: string) => (word === "i" ? String(i) : word === "now" ? String(now) : uuid()));
}

/** A random UUID, also where the page is not served by TLS and crypto.randomUUID is missing. */
export function randomUUID(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = ((b[6] ?? 0) & 0x0f) | 0x40;
  b[8] = ((b[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
