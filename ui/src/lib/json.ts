/**
 * Indents the text of a JSON value without reading its numbers or strings: what JSON.parse
 * would round (12345678901234567890), normalise (1.0, 1e3) or merge (members that occur
 * twice) stays as it was written. Returns null where the text is no JSON.
 */
export function indentJSON(text: string, indent = "  "): string | null {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let out = "";
  let depth = 0;
  const line = () => `\n${indent.repeat(depth)}`;
  const token = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
  let opened = false; // an opening bracket whose first member is still to come
  for (const [word] of text.matchAll(token)) {
    if (word === "}" || word === "]") {
      depth--;
      if (!opened) out += line();
      opened = false;
      out += word;
      continue;
    }
    if (opened) out += line();
    opened = false;
    out += word;
    if (word === "{" || word === "[") {
      depth++;
      opened = true;
    } else if (word === ",") out += line();
    else if (word === ":") out += " ";
  }
  return out;
}
