// Writes compressed forms of the built files beside them, which the node serves as they are.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const folder = new URL("../dist/", import.meta.url).pathname;
rmSync(join(folder, ".gitkeep"), { force: true });
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  if (!entry.isFile() || !/\.(js|css|svg)$/.test(entry.name)) continue;
  const content = readFileSync(path);
  for (const [suffix, form] of [
    [".gz", gzipSync(content, { level: 9 })],
    [".br", brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } })],
  ]) {
    if (form.length < content.length) writeFileSync(path + suffix, form);
  }
}
