import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

export const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe, which is in the page, finds serious or critical, in one line each. */
export async function findings(page: Page): Promise<string[]> {
  const violations = await page.evaluate(async () => {
    // biome-ignore lint/suspicious/noExplicitAny: axe puts itself there
    const { violations } = await (window as any).axe.run(document, { resultTypes: ["violations"] });
    return violations as { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
  });
  return violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map(
      (v) =>
        `${v.id} (${v.impact}): ${v.nodes
          .slice(0, 3)
          .map((n) => `${n.html.slice(0, 200)} ${n.failureSummary.slice(0, 240)}`)
          .join(" | ")}`,
    );
}
