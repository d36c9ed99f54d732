import { Button, Menu } from "@mantine/core";
import { FileDown } from "lucide-react";
import { useState } from "react";
import { call } from "../api/client";
import { type Ask, browsePath, lines } from "../api/records";
import { useT } from "../i18n";
import { saveBlob } from "./save";
import { done, failed } from "./toast";

/** Most records of an export: what a browser can hold until it is saved, and a page of the node. */
const most = { ndjson: 100_000, csv: 10_000 };

export default function ExportMenu({ ask }: { ask: Ask }) {
  const t = useT();
  const [busy, setBusy] = useState(false);
  // From the place where the page begins, forward or backward as it goes.
  const from: Ask = { ...ask, seek: ask.seek === "offset" ? "oldest" : ask.seek };
  const save = async (kind: "ndjson" | "csv") => {
    setBusy(true);
    const controller = new AbortController();
    try {
      const path = browsePath(from, kind === "csv" ? most.csv : null);
      const answer = await call(path, {
        headers: { Accept: kind === "csv" ? "text/csv" : "application/x-ndjson" },
        signal: controller.signal,
      });
      if (kind === "csv") {
        saveBlob(await answer.blob(), `${ask.topic}.csv`);
      } else if (answer.body) {
        const parts: string[] = [];
        for await (const line of lines(answer.body)) {
          if (parts.length >= most.ndjson) break;
          if (line.startsWith('{"record":')) parts.push(`${line.slice('{"record":'.length, -1)}\n`);
          else if (line.startsWith('{"problem":')) throw new Error(JSON.parse(line).problem.detail);
        }
        saveBlob(new Blob(parts, { type: "application/x-ndjson" }), `${ask.topic}.ndjson`);
        done(t("export.done", { n: parts.length }));
      }
    } catch (error) {
      failed(t("export.title"), error);
    } finally {
      controller.abort(); // the rest of a stream that was read far enough
      setBusy(false);
    }
  };
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button variant="default" loading={busy} leftSection={<FileDown size={16} aria-hidden />}>
          {t("export.title")}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{t("export.note", { most: most.ndjson.toLocaleString("en-US"), csv: most.csv.toLocaleString("en-US") })}</Menu.Label>
        <Menu.Item onClick={() => save("ndjson")}>NDJSON</Menu.Item>
        <Menu.Item onClick={() => save("csv")}>CSV</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
