import { readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask, complaints, launch, logIn, Middleman, newContext, TestNode, until } from "./node";

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

async function open(path: string, username?: string, password?: string, at: { url: string } = node): Promise<Page> {
  const context = await newContext(browser);
  const page = await context.newPage();
  await logIn(page, at, username, password);
  await page.goto(`${at.url}/ui/${path}`);
  return page;
}

/** A user who may do some things to a topic; tells how to take one of the rights away, and to give it back. */
async function makeUser(username: string, topic: string, ...operations: string[]) {
  await ask(node, "POST", "/v1/users", token, { username, password: "password1" });
  const rule = (operation: string) => ({
    principal: `User:${username}`,
    resource_type: "topic",
    resource_name: topic,
    operation,
    permission: "allow",
  });
  const give = (operation: string) => ask(node, "POST", "/v1/acls", token, rule(operation));
  for (const operation of operations) await give(operation);
  return { give, take: (operation: string) => ask(node, "DELETE", `/v1/acls?${new URLSearchParams(rule(operation))}`, token) };
}

const send = (topic: string, value: string, more: object = {}) =>
  ask(node, "POST", `/v1/topics/${topic}/records`, token, { records: [{ value, ...more }] });

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
  await until(async () => (await page.getByRole("alert").first().textContent())?.includes("tailed") ?? false);
  // The right comes back, and with it what was written meanwhile.
  await ask(node, "POST", "/v1/acls", token, rule);
  await send("while it was barred");
  await page.getByText("while it was barred").waitFor({ timeout: 30_000 });
  expect(await page.getByText("The stream ended:").count()).toBe(0);
  await page.context().close();
});

test("a node that goes and comes back is missed by every page, which keep rows and drafts, and go on by themselves", async () => {
  const page = await open("topics");
  await page.getByRole("link", { name: "shared" }).waitFor();
  const form = await page.context().newPage();
  await form.goto(`${node.url}/ui/topics/shared/produce`);
  await form.getByLabel("Value", { exact: true }).fill("typed before it went");
  await node.stop("SIGKILL");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByRole("alert").first().waitFor({ timeout: 30_000 });
  expect(await form.getByLabel("Value", { exact: true }).inputValue()).toBe("typed before it went");
  await page.getByText("The node does not answer. What you see may be old").waitFor({ timeout: 30_000 });
  expect(await page.getByRole("link", { name: "shared" }).count()).toBe(1);
  await node.start();
  token = await newToken();
  for (const tab of [page, form])
    await tab.getByText("The node does not answer. What you see may be old").waitFor({ state: "hidden", timeout: 60_000 });
  expect(await form.getByLabel("Value", { exact: true }).inputValue()).toBe("typed before it went");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByText("1 record stored").waitFor();
  await page.context().close();
});

test("a session that an administrator ends keeps the page, the draft and the tail, and both go on after the login", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "revoked" });
  await makeUser("ada", "revoked", "read", "write");
  const page = await open("topics/revoked/messages?seek=live", "ada", "password1");
  await page.getByText("live", { exact: true }).waitFor();
  const form = await page.context().newPage();
  await form.goto(`${node.url}/ui/topics/revoked/produce`);
  await form.getByLabel("Value", { exact: true }).fill("a long draft");
  await ask(node, "POST", "/v1/users/ada/set-password", token, { password: "password2" });
  for (const tab of [page, form]) await tab.getByRole("dialog", { name: "Your session has ended" }).waitFor({ timeout: 30_000 });
  expect(await form.getByLabel("Value", { exact: true }).inputValue()).toBe("a long draft");
  const dialog = form.getByRole("dialog");
  await dialog.getByLabel("Password", { exact: true }).fill("password2");
  await dialog.getByRole("button", { name: "Log in", exact: true }).click();
  // One login is enough for both tabs.
  for (const tab of [page, form]) await tab.getByRole("dialog").waitFor({ state: "hidden", timeout: 30_000 });
  await page.getByText("live", { exact: true }).waitFor();
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByText("1 record stored").waitFor();
  await page.getByText("a long draft").waitFor();
  await page.context().close();
});

test("a right that is taken away while the form is open says so, keeps the draft, and is used again when it is back", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "rights" });
  const rights = await makeUser("ben", "rights", "read", "write");
  const page = await open("topics/rights/produce", "ben", "password1");
  await page.getByLabel("Value", { exact: true }).fill("a draft of Ben's");
  await rights.take("write");
  const button = page.getByRole("button", { name: "Send", exact: true });
  await until(async () => (await button.getAttribute("data-reason")) !== null);
  expect(await button.getAttribute("data-reason")).toContain("write on topic:rights");
  expect(await page.getByLabel("Value", { exact: true }).inputValue()).toBe("a draft of Ben's");
  await rights.give("write");
  await until(async () => (await button.getAttribute("data-reason")) === null);
  // Taken away just before the click: the node's answer says it.
  await page.route("**/records**", async (route) => {
    if (route.request().method() === "POST") await rights.take("write");
    await route.continue();
  });
  await button.click();
  await page.getByRole("alert").getByText("You may not do this").waitFor();
  expect(await page.getByLabel("Value", { exact: true }).inputValue()).toBe("a draft of Ben's");
  await page.unroute("**/records**");
  await rights.give("write");
  await until(async () => (await button.getAttribute("data-reason")) === null);
  await button.click();
  await page.getByText("1 record stored").waitFor();
  await page.context().close();
});

test("a proxy that cuts WebSockets costs no record of a tail", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "cut", partitions: 2 });
  const proxy = new Middleman(node, "cut");
  await proxy.start();
  const page = await open("topics/cut/messages?seek=live", undefined, undefined, proxy);
  await page.getByText("live", { exact: true }).waitFor();
  await page.getByLabel("Search records for text").fill("typed and not looked for yet");
  for (let i = 0; i < 4; i++) {
    await send("cut", `before-${i}`, { partition: i % 2 });
    await page.getByText(`before-${i}`).waitFor();
    proxy.cut();
    await send("cut", `between-${i}`, { partition: i % 2 });
    await page.getByText(`between-${i}`).waitFor();
  }
  for (let i = 0; i < 4; i++) for (const word of ["before", "between"]) expect(await page.getByText(`${word}-${i}`).count()).toBe(1);
  expect(proxy.sockets).toBeGreaterThanOrEqual(5);
  await page.getByText("live", { exact: true }).waitFor();
  expect(await page.getByLabel("Search records for text").inputValue()).toBe("typed and not looked for yet");
  proxy.stop();
  await page.context().close();
});

test("through a proxy that knows no WebSockets the tail comes by HTTP", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "plain" });
  const proxy = new Middleman(node, "refuse");
  await proxy.start();
  const page = await open("topics/plain/messages?seek=live", undefined, undefined, proxy);
  await page.getByText("live", { exact: true }).waitFor();
  expect(proxy.sockets).toBeGreaterThanOrEqual(2);
  await send("plain", "by events");
  await page.getByText("by events").waitFor();
  proxy.stop();
  await page.context().close();
});

test("a browser whose clock is a day ahead is told so, and shows times and asks for them by the node's clock", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "late" });
  await send("late", "just now");
  const context = await newContext(browser);
  await context.addInitScript(() => {
    const Real = Date;
    Object.assign(window, { ahead: 86_400_000 });
    const ahead = () => (window as unknown as { ahead: number }).ahead;
    window.Date = class extends Real {
      constructor(...args: []) {
        if (args.length === 0) super(Real.now() + ahead());
        else super(...args);
      }
      static now() {
        return Real.now() + ahead();
      }
    } as DateConstructor;
    localStorage.setItem("tidewire.time", "relative");
  });
  const page = await context.newPage();
  await logIn(page, node);
  await page.goto(`${node.url}/ui/topics/late/messages`);
  await page.getByText("The clock of this browser is off by 1 d").waitFor();
  const row = page.getByRole("table", { name: "Messages" }).getByRole("row").nth(1);
  await until(async () => /(\d+ (min|s)|now)/.test((await row.getByRole("time").textContent()) ?? ""));
  expect(await row.getByRole("time").textContent()).not.toContain("d");
  await page.getByText("Time", { exact: true }).first().click();
  await page.waitForURL(/time=\d+/);
  const asked = Number(new URL(page.url()).searchParams.get("time"));
  expect(Math.abs(Date.now() - 3_600_000 - asked)).toBeLessThan(120_000);
  await page.getByText("just now").waitFor();
  await page.getByLabel("Search records for text").fill("typed by a wrong clock");
  await page.evaluate("window.ahead = 0");
  await page.getByText("The clock of this browser is off by").waitFor({ state: "hidden", timeout: 30_000 });
  expect(await page.getByLabel("Search records for text").inputValue()).toBe("typed by a wrong clock");
  await context.close();
});

test("a damaged partition says what is wrong with it, the others go on, and it is healthy when its file is back", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "hurt", partitions: 2 });
  for (const partition of [0, 1]) for (let i = 0; i < 20; i++) await send("hurt", `of ${partition}: ${i}`, { partition });
  const page = await open("topics/hurt/partitions");
  await page.getByText("healthy", { exact: true }).first().waitFor();
  await node.stop();
  const data = join(node.dir, "data");
  const file = readdirSync(data, { recursive: true, encoding: "utf8" }).find((f) => /hurt-0\/.*\.log$/.test(f));
  if (!file) throw new Error("no log of hurt-0");
  const whole = readFileSync(join(data, file));
  truncateSync(join(data, file), Math.floor(whole.length / 2));
  await node.start();
  token = await newToken();
  // The page that was open follows by itself.
  await page.getByText("offline", { exact: true }).first().waitFor({ timeout: 30_000 });
  const row = page.getByRole("row").nth(1);
  await until(async () => ((await row.textContent()) ?? "").length > 20);
  // What is written to it is refused, and stays in the form until it is whole again.
  const form = await page.context().newPage();
  await form.goto(`${node.url}/ui/topics/hurt/produce`);
  await form.getByLabel("Value", { exact: true }).fill("for the damaged one");
  await form.getByLabel("Partition", { exact: true }).fill("0");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByRole("alert").first().waitFor({ timeout: 60_000 });
  await page.goto(`${node.url}/ui/topics/hurt/messages?seek=offset&partition=1&offset=0`);
  await page.getByText("of 1: 19").waitFor();
  await page.goto(`${node.url}/ui/topics/hurt/messages?seek=offset&partition=0&offset=0`);
  await page.getByRole("alert").first().waitFor();
  await node.stop();
  writeFileSync(join(data, file), whole);
  await node.start();
  token = await newToken();
  await page.getByText("healthy", { exact: true }).first().waitFor({ timeout: 30_000 });
  await page
    .getByRole("button", { name: /Try again|Refresh/ })
    .first()
    .click();
  await page.getByText("of 0: 19").waitFor();
  expect(await form.getByLabel("Value", { exact: true }).inputValue()).toBe("for the damaged one");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByText("1 record stored").waitFor();
  await page.context().close();
});

test("a partition without leader leaves the rest of its topic in sight, and the draft in the form", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "headless", partitions: 2 });
  const page = await open("topics/headless/partitions");
  await page.getByText("healthy", { exact: true }).first().waitFor();
  // As a cluster answers while the only replica of partition 1 is away.
  const problem = {
    type: "about:blank",
    title: "Leader unavailable",
    status: 503,
    code: "leader-unavailable",
    detail: "partition 1 of headless has no leader",
  };
  await page.route(/\/v1\/topics\/headless(\?|$)/, async (route) => {
    const answer = await route.fetch();
    const body = (await answer.json()) as { health: string; partitions: object[] };
    body.health = "offline";
    body.partitions[1] = {
      ...body.partitions[1],
      leader: null,
      isr: [],
      log_start_offset: null,
      high_watermark: null,
      last_stable_offset: null,
      log_end_offset: null,
      size_bytes: null,
      segments: null,
      replica_states: null,
      error: problem,
    };
    await route.fulfill({ response: answer, json: body });
  });
  await page.route(/\/v1\/topics\/headless\/records/, (route) =>
    route.request().method() === "POST"
      ? route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify(problem) })
      : route.continue(),
  );
  await page.getByText("offline", { exact: true }).first().waitFor();
  await page.getByText("no leader", { exact: true }).waitFor();
  await page.getByText(problem.detail).waitFor();
  await page.getByRole("link", { name: "0", exact: true }).waitFor();
  await page.getByRole("navigation", { name: "headless" }).getByRole("link", { name: "Produce" }).click();
  await page.getByLabel("Value", { exact: true }).fill("kept");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByRole("alert").getByText(problem.detail).waitFor({ timeout: 30_000 });
  expect(await page.getByLabel("Value", { exact: true }).inputValue()).toBe("kept");
  await page.unrouteAll();
  await page.getByText("healthy", { exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("1 record stored").waitFor();
  await page.context().close();
});
