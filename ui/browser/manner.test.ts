import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { complaints, launch, logIn, newContext, TestNode, until } from "./node";
import { fillNode, pages, picture, pictures, settle } from "./world";

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

test("no page is wider than a telephone, and none complains of anything there", async () => {
  const context = await newContext(browser, { viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  const found = complaints(page);
  await logIn(page, node);
  const wrong: string[] = [];
  for (const path of pages) {
    await page.goto(`${node.url}/ui/${path}`);
    await settle(page);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > 390) wrong.push(`${path} is ${width} px wide`);
    wrong.push(...found.splice(0).map((w) => `${path}: ${w}`));
    await picture(page, `narrow ${path}`);
  }
  expect(wrong).toEqual([]);
  await context.close();
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
      await page.setViewportSize({ width: 390, height: 844 });
      await page.emulateMedia({ colorScheme: "dark" });
      await settle(page);
      await picture(page, `zh narrow dark ${path}`);
      await page.emulateMedia({ colorScheme: "light" });
      await page.setViewportSize({ width: 1280, height: 800 });
    }
  expect(found).toEqual([]);
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
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await press("Control+k");
  await page.getByPlaceholder("A topic, a page, or a record").waitFor();
  await page.keyboard.type("Create topic");
  const actions = page.locator("[data-action]");
  await until(async () => (await actions.count()) === 1 && ((await actions.first().textContent()) ?? "").includes("Create topic"));
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
  await page.getByLabel("Value", { exact: true }).first().waitFor();
  await tabTo("Value");
  await page.keyboard.type("typed by keyboard");
  await tabTo("Send");
  await press("Enter");
  await page.getByText("1 record stored").waitFor();
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await press("g", "t");
  await page.locator("[data-search]").waitFor();
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
