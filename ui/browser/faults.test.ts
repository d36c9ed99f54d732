import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask, complaints, launch, logIn, newContext, TestNode, until } from "./node";

const node = new TestNode(["--dev"]);
let browser: Browser;
let token = "";

async function newToken(username = "admin", password = "tidewire"): Promise<string> {
  const answer = await ask(node, "POST", "/v1/auth/login", undefined, { username, password });
  return ((await answer.json()) as { access_token: string }).access_token;
}

beforeAll(async () => {
  await node.start();
  browser = await launch();
  token = await newToken();
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

async function open(path: string, username?: string, password?: string): Promise<Page> {
  const context = await newContext(browser);
  const page = await context.newPage();
  await logIn(page, node, username, password);
  await page.goto(`${node.url}/ui/${path}`);
  return page;
}

test("a session that ends keeps what was typed, and the request goes through after the login", async () => {
  const page = await open("topics/new");
  const found = complaints(page);
  await page.getByLabel("Name", { exact: true }).fill("typed-before");
  await page.getByLabel("Partitions", { exact: true }).fill("3");
  await page.getByText("The name is free").waitFor();
  await page.context().clearCookies();
  await page.getByRole("button", { name: "Create topic", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Your session has ended" });
  await dialog.waitFor();
  expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("typed-before");
  await dialog.getByLabel("Password", { exact: true }).fill("tidewire");
  await dialog.getByRole("button", { name: "Log in", exact: true }).click();
  await page.waitForURL("**/ui/topics/typed-before/messages");
  const made = (await (await ask(node, "GET", "/v1/topics/typed-before", token)).json()) as { partitions: unknown[] };
  expect(made.partitions).toHaveLength(3);
  expect(found).toEqual([]);
  await page.context().close();
});

test("two people edit one topic's settings: the second sees the first's change beside theirs, and neither loses one", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "shared" });
  const page = await open("topics/shared/config?q=ms");
  const edit = async (name: string, value: string) => {
    await page.getByRole("button", { name: `Edit ${name}`, exact: true }).click();
    await page.getByRole("textbox", { name, exact: true }).fill(value);
  };
  await edit("retention.ms", "3600000");
  await edit("segment.ms", "7200000");
  await ask(node, "PATCH", "/v1/topics/shared/config", token, { set: { "retention.ms": "86400000", "max.compaction.lag.ms": "5000000" } });
  // One key alone is saved; the other stays staged.
  await page.getByRole("button", { name: "Save retention.ms", exact: true }).click();
  const dialog = page.getByRole("dialog");
  const row = dialog.getByRole("row").filter({ hasText: "retention.ms" });
  await row.getByText("604800000").waitFor();
  await row.getByText("86400000", { exact: true }).waitFor();
  await row.getByText("3600000", { exact: true }).waitFor();
  await dialog.getByRole("row").filter({ hasText: "max.compaction.lag.ms" }).getByText("not touched").waitFor();
  await dialog.getByRole("button", { name: "Save mine over it" }).click();
  await page.getByText("Saved: retention.ms").waitFor();
  await page.getByText("1 change is not saved yet").waitFor();
  const config = (await (await ask(node, "GET", "/v1/topics/shared/config", token)).json()) as {
    items: { name: string; value: string; source: string }[];
  };
  const set = Object.fromEntries(config.items.filter((i) => i.source === "topic").map((i) => [i.name, i.value]));
  expect(set).toEqual({ "retention.ms": "3600000", "max.compaction.lag.ms": "5000000" });
  await page.context().close();
});

test("a live tail goes on after the node was restarted, and ends with its reason when the right is taken away", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "tailed" });
  await ask(node, "POST", "/v1/users", token, { username: "watcher", password: "password1" });
  const rule = { principal: "User:watcher", resource_type: "topic", resource_name: "tailed", operation: "read", permission: "allow" };
  await ask(node, "POST", "/v1/acls", token, rule);
  const page = await open("topics/tailed/messages?seek=live", "watcher", "password1");
  await page.getByText("live", { exact: true }).waitFor();
  const send = (value: string) => ask(node, "POST", "/v1/topics/tailed/records", token, { records: [{ value }] });
  await send("before the restart");
  await page.getByText("before the restart").waitFor();
  await node.stop();
  await page.getByText("reconnecting", { exact: true }).waitFor();
  await node.start();
  token = await newToken();
  await send("after the restart");
  await page.getByText("after the restart").waitFor({ timeout: 30_000 });
  expect(await page.getByText("before the restart").count()).toBe(1);
  await ask(node, "DELETE", `/v1/acls?${new URLSearchParams(rule)}`, token);
  await page.getByText("The stream ended:").waitFor();
  await until(async () => (await page.getByRole("alert").textContent())?.includes("tailed") ?? false);
  await page.context().close();
});

test("a page that cannot be reached keeps its rows, says so, and goes on by itself", async () => {
  const page = await open("topics");
  await page.getByRole("link", { name: "shared" }).waitFor();
  await node.stop();
  await page.getByText("The node does not answer. What you see may be old").waitFor({ timeout: 30_000 });
  expect(await page.getByRole("link", { name: "shared" }).count()).toBe(1);
  await node.start();
  await page.getByText("The node does not answer. What you see may be old").waitFor({ state: "hidden", timeout: 60_000 });
  await page.context().close();
});
