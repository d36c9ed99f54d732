import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(__dirname, "../..");

/** The calls of the console, as its sources write them: api.POST("/v1/…") or call(`/v1/…`, { method: "POST" }). */
function calls(): Set<string> {
  const found = new Set<string>();
  for (const entry of readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.tsx?$/.test(entry.name) || /\.(test|gen)\./.test(entry.name)) continue;
    const text = readFileSync(join(entry.parentPath, entry.name), "utf8");
    for (const [, method, path] of text.matchAll(/api\.(POST|PUT|PATCH|DELETE)\(\s*"([^"]+)"/g)) found.add(`${method} ${path}`);
    for (const [, path] of text.matchAll(/call\(`([^`?]+)[^`]*`,\s*\{\s*method: "POST"/g))
      found.add(`POST ${path?.replace(/\$\{[^}]*topic[^}]*\}/, "{topic}")}`);
  }
  return found;
}

test("every call that changes something has a place in the console, or a reason why it has none", () => {
  const document = JSON.parse(readFileSync(join(root, "../openapi/openapi.json"), "utf8"));
  const mutations = Object.entries(document.paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((m) => ["post", "put", "patch", "delete"].includes(m))
      .map((m) => `${m.toUpperCase()} ${path}`),
  );
  const reasons = new Set(
    [...readFileSync(join(root, "../docs/console.md"), "utf8").matchAll(/^\| `((?:POST|PUT|PATCH|DELETE) [^`]+)` \|/gm)].map(
      (m) => m[1] as string,
    ),
  );
  const used = calls();
  expect(mutations.filter((m) => !used.has(m) && !reasons.has(m))).toEqual([]);
  expect([...reasons].filter((m) => used.has(m) || !mutations.includes(m))).toEqual([]);
  expect(mutations.length).toBeGreaterThan(20);
});
