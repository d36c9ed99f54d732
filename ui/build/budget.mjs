// Fails when the console has become too large: what the first page loads (the entry and
// what it imports statically) and each part that is loaded later, in KB of gzip.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const first = 260;
const later = 120;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL(".vite/manifest.json", dist), "utf8"));
const size = (file) => gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length / 1024;

const entry = Object.keys(manifest).find((key) => manifest[key].isEntry);
const eager = new Set();
const walk = (key) => {
  if (eager.has(key)) return;
  eager.add(key);
  for (const next of manifest[key].imports ?? []) walk(next);
};
walk(entry);

let failed = false;
const check = (name, kb, most) => {
  const over = kb > most;
  failed ||= over;
  console.log(`${over ? "TOO LARGE" : "ok       "} ${kb.toFixed(1).padStart(7)} KB of ${most}  ${name}`);
};
check(
  "first JS (entry and its static imports)",
  [...eager].reduce((sum, key) => sum + size(manifest[key].file), 0),
  first,
);
for (const key of Object.keys(manifest)) {
  const { file } = manifest[key];
  if (!eager.has(key) && file.endsWith(".js")) check(file, size(file), later);
}
process.exit(failed ? 1 : 0);
