import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask, complaints, launch, logIn, newContext, TestNode } from "./node";

/** Where to put pictures of every page; without it none are taken. */
const pictures = process.env.PICTURES;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const node = new TestNode(["--dev"]);
let browser: Browser;

beforeAll(async () => {
  await node.start();
  browser = await launch();
  await fillNode();
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

async function fillNode(): Promise<void> {
  const { access_token: token } = await (
    await ask(node, "POST", "/v1/auth/login", undefined, { username: "admin", password: "tidewire" })
  ).json();
  await ask(node, "POST", "/v1/topics", token, { name: "flights", partitions: 3, config: { "retention.ms": "86400000" } });
  for (let i = 0; i < 30; i++) await ask(node, "POST", "/v1/topics", token, { name: `orders-${i}` });
  const records = Array.from({ length: 120 }, (_, i) => ({
    key: i % 9 === 0 ? null : `flight-${i}`,
    value:
      i % 7 === 0
        ? null
        : i % 7 === 1
          ? ""
          : i % 7 === 2
            ? "  "
            : { flight: `LH${i}`, from: "PHX", seats: 12345678901234567890n.toString(), note: "<b>bold</b>" },
    headers: i % 5 === 0 ? [{ name: "trace", value: `t-${i}` }] : [],
  }));
  await ask(node, "POST", "/v1/topics/flights/records", token, { records });
  await ask(node, "POST", "/v1/topics/flights/records", token, { records: [{ key: "blob", value: "AAECAwT/", value_encoding: "base64" }] });
  await ask(node, "POST", "/v1/users", token, { username: "reader", password: "password1" });
  await ask(node, "POST", "/v1/acls", token, {
    principal: "User:reader",
    resource_type: "topic",
    resource_name: "flights",
    operation: "read",
    permission: "allow",
  });
  await ask(node, "PUT", "/v1/groups/kitchen/offsets", token, {
    offsets: [0, 1, 2].map((partition) => ({ topic: "flights", partition, next_offset: partition * 5, metadata: "by hand" })),
  });
  const member = { topics: ["flights"], client_id: "a reader of flights", session_timeout_ms: 1_800_000 };
  const { member_id } = (await (await ask(node, "POST", "/v1/groups/busy/members", token, member)).json()) as { member_id: string };
  await ask(node, "POST", `/v1/groups/busy/members/${member_id}/poll`, token, { wait_ms: 5000 });
  await ask(node, "PUT", "/v1/quotas/reader", token, { produce_bytes_per_s: 1048576, fetch_bytes_per_s: null, requests_per_s: 100 });
}

const pages = [
  "overview",
  "topics",
  "topics/new",
  "topics/flights/messages",
  "topics/flights/messages?seek=offset&partition=0&offset=3",
  "topics/flights/messages?seek=time&time=1000",
  "topics/flights/messages?seek=live",
  "topics/flights/messages?q=PHX&seek=oldest",
  "topics/flights/messages?open=0:3",
  "topics/flights/produce",
  "topics/flights/partitions",
  "topics/flights/config",
  "topics/flights/groups",
  "topics/flights/access",
  "topics/flights/metrics",
  "access",
  "access?tab=rules",
  "access?tab=checker",
  "groups",
  "groups/kitchen",
  "groups/busy",
  "groups/none-of-this-name",
  "nodes",
  "nodes/1",
  "api",
  "api?open=resetGroupOffsets",
  "quotas",
  "audit",
  "operations",
  "metrics",
  "settings",
  "about",
  "no/such/page",
];

/** Waits until a page has what it asked for. */
async function settle(page: Page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".mantine-Skeleton-root, .mantine-Loader-root").length === 0);
  await page.evaluate(() => new Promise((done) => setTimeout(done, 250)));
}

/** What axe finds serious or critical, in one line each. */
async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axe);
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

async function picture(page: Page, name: string) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name.replace(/[^A-Za-z0-9]+/g, "-")}.png`) });
}

async function walk(context: BrowserContext, label: string, look: (page: Page, where: string) => Promise<string[]>) {
  const page = await context.newPage();
  const found = complaints(page);
  await logIn(page, node);
  const wrong: string[] = [];
  for (const path of pages) {
    await page.goto(`${node.url}/ui/${path}`);
    await settle(page);
    wrong.push(...(await look(page, path)).map((w) => `${label} ${path}: ${w}`));
    wrong.push(...found.splice(0).map((w) => `${label} ${path}: ${w}`));
    await picture(page, `${label} ${path}`);
  }
  await context.close();
  return wrong;
}

for (const colorScheme of ["light", "dark"] as const)
  test(`every page in the ${colorScheme} theme is accessible, and complains of nothing`, async () => {
    const context = await newContext(browser, { colorScheme });
    expect(await walk(context, colorScheme, findings)).toEqual([]);
  });

test("no page is wider than a telephone, and the login comes in the browser's language", async () => {
  const context = await newContext(browser, { viewport: { width: 390, height: 844 } });
  const wider = async (page: Page) => {
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    return width > 390 ? [`is ${width} px wide`] : [];
  };
  expect(await walk(context, "narrow", wider)).toEqual([]);
});

test("a browser that speaks Chinese gets the console in Chinese", async () => {
  const context = await newContext(browser, { locale: "zh-CN" });
  const page = await context.newPage();
  const found = complaints(page);
  await page.goto(`${node.url}/ui/topics`);
  await page.getByLabel("用户名").fill("admin");
  await page.getByLabel("密码", { exact: true }).fill("tidewire");
  await picture(page, "zh login");
  await page.getByRole("button", { name: "登录" }).click();
  await page.getByRole("heading", { name: "主题", level: 1 }).waitFor();
  expect(await page.evaluate(() => document.documentElement.lang)).toBe("zh-CN");
  if (pictures)
    for (const path of pages) {
      await page.goto(`${node.url}/ui/${path}`);
      await settle(page);
      await picture(page, `zh ${path}`);
    }
  expect(found).toEqual([]);
  await context.close();
});

/** What can be used on a page and is in sight, each with a mark of its own. */
const usable = `(() => {
  const all = [...document.querySelectorAll('a[href], button, input, select, textarea, [role="button"], [role="tab"]')];
  return all.filter((e) => {
    if (e.disabled || e.type === "hidden" || e.type === "file" || e.closest('[aria-hidden="true"], [inert]')) return false;
    if (e.type === "radio" && !e.checked) return false; // arrows go there from the one that is chosen
    if (e.tabIndex < 0 && e.closest('[role="combobox"], .mantine-NumberInput-root, .mantine-InputWrapper-root, .mantine-PasswordInput-root')) return false; // an ornament of its field
    return e.getClientRects().length > 0;
  });
})()`;

test("every link, button and field of every page is reached by the Tab key", async () => {
  const context = await newContext(browser);
  const page = await context.newPage();
  await logIn(page, node);
  const missed: string[] = [];
  for (const path of pages.filter((p) => p !== "api")) {
    await page.goto(`${node.url}/ui/${path}`);
    await settle(page);
    await page.evaluate(`{ window.toReach = new Set(${usable}); window.reached = new Set();
      document.addEventListener("focusin", (e) => window.reached.add(e.target)); document.body.focus(); }`);
    const n = (await page.evaluate("window.toReach.size")) as number;
    for (let i = 0; i < n + 30; i++) {
      await page.keyboard.press("Tab");
      if (i % 10 === 9 && (await page.evaluate("[...window.toReach].every((e) => window.reached.has(e) || !e.isConnected)"))) break;
    }
    const left = (await page.evaluate(
      "[...window.toReach].filter((e) => !window.reached.has(e) && e.isConnected).map((e) => e.outerHTML.slice(0, 120))",
    )) as string[];
    missed.push(...left.map((l) => `${path}: ${l}`));
  }
  expect(missed).toEqual([]);
  await context.close();
});

test("a topic is made, written to, found, opened and deleted without a mouse", async () => {
  const context = await newContext(browser);
  const page = await context.newPage();
  await logIn(page, node);
  const press = async (...keys: string[]) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  /** Goes on with Tab until what has the focus has this name. */
  const tabTo = async (name: string) => {
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press("Tab");
      const focused = (await page.evaluate(() => {
        const e = document.activeElement as HTMLInputElement | null;
        return e?.getAttribute("aria-label") ?? (e?.labels?.[0]?.textContent || e?.textContent) ?? "";
      })) as string;
      if (focused.replace(/ \*$/, "").trim() === name) return;
    }
    throw new Error(`Tab never came to ${name}`);
  };
  await press("Control+k");
  await page.getByPlaceholder("A topic, a page, or a record").waitFor();
  await page.keyboard.type("Create topic");
  await page
    .getByRole("button", { name: "Create topic" })
    .or(page.locator("[data-action]").filter({ hasText: "Create topic" }))
    .first()
    .waitFor();
  await press("ArrowDown", "Enter");
  await page.waitForURL("**/ui/topics/new");
  await tabTo("Name");
  await page.keyboard.type("by-keyboard");
  await page.getByText("The name is free").waitFor();
  await press("Enter");
  await page.waitForURL("**/ui/topics/by-keyboard/messages");
  await tabTo("Produce");
  await press("Enter");
  await page.waitForURL("**/by-keyboard/produce");
  await tabTo("Value");
  await page.keyboard.type("typed by keyboard");
  await tabTo("Send");
  await press("Enter");
  await page.getByText("1 record stored").waitFor();
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await press("g", "t");
  await page.waitForURL("**/ui/topics");
  await press("/");
  await page.keyboard.type("by-key");
  await page.waitForURL(/q=by-key/);
  await page.getByText("1 topic").waitFor();
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await press("j", "Enter");
  await page.waitForURL("**/ui/topics/by-keyboard/messages");
  await page.getByText("typed by keyboard").waitFor();
  await press("j", "Enter");
  await page.getByRole("dialog").getByText("typed by keyboard").waitFor();
  await press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await tabTo("Delete");
  await press("Enter");
  await page.getByLabel("Type by-keyboard to confirm").waitFor();
  await page.keyboard.type("by-keyboard");
  await press("Enter");
  await page.waitForURL("**/ui/topics");
  await page.getByText("Deleted: by-keyboard").waitFor();
  await context.close();
});
