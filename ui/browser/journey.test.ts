import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { binary, complaints, launch, newContext, TestNode, until } from "./node";

const pictures = process.env.PICTURES;
let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser?.close());

/** The flights of the test data, 20,000 record objects, one a line. */
function flights(node: TestNode): string {
  const file = join(node.dir, "flights.ndjson");
  writeFileSync(file, gunzipSync(readFileSync("../test/testdata/flights.ndjson.gz")));
  return file;
}

/** Runs the command line client as the administrator. */
function cli(node: TestNode, base: string, input: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH ?? "", HOME: node.dir };
  execFileSync(binary, ["login", base, "--username", "admin", "--password-stdin"], { input: "an admin's password", env });
  return execFileSync(binary, args, { input, env }).toString();
}

async function picture(page: Page, name: string) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

for (const prefix of ["", "/x/y"])
  test(`from an empty folder to a deleted topic, in the browser alone${prefix && `, under ${prefix}/`}`, async () => {
    const node = new TestNode(prefix ? ["--http-path-prefix", prefix] : []);
    const context = await newContext(browser);
    const page = await context.newPage();
    const found = complaints(page);
    try {
      await node.start(prefix);
      await journey(page, node, node.url + prefix);
      expect(found).toEqual([]);
    } catch (error) {
      await picture(page, `failed${prefix.replaceAll("/", "-")}`);
      throw error;
    } finally {
      await context.close();
      await node.remove();
    }
  });

const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name, exact: typeof name === "string" });

async function journey(page: Page, node: TestNode, base: string) {
  // Setup.
  await page.goto(node.setupAddress());
  await page.getByLabel("Password", { exact: true }).fill("an admin's password");
  await button(page, "Create the administrator").click();
  await page.waitForURL(`${base}/ui/overview`);
  await page.getByText("Healthy").waitFor();
  await page.getByText("Three steps to begin").waitFor();

  // A topic, by the steps' link; a name that is taken or bad is told before anything is sent.
  await page.getByRole("link", { name: "Create topic" }).click();
  await page.getByLabel("Name", { exact: true }).fill("no spaces");
  await page.getByText("Only letters, digits, dot, dash and underscore").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("flights");
  await page.getByText("The name is free").waitFor();
  await page.getByLabel("Partitions", { exact: true }).fill("2");
  await page.getByText("tidewire topic create flights --partitions 2").waitFor();
  await button(page, "Create topic").click();
  await page.waitForURL(`${base}/ui/topics/flights/messages`);
  await page.getByText("No records here").waitFor();

  await produceByForm(page);
  await upload(page, node);
  await searchAndResend(page, base);
  await watch(page, node, base);
  await readAsGroup(page, base);
  await changeRetention(page);
  await makeReader(page);
  await readOnly(page, base);
  await remove(page, base);
}

async function tab(page: Page, name: string) {
  await page.getByRole("navigation", { name: "flights" }).getByRole("link", { name }).click();
}

async function produceByForm(page: Page) {
  await tab(page, "Produce");
  await page.getByLabel("Key", { exact: true }).fill("first");
  await page.getByLabel("Value", { exact: true }).fill('{"big": 12345678901234567890, "html": "<img src=x onerror=alert(1)>"}');
  await button(page, "Send").click();
  const link = page.getByRole("link", { name: /^\d:0$/ });
  await link.waitFor();
  await link.click();
  const drawer = page.getByRole("dialog");
  await drawer.getByText("12345678901234567890").waitFor();
  await drawer.getByText("<img src=x onerror=alert(1)>").waitFor();
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "hidden" });
}

async function upload(page: Page, node: TestNode) {
  await tab(page, "Produce");
  await page.locator('input[type="file"]').setInputFiles(flights(node));
  await button(page, "Upload").click();
  await page.getByText("20,000 records stored, 0 refused.").waitFor();
}

async function searchAndResend(page: Page, base: string) {
  await tab(page, "Messages");
  await page.getByRole("table", { name: "Messages" }).waitFor();
  await page.getByLabel("Search records for text").fill("PHX");
  await button(page, "Search").click();
  await page.waitForURL(/q=PHX/);
  await page.getByText(/Scanned \d+ records/).waitFor();
  const rows = page.getByRole("table", { name: "Messages" }).getByRole("row");
  await until(async () => (await rows.count()) > 1);
  // The link of a row leads to the record, which the address then names.
  await rows.nth(1).getByRole("link").click();
  const drawer = page.getByRole("dialog");
  await drawer.getByRole("link", { name: "Send again" }).waitFor();
  await page.waitForURL(/open=/);
  expect(await drawer.textContent()).toContain("PHX");
  await picture(page, "journey-drawer");
  await drawer.getByRole("link", { name: "Send again" }).click();
  await page.waitForURL(new RegExp(`^${base}/ui/topics/flights/produce\\?from=`));
  await until(async () => (await page.getByLabel("Value", { exact: true }).inputValue()).includes("PHX"));
  await button(page, "Send").click();
  await page.getByText("1 record stored").waitFor();
}

async function watch(page: Page, node: TestNode, base: string) {
  await page.goto(`${base}/ui/topics/flights/messages?seek=live`);
  await page.getByText("live", { exact: true }).waitFor();
  cli(node, base, '{"key":"cli","value":"from the command line"}\n', "produce", "flights");
  await page.getByText("from the command line").waitFor();
  await button(page, "Pause").click();
  cli(node, base, '{"key":"cli","value":"while paused"}\n', "produce", "flights");
  await button(page, "Resume (+1 new)").waitFor();
  expect(await page.getByText("while paused").count()).toBe(0);
  await button(page, "Resume (+1 new)").click();
  await page.getByText("while paused").waitFor();
}

/** A group by the sample consumer, its lag, and a reset: the plan first. */
async function readAsGroup(page: Page, base: string) {
  await tab(page, "Groups");
  await page.getByText("No group reads this topic").waitFor();
  await page.getByLabel("Group", { exact: true }).fill("kitchen");
  await page.getByText("--group=kitchen").or(page.getByText("/v1/groups/kitchen/members")).first().waitFor();
  await button(page, "Run it here").click();
  await page.getByText("100 records read and committed.").waitFor();
  await page.getByRole("link", { name: "See group kitchen" }).click();
  await page.waitForURL(`${base}/ui/groups/kitchen`);
  await page.getByText("lag 19,904").waitFor();
  await picture(page, "journey-group");
  await button(page, "Reset offsets").click();
  const dialog = page.getByRole("dialog");
  await button(page, "Show the plan").click();
  await dialog.getByText(/100 records come again, 0 are passed over/).waitFor();
  await picture(page, "journey-reset");
  const move = dialog.getByRole("button", { name: /^Move \d offsets?$/ });
  expect(await move.isDisabled()).toBe(true);
  await dialog.getByLabel("Type kitchen to confirm").fill("kitchen");
  await move.click();
  await page.getByText("lag 20,004").waitFor();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Topics" }).click();
  await page.waitForURL(`${base}/ui/topics`);
  await page.getByRole("link", { name: "flights" }).click();
}

async function changeRetention(page: Page) {
  await tab(page, "Settings");
  await page.getByLabel("Search settings").fill("retention.ms");
  await button(page, "Edit retention.ms").click();
  await page.getByRole("textbox", { name: "retention.ms", exact: true }).fill("3600000");
  await button(page, "Review changes").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("604800000").waitFor();
  await dialog.getByText("3600000").waitFor();
  await button(page, "Save 1 change").click();
  await page.getByText("Saved: retention.ms").waitFor();
  await page.getByText("set on the topic").waitFor();
}

async function makeReader(page: Page) {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Access" }).click();
  await button(page, "Create user").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("User name").fill("reader");
  await dialog.getByLabel("Password", { exact: true }).fill("a reader's password");
  await dialog.getByRole("button", { name: "Create user" }).click();
  await page.getByRole("link", { name: "reader" }).click();
  await page.getByText("No rules").waitFor();
  await button(page, "Add a rule").click();
  const rule = page.getByRole("dialog");
  expect(await rule.getByLabel("User", { exact: true }).inputValue()).toBe("User:reader");
  await rule.getByLabel("Name", { exact: true }).fill("flights");
  await rule.getByRole("button", { name: "Add a rule" }).click();
  await page.getByRole("cell", { name: "User:reader", exact: true }).waitFor();
  await picture(page, "journey-rules");
}

async function logIn(page: Page, username: string, password: string) {
  await page.getByLabel("User name").fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await button(page, "Log in").click();
}

async function logOut(page: Page, username: string) {
  await button(page, `User ${username}`).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await page.waitForURL(/\/ui\/login/);
}

async function readOnly(page: Page, base: string) {
  await logOut(page, "admin");
  await page.goto(`${base}/ui/topics/flights/messages`);
  await page.waitForURL(/\/ui\/login\?to=/);
  await logIn(page, "reader", "not it");
  await page.getByText("User name or password is wrong.").waitFor();
  await logIn(page, "reader", "a reader's password");
  await page.waitForURL(`${base}/ui/topics/flights/messages`);
  await page.getByRole("table", { name: "Messages" }).waitFor();
  // What the reader may not do is there, disabled, and says why.
  const remove = button(page, "Delete");
  expect(await remove.getAttribute("aria-disabled")).toBe("true");
  expect(await remove.getAttribute("data-reason")).toContain("delete on topic:flights");
  await remove.click({ force: true });
  expect(await page.getByRole("dialog").count()).toBe(0);
  await tab(page, "Produce");
  expect(await button(page, "Send").getAttribute("data-reason")).toContain("write on topic:flights");
  await tab(page, "Settings");
  await page.getByText("You may not do this").waitFor();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Access" }).click();
  expect(await button(page, "Create user").getAttribute("data-reason")).toContain("administrators");
  await picture(page, "journey-reader");
  await logOut(page, "reader");
}

async function remove(page: Page, base: string) {
  await logIn(page, "admin", "an admin's password");
  await page.waitForURL(`${base}/ui/overview`);
  await page.goto(`${base}/ui/topics/flights/messages`);
  await button(page, "Delete").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/20,004 records/).waitFor();
  const confirm = dialog.getByRole("button", { name: "Delete" });
  expect(await confirm.isDisabled()).toBe(true);
  await dialog.getByLabel("Type flights to confirm").fill("flight");
  expect(await confirm.isDisabled()).toBe(true);
  await dialog.getByLabel("Type flights to confirm").fill("flights");
  await confirm.click();
  await page.waitForURL(`${base}/ui/topics`);
  await page.getByText("No topics yet").waitFor();
}
