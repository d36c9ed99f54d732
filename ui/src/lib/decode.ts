export type Decoder = "auto" | "json" | "text" | "hex" | "base64";
export const decoders: readonly Decoder[] = ["auto", "json", "text", "hex", "base64"];

/** Bytes as a record read tells them: text, base64 for what is no text, or null. */
export interface Field {
  value: string | null;
  encoding: "text" | "base64" | "json" | null;
}

export function bytesOf(field: Field): Uint8Array {
  if (field.value === null) return new Uint8Array();
  if (field.encoding === "base64") {
    const text = atob(field.value);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }
  return new TextEncoder().encode(field.value);
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

const hex2 = (b: number) => b.toString(16).padStart(2, "0");

/** Offset, sixteen bytes and their ASCII a line, as hexdump -C writes them. */
export function hexDump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const left = row.map(hex2).join(" ").padEnd(47);
    const right = row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}`);
  }
  return lines.join("\n");
}

/** What a cell shows of a field. Kinds are styled apart, so that null, "" and "null" differ. */
export interface Shown {
  kind: "null" | "empty" | "space" | "text" | "binary";
  text: string;
}

const spaceMarks: Record<string, string> = { " ": "␣", "\n": "␤", "\r": "␍", "\t": "␉" };

export function show(field: Field, decoder: Decoder): Shown {
  if (field.value === null) return { kind: "null", text: "null" };
  if (field.value === "") return { kind: "empty", text: '""' };
  if (decoder === "hex") return { kind: "binary", text: [...bytesOf(field)].map(hex2).join(" ") };
  if (decoder === "base64") return { kind: "binary", text: field.encoding === "base64" ? field.value : toBase64(bytesOf(field)) };
  if (field.encoding === "base64") return { kind: "binary", text: [...bytesOf(field)].map(hex2).join(" ") };
  if (/^\s+$/.test(field.value)) return { kind: "space", text: field.value.replace(/[\s]/g, (c) => spaceMarks[c] ?? "·") };
  return { kind: "text", text: field.value };
}
