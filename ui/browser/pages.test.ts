import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, findings } from "./audit";
import { complaints, launch, logIn, newContext, TestNode, until } from "./node";
import { fillNode, pages, picture, settle } from "./world";

const node = new TestNode(["--dev"]);
let browser: Browser;

beforeAll(async () => {
  await node.start();
  browser = await launch();
  await fillNode(node);
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

/** What can be used on a page and is in sight, each with a mark of its own. */
const usable = `(() => {
  // An open dialog keeps the focus within.
  const all = [...(document.querySelector('[role="dialog"]') ?? document).querySelectorAll('a[href], button, input, select, textarea, [role="button"], [role="tab"]')];
  return all.filter((e) => {
    if (e.disabled || e.type === "hidden" || e.type === "file" || e.closest('[aria-hidden="true"], [inert]')) return false;
    if (e.type === "radio" && !e.checked) return false; // arrows go there from the one that is chosen
    if (e.tabIndex < 0 && e.closest('[role="combobox"], .mantine-NumberInput-root, .mantine-InputWrapper-root, .mantine-PasswordInput-root')) return false; // an ornament of its field
    return e.getClientRects().length > 0;
  });
})()`;

/** What the Tab key does not come to, of what can be used. */
async function unreached(page: Page): Promise<string[]> {
  await page.evaluate(`{ window.toReach = new Set(${usable}); window.reached = new Set();
    document.addEventListener("focusin", (e) => window.reached.add(e.target)); document.body.focus(); }`);
  const n = (await page.evaluate("window.toReach.size")) as number;
  for (let i = 0; i < n + 30; i++) {
    await page.keyboard.press("Tab");
    if (i % 10 === 9 && (await page.evaluate("[...window.toReach].every((e) => window.reached.has(e) || !e.isConnected)"))) break;
  }
  return (await page.evaluate(
    "[...window.toReach].filter((e) => !window.reached.has(e) && e.isConnected).map((e) => e.outerHTML.slice(0, 120))",
  )) as string[];
}

/** Opens the menus of a page by keyboard, of each kind one: what the arrows do not come to, and where Escape does not lead back. */
async function menus(page: Page, seen: Set<string>): Promise<string[]> {
  const wrong: string[] = [];
  const focused = () =>
    page.evaluate(() => (document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? "").trim());
  const all = page.locator('button[aria-haspopup="menu"]:visible:enabled');
  const names = await all.evaluateAll((list) => list.map((e) => (e.getAttribute("aria-label") ?? e.textContent ?? "").trim()));
  for (const [i, name] of names.entries()) {
    const kind = name.replace(/\d+/g, "#").replace(/ on .*/, "");
    if (seen.has(kind)) continue;
    seen.add(kind);
    await all.nth(i).focus();
    await page.keyboard.press("Enter");
    const menu = page.getByRole("menu");
    await menu.waitFor();
    const n = await menu.locator("[data-menu-item]:not([data-disabled])").count();
    const walked = new Set<string>();
    for (let k = 0; k <= n; k++) {
      await page.keyboard.press("ArrowDown");
      walked.add(await focused());
    }
    if (walked.size < n) wrong.push(`menu ${name}: the arrows come to ${walked.size} of ${n} items`);
    await page.keyboard.press("Escape");
    await menu.waitFor({ state: "hidden" });
    await until(async () => (await focused()) === name, 3000).catch(async () =>
      wrong.push(`menu ${name}: the focus goes to ${await focused()}`),
    );
  }
  return wrong;
}

test("every page is accessible in both themes, complains of nothing, and all of it and of its menus is reached by keyboard", async () => {
  const context = await newContext(browser, { colorScheme: "light" });
  const page = await context.newPage();
  const found = complaints(page);
  await logIn(page, node);
  const wrong: string[] = [];
  const seen = new Set<string>();
  for (const path of pages) {
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(`${node.url}/ui/${path}`);
    await settle(page);
    await page.evaluate(axe);
    wrong.push(...(await findings(page)).map((w) => `light ${path}: ${w}`));
    await picture(page, `light ${path}`);
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => document.documentElement.dataset.mantineColorScheme === "dark");
    // Colours go over in a moment: what is in between is nobody's theme.
    await page.evaluate(() => Promise.allSettled(document.getAnimations().map((a) => a.finished)));
    wrong.push(...(await findings(page)).map((w) => `dark ${path}: ${w}`));
    await picture(page, `dark ${path}`);
    wrong.push(...(await unreached(page)).map((w) => `${path}: Tab does not come to ${w}`));
    wrong.push(...(await menus(page, seen)).map((w) => `${path}: ${w}`));
    wrong.push(...found.splice(0).map((w) => `${path}: ${w}`));
  }
  expect(wrong).toEqual([]);
  expect(seen.size).toBeGreaterThan(6);
  await context.close();
});
