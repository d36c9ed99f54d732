import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { axe, findings } from "./audit";
import { TestCluster } from "./cluster";
import { complaints, launch, logIn, newContext, until } from "./node";
import { picture, pictures, settle } from "./world";

const cluster = new TestCluster();
let browser: Browser;
let page: Page;
let found: string[] = [];

beforeAll(async () => {
  await cluster.start();
  await cluster.call("POST", "/v1/topics", {
    name: "flights",
    partitions: 3,
    replication_factor: 3,
    config: { "min.insync.replicas": "2" },
  });
  const records = Array.from({ length: 60 }, (_, i) => ({ key: `k${i}`, value: `v${i}`, partition: i % 3 }));
  await cluster.call("POST", "/v1/topics/flights/records", { records });
  browser = await launch();
  page = await (await newContext(browser)).newPage();
  found = complaints(page);
  await logIn(page, cluster.node(1));
});
afterAll(async () => {
  await browser?.close();
  await cluster.remove();
});

// What stood in the page when a test failed.
afterEach(async ({ task }) => {
  if (pictures && task.result?.state === "fail") await page.screenshot({ path: join(pictures, `failed ${task.name.slice(0, 40)}.png`) });
});

const paths = ["overview", "nodes", "nodes/1", "nodes/3", "replication", "topics/flights/partitions"];

const at = (path: string) => `${cluster.node(1).url}/ui/${path}`;
async function open(path: string) {
  await page.goto(at(path));
  await settle(page);
}
const says = (text: string | RegExp) => page.getByRole("status").filter({ hasText: text }).first().waitFor({ timeout: 30_000 });
const row = (text: string | RegExp) => page.getByRole("row").filter({ hasText: text });

/** Pages in both themes and on a telephone: what axe finds, and what is too wide. Pictures also in Chinese. */
async function look(state: string, at = paths): Promise<void> {
  const wrong: string[] = [];
  for (const path of at) {
    await open(path);
    await page.evaluate(axe);
    for (const scheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.waitForFunction((s) => document.documentElement.dataset.mantineColorScheme === s, scheme);
      await page.evaluate(() => Promise.allSettled(document.getAnimations().map((a) => a.finished)));
      wrong.push(...(await findings(page)).map((w) => `${scheme} ${path}: ${w}`));
      await picture(page, `cluster ${state} ${scheme} ${path}`);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await settle(page);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > 390) wrong.push(`${path} is ${width} px wide on a telephone`);
    await picture(page, `cluster ${state} narrow ${path}`);
    if (pictures) {
      await page.evaluate(() => localStorage.setItem("tidewire.language", "zh-CN"));
      await open(path);
      await picture(page, `cluster ${state} narrow zh ${path}`);
      await page.setViewportSize({ width: 1280, height: 800 });
      await picture(page, `cluster ${state} zh ${path}`);
      await page.evaluate(() => localStorage.setItem("tidewire.language", "en"));
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.emulateMedia({ colorScheme: "light" });
  }
  expect(wrong).toEqual([]);
}

test("a whole cluster is shown as one: its nodes, who controls it, and each replica with its log end", async () => {
  await cluster.whole();
  await open("overview");
  await says("Healthy");
  await page.getByText("3 / 3").waitFor();
  const { controller } = await cluster.state();
  await page
    .getByRole("link", { name: `Node ${controller}`, exact: true })
    .first()
    .waitFor();
  await open("nodes");
  await until(async () => (await row("online").count()) === 3);
  expect(await row("controller").count()).toBe(1);
  expect(await row("voter").count()).toBe(2);
  expect(await page.getByText(/[KMGT]iB of /).count()).toBe(3);
  await open("replication");
  for (const none of ["Every partition has a leader that can be reached.", "Every partition has the replicas", "No other partition lacks"])
    await page.getByText(none).waitFor();
  await open("topics/flights/partitions");
  await until(async () => (await page.getByText("end 20 · lag 0").count()) === 9);
  expect(await page.getByText("leader", { exact: true }).count()).toBe(3);
  await look("whole", pictures ? paths : ["nodes"]);
  // What another node has measured comes through the one that answers.
  const answered = page.waitForResponse((r) => r.url().includes("/v1/brokers/3/metrics/history"));
  await open("nodes/3");
  expect((await answered).status()).toBe(200);
  await page.getByRole("link", { name: "All that it measured" }).click();
  await page.waitForURL(/metrics\?node=3/);
  await until(async () => (await page.getByRole("combobox", { name: "Node that measured" }).inputValue()) === "Node 3");
  await page.getByText("Partitions").or(page.getByText("Memory")).first().waitFor();
});

test("a node that is killed is missed on every page, and the pages recover by themselves when it is back", async () => {
  await open("overview");
  await cluster.node(3).stop("SIGKILL");
  await says("not online");
  await says(/under-replicated on node 3/);
  await page.getByText("2 / 3").waitFor();
  await open("nodes");
  await row("offline").waitFor();
  expect(await row("offline").textContent()).toContain("not in sync");
  await open("nodes/3");
  await says("cannot reach this node");
  await row(/flights:0/)
    .getByText("under-replicated")
    .waitFor();
  await open("replication");
  const under = page.getByRole("region", { name: "Under-replicated" }).first();
  await until(async () => (await under.getByRole("row").filter({ hasText: "flights:" }).count()) === 3, 30_000);
  await open("topics/flights/partitions");
  await until(async () => (await page.getByText("not in sync", { exact: true }).count()) === 3, 30_000);
  // The others go on, and the page tells how far behind the one is that has gone.
  const meanwhile = [0, 1, 2].map((partition) => ({ value: "meanwhile", partition }));
  await cluster.call("POST", "/v1/topics/flights/records", { records: meanwhile });
  await page.getByText("end 20 · lag 1").first().waitFor({ timeout: 30_000 });
  await look("one away");
  await open("topics/flights/partitions");
  await cluster.node(3).start();
  await until(async () => (await page.getByText("end 21 · lag 0").count()) === 9, 60_000);
  await until(async () => (await page.getByText("not in sync", { exact: true }).count()) === 0, 30_000);
  await open("overview");
  await says("Healthy");
});

test("a lost quorum is said plainly, what was typed stays, and it is made when the quorum is back", async () => {
  await open("topics/new");
  await page.getByLabel("Name", { exact: true }).fill("typed-before");
  await page.getByLabel("Partitions", { exact: true }).fill("3");
  await page.getByText("The name is free").waitFor();
  await Promise.all([2, 3].map((id) => cluster.node(id).stop("SIGKILL")));
  await says("The quorum is lost: 1 of 3 voting nodes can be reached, 2 are needed.");
  await page.getByRole("button", { name: "Create topic", exact: true }).click();
  await page.getByRole("alert").getByText("The cluster has no quorum").waitFor({ timeout: 30_000 });
  expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("typed-before");
  expect(await page.getByLabel("Partitions", { exact: true }).inputValue()).toBe("3");
  // Another tab looks around meanwhile.
  const form = page;
  page = await form.context().newPage();
  const foundThere = complaints(page);
  await open("overview");
  await says("The quorum is lost");
  await page.getByText("1 / 3").waitFor();
  await open("nodes");
  await until(async () => (await row("offline").count()) === 2);
  await look("no quorum", pictures ? ["overview", "nodes", "replication"] : ["overview"]);
  await Promise.all([2, 3].map((id) => cluster.node(id).start()));
  await open("overview");
  await says("Healthy");
  await page.close();
  page = form;
  found.push(...foundThere);
  await page.getByText("The quorum is lost").waitFor({ state: "hidden", timeout: 30_000 });
  await page.getByRole("button", { name: "Create topic", exact: true }).click();
  await page.waitForURL("**/ui/topics/typed-before/messages");
  // The browser itself logs what was answered with 503 while the quorum was lost.
  expect(found.filter((line) => !/Failed to load resource: .* status of 50[34]/.test(line))).toEqual([]);
});
