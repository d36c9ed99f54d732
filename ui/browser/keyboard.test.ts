import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { complaints, launch, logIn, newContext, TestNode, until } from "./node";
import { fillNode, settle } from "./world";

const node = new TestNode(["--dev"]);
let browser: Browser;
let page: Page;
let found: string[] = [];

beforeAll(async () => {
  await node.start();
  browser = await launch();
  await fillNode(node);
  page = await (await newContext(browser)).newPage();
  found = complaints(page);
  await logIn(page, node);
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

const open = async (path: string) => {
  await page.goto(`${node.url}/ui/${path}`);
  await settle(page);
};
/** Marks what has the focus, so that it is known again. */
const markOpener = () =>
  page.evaluate(() => {
    for (const e of document.querySelectorAll("[data-opener]")) e.removeAttribute("data-opener");
    document.activeElement?.setAttribute("data-opener", "");
  });
const onOpener = () => page.evaluate(() => document.activeElement?.hasAttribute("data-opener") ?? false);
const top = () => page.locator('[role="dialog"]:visible').last();
const focusInTop = () =>
  page.evaluate(() => {
    const all = [...document.querySelectorAll('[role="dialog"]')].filter((e) => e.getClientRects().length > 0);
    return all.at(-1)?.contains(document.activeElement) ?? false;
  });
const dialogs = () => page.locator('[role="dialog"]:visible').count();
const focused = () =>
  page.evaluate(() => {
    const e = document.activeElement;
    return (e?.getAttribute("aria-label") ?? e?.textContent ?? "").trim().slice(0, 60);
  });

/** What a dialog that is open must do: it has the focus, keeps it, asks before what was typed is lost, and gives it back. */
async function judge(name: string, asks: boolean): Promise<string[]> {
  const wrong: string[] = [];
  const begun = await dialogs();
  await until(focusInTop).catch(() => wrong.push(`${name}: it does not take the focus`));
  await page.evaluate(() => {
    const box = document.activeElement?.closest('[role="dialog"]');
    Object.assign(window, { left: null });
    document.addEventListener("focusin", (e) => {
      const to = e.target as HTMLElement;
      if (box?.isConnected && !box.contains(to)) Object.assign(window, { left: to.outerHTML.slice(0, 100) });
    });
  });
  for (const key of ["Tab", "Shift+Tab"]) for (let i = 0; i < 12; i++) await page.keyboard.press(key);
  const left = (await page.evaluate("window.left")) as string | null;
  if (left) wrong.push(`${name}: Tab leaves it, for ${left}`);
  const field = top()
    .locator('input[type="text"], input:not([type]), input[type="password"], textarea')
    .and(page.locator(`:enabled:visible:not([tabindex='-1']):not([aria-haspopup="listbox"])`))
    .first();
  /** A list of suggestions closes before what is around it. */
  const leave = async () => {
    if ((await page.evaluate("document.activeElement.getAttribute('aria-expanded')")) === "true") await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
  };
  if (asks) {
    await field.focus();
    const before = await field.inputValue();
    await page.keyboard.type("7");
    if ((await field.inputValue()) === before) wrong.push(`${name}: nothing can be typed`);
    const question = page.getByRole("dialog", { name: "Discard what you typed?" });
    await leave();
    await question.waitFor({ timeout: 3000 }).catch(() => wrong.push(`${name}: Escape loses what was typed`));
    if (wrong.length > 0) return wrong;
    await until(focusInTop);
    await page.keyboard.press("Escape");
    await question.waitFor({ state: "hidden" });
    if ((await dialogs()) !== begun || (await field.inputValue()) === before) wrong.push(`${name}: it did not go on`);
    await until(focusInTop).catch(() => wrong.push(`${name}: the focus did not come back to it`));
    await leave();
    await question.waitFor();
    await until(async () => (await focused()) === "Go on editing");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
  } else await page.keyboard.press("Escape");
  await until(async () => (await dialogs()) < begun, 3000).catch(() => wrong.push(`${name}: Escape does not close it`));
  await until(onOpener, 3000).catch(async () =>
    wrong.push(`${name}: the focus goes to ${JSON.stringify(await focused())}, not to what opened it`),
  );
  return wrong;
}

/** Opens a dialog by the focus and Enter; what comes between is a menu's items. */
async function byKeys(opener: ReturnType<Page["getByRole"]>, item?: string): Promise<void> {
  await opener.first().focus();
  await markOpener();
  await page.keyboard.press("Enter");
  if (item === undefined) return;
  const menu = page.getByRole("menu");
  await menu.waitFor();
  for (let i = 0; i < 12 && (await focused()) !== item; i++) await page.keyboard.press("ArrowDown");
  expect(await focused()).toBe(item);
  await page.keyboard.press("Enter");
}

const button = (name: string | RegExp) => page.getByRole("button", { name, exact: typeof name === "string" });

/** Every dialog of a node's console: where, by which button (and item of its menu), its title, and whether it asks. */
const table: [
  path: string,
  opener: () => ReturnType<Page["getByRole"]>,
  item: string | undefined,
  title: string | RegExp,
  asks: boolean,
][] = [
  ["topics/flights/messages", () => button("Delete"), undefined, "Delete 1 topic", false],
  [
    "topics/flights/messages",
    () => page.getByRole("table", { name: "Messages" }).getByRole("link"),
    undefined,
    /^flights 0:|^flights/,
    false,
  ],
  ["topics/flights/partitions", () => button("Add partitions"), undefined, "Add partitions", true],
  ["topics/flights/partitions", () => button("Delete records"), undefined, "Delete records", false],
  ["topics/flights/partitions", () => button("Actions on partition 0"), "Move partitions", "Move partitions", true],
  ["access", () => button("Create user"), undefined, "Create user", true],
  ["access", () => button("Actions on reader"), "Set password", /Set password: reader/, true],
  ["access", () => button("Actions on reader"), "API tokens", /API tokens: reader/, true],
  ["access", () => button("Actions on reader"), "Delete", /Delete/, false],
  ["access?tab=rules", () => button("Add a rule"), undefined, "Add a rule", true],
  ["groups", () => button("Prepare a group"), undefined, "Prepare a group", true],
  ["groups/kitchen", () => button("Reset offsets"), undefined, /Reset offsets/, false],
  ["groups/kitchen", () => button("Edit offsets"), undefined, "Edit offsets", true],
  ["groups/kitchen", () => button("Delete"), undefined, /Delete/, false],
  ["groups/kitchen", () => button("Delete offsets of flights"), undefined, /Delete/, false],
  ["nodes/1", () => button("Drain"), undefined, /Drain/, false],
  ["replication", () => button("Elect preferred leaders"), undefined, /Elect/, false],
  ["reassignments", () => button("Move partitions"), undefined, "Move partitions", true],
  ["reassignments", () => button("Rebalance"), undefined, "Rebalance", true],
  ["quotas", () => button("Set a quota"), undefined, "Set a quota", true],
];

test("every dialog is opened by keyboard, takes and keeps the focus, asks before it loses what was typed, and gives the focus back", async () => {
  const wrong: string[] = [];
  let at = "";
  for (const [path, opener, item, title, asks] of table) {
    if (path !== at) await open(path);
    at = path;
    const name = `${path} ${item ?? title}`;
    try {
      await byKeys(opener(), item);
      await page.getByRole("dialog", { name: title }).last().waitFor({ timeout: 5000 });
      wrong.push(...(await judge(name, asks)));
    } catch (error) {
      wrong.push(`${name}: ${String(error).slice(0, 300)}`);
      at = "";
    }
  }
  // The settings' review, which needs a change first.
  await open("topics/flights/config?q=retention.ms");
  await button("Edit retention.ms").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("textbox", { name: "retention.ms", exact: true }).fill("3600000");
  await byKeys(button("Review changes"));
  await page.getByRole("dialog", { name: "Review changes" }).waitFor();
  wrong.push(...(await judge("review", false)));
  // What stands over every page.
  await open("overview");
  await page.locator("#main").focus();
  await markOpener();
  await page.keyboard.press("Shift+Slash");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  wrong.push(...(await judge("shortcuts", false)));
  await button(/Search/)
    .first()
    .focus();
  await markOpener();
  await page.keyboard.press("Control+k");
  await page.getByPlaceholder("A topic, a page, or a record").waitFor();
  wrong.push(...(await judge("palette", false)));
  expect(wrong).toEqual([]);
  expect(found).toEqual([]);
});

test("Escape closes a menu in a dialog, and not the dialog", async () => {
  await open("access");
  await byKeys(button("Create user"));
  const dialog = page.getByRole("dialog", { name: "Create user" });
  await dialog.waitFor();
  await dialog.getByRole("button", { name: "Copy as" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "hidden" });
  expect(await dialog.isVisible()).toBe(true);
  expect(found).toEqual([]);
});
