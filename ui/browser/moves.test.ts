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

const slow = 64 * 1024; // bytes a second
const throttle = (bytes: number) => cluster.call("POST", "/v1/reassignments", { moves: [], throttle_bytes_per_s: bytes });

interface Place {
  leader: number | null;
  replicas: number[];
  isr: number[];
  adding: number[];
}
const places = async (topic: string) => (await cluster.call<{ partitions: Place[] }>("GET", `/v1/topics/${topic}`)).partitions;

beforeAll(async () => {
  await cluster.start();
  await cluster.call("POST", "/v1/topics", { name: "cargo", partitions: 2, replication_factor: 1 });
  await cluster.call("POST", "/v1/topics", { name: "flights", partitions: 3, replication_factor: 3 });
  const value = "x".repeat(100_000);
  const records = Array.from({ length: 20 }, (_, i) => ({ partition: i % 2, value }));
  for (let i = 0; i < 2; i++) await cluster.call("POST", "/v1/topics/cargo/records", { records });
  browser = await launch();
  page = await (await newContext(browser)).newPage();
  found = complaints(page);
  await logIn(page, cluster.node(1));
});
afterAll(async () => {
  await browser?.close();
  await cluster.remove();
});

afterEach(async ({ task }) => {
  if (pictures && task.result?.state === "fail") await page.screenshot({ path: join(pictures, `failed ${task.name.slice(0, 40)}.png`) });
});

const open = async (path: string) => {
  await page.goto(`${cluster.node(1).url}/ui/${path}`);
  await settle(page);
};
const button = (name: string | RegExp) => page.getByRole("button", { name, exact: typeof name === "string" });
const dialog = () => page.getByRole("dialog");

/** What is open, in both themes and on a telephone. */
async function look(name: string): Promise<void> {
  await page.evaluate(axe);
  const wrong: string[] = [];
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForFunction((s) => document.documentElement.dataset.mantineColorScheme === s, scheme);
    await page.evaluate(() => Promise.allSettled(document.getAnimations().map((a) => a.finished)));
    wrong.push(...(await findings(page)).map((w) => `${scheme} ${name}: ${w}`));
    await picture(page, `moves ${scheme} ${name}`);
  }
  await page.setViewportSize({ width: 390, height: 844 });
  await settle(page);
  if ((await page.evaluate(() => document.documentElement.scrollWidth)) > 390) wrong.push(`${name} is wider than a telephone`);
  await picture(page, `moves narrow ${name}`);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.emulateMedia({ colorScheme: "light" });
  expect(wrong).toEqual([]);
}

test("a partition is moved by its plan, its progress is watched, and its move is cancelled", async () => {
  const [first] = await places("cargo");
  const home = first?.replicas[0] as number;
  const away = home === 3 ? 2 : 3;
  await open("reassignments");
  await page.getByText("Nothing moves").waitFor();
  await look("none");
  await button("Move partitions").first().click();
  await dialog().getByLabel("Topic", { exact: true }).fill("cargo");
  await dialog().getByRole("combobox", { name: "Partitions" }).or(dialog().getByLabel("Partitions")).first().click();
  await page.getByRole("option", { name: "0", exact: true }).click();
  await page.keyboard.press("Tab");
  await dialog().getByRole("combobox", { name: "To nodes" }).or(dialog().getByLabel("To nodes")).first().click();
  await page.getByRole("option", { name: new RegExp(`^Node ${away}`) }).click();
  await page.keyboard.press("Tab");
  await dialog().getByLabel("Throttle").fill("0.0625");
  await button("Show the plan").click();
  await dialog().getByText("1 partition, 1 replica to copy").waitFor();
  const plan = dialog().getByRole("table", { name: "Plan" }).getByRole("row").nth(1);
  expect(await plan.getByRole("cell").allTextContents()).toEqual(["cargo:0", String(home), String(away)]);
  expect((await places("cargo"))[0]?.adding, "a plan moves nothing").toEqual([]);
  await look("plan");
  await button("Move 1 partition").click();
  await dialog().waitFor({ state: "hidden" });
  const row = page.getByRole("row").filter({ hasText: "cargo:0" });
  await row.waitFor();
  // It goes on by itself, and says how far it has come.
  await until(async () => /\d.* \/ [\d.]+ MiB · .* left/.test((await row.textContent()) ?? ""), 20_000);
  await look("running");
  await row.getByRole("button", { name: "Cancel move" }).click();
  await dialog().getByText(`cargo:0 goes back to the nodes ${home}.`).waitFor();
  await button("Cancel move").last().click();
  await page.getByText("Nothing moves").waitFor();
  expect((await places("cargo"))[0]).toMatchObject({ replicas: [home], leader: home, adding: [] });

  // The same from the partition itself, this time to its end.
  await throttle(0);
  await open("topics/cargo/partitions");
  await button("Actions on partition 0").click();
  await page.getByRole("menuitem", { name: "Move partitions" }).click();
  await dialog().getByRole("combobox", { name: "To nodes" }).or(dialog().getByLabel("To nodes")).first().click();
  await page.getByRole("option", { name: new RegExp(`^Node ${away}`) }).click();
  await page.keyboard.press("Tab");
  await button("Show the plan").click();
  await button("Move 1 partition").click();
  await dialog().waitFor({ state: "hidden" });
  await until(async () => (await places("cargo"))[0]?.replicas.join() === String(away), 30_000);
  const leader = page.getByRole("row").nth(1).getByRole("cell").nth(2);
  await until(async () => (await leader.textContent()) === String(away), 15_000);
});

test("a leader is elected by hand, and what may lose records is asked for twice", async () => {
  await throttle(0);
  const wanted = (await places("flights")).map((p) => p.replicas[0]);
  const moved = wanted.indexOf(3);
  await cluster.node(3).stop("SIGKILL");
  await until(async () => (await places("flights").catch(() => []))[moved]?.leader !== 3, 30_000);
  await cluster.node(3).start();
  await cluster.whole();
  await open("replication");
  await button("Elect preferred leaders").click();
  await dialog().getByText("Every partition whose preferred leader").waitFor();
  await look("elect");
  await button("Elect").click();
  await page.getByText(/have been decided on|has been decided on/).waitFor();
  await until(async () => (await places("flights")).every((p, i) => p.leader === wanted[i]), 20_000);
  // Its only replica is away: an unclean election finds nobody, says so, and takes the name first.
  await cluster.call("POST", "/v1/reassignments", { moves: [{ topic: "cargo", partition: 1, replicas: [3] }] });
  await until(async () => (await places("cargo"))[1]?.replicas.join() === "3", 30_000);
  await cluster.node(3).stop("SIGKILL");
  await open("replication");
  const offline = page.getByRole("row").filter({ hasText: "cargo:1" });
  await offline.getByText("no leader").waitFor({ timeout: 30_000 });
  await offline.getByRole("button", { name: "Elect uncleanly" }).click();
  expect(await button("Elect").isDisabled()).toBe(true);
  await dialog().getByLabel("Type cargo to confirm").fill("cargo");
  await look("unclean");
  await button("Elect").click();
  await dialog().getByRole("alert").waitFor();
  expect(await dialog().getByLabel("Type cargo to confirm").inputValue()).toBe("cargo");
  await page.keyboard.press("Escape");
  await cluster.node(3).start();
  await offline.waitFor({ state: "hidden", timeout: 30_000 });
  await cluster.whole();
});

test("a node tells whether it may stop, is drained by a plan with its progress, and takes replicas again", async () => {
  // Three replicas have nowhere to go on two nodes: the plan says so and nothing is begun.
  await open("nodes/3");
  const verdict = page.getByRole("region", { name: "Safe to stop?" });
  await verdict.getByText("Safe to stop? No").waitFor();
  await verdict.getByText("cargo", { exact: false }).first().waitFor();
  await button("Drain").click();
  await dialog().getByRole("alert").getByText("nowhere to go").waitFor();
  expect(await dialog().getByRole("button", { name: "Drain", exact: true }).isDisabled()).toBe(true);
  await page.keyboard.press("Escape");
  await cluster.grow();
  await throttle(slow);
  await button("Drain").click();
  await dialog().getByRole("table", { name: "Plan" }).waitFor({ timeout: 30_000 });
  await dialog()
    .getByText(/cargo:1/)
    .waitFor();
  await look("drain");
  await dialog().getByRole("button", { name: "Drain", exact: true }).click();
  await dialog().waitFor({ state: "hidden" });
  await page.getByText("The node is being drained").waitFor();
  await page.getByText(/of [\d.]+ MiB have been copied away, \d+ replicas? (is|are) left/).waitFor();
  await page.getByText("draining", { exact: true }).first().waitFor();
  await look("draining");
  await button("End draining").click();
  await dialog().getByText("What is on its way to others comes back").waitFor();
  await dialog()
    .getByText(/cargo:1/)
    .waitFor();
  await dialog().getByRole("button", { name: "End draining" }).click();
  await dialog().waitFor({ state: "hidden" });
  await page.getByText("online", { exact: true }).first().waitFor();
  expect((await places("cargo"))[1]?.replicas).toEqual([3]);
  await throttle(0);
  await button("Drain").click();
  await dialog().getByRole("table", { name: "Plan" }).waitFor();
  await dialog().getByRole("button", { name: "Drain", exact: true }).click();
  await page.getByText("The node is drained").waitFor({ timeout: 30_000 });
  await until(async () => (await verdict.getByText("Safe to stop? Yes").count()) === 1, 30_000);
  const why = await button("Remove").getAttribute("data-reason");
  expect(why).toContain("drain and stop it first");
  await look("drained");
  // Gone for good: the cluster forgets it once its number is typed.
  await cluster.node(3).stop();
  await until(async () => (await button("Remove").getAttribute("data-reason")) === null, 30_000);
  await button("Remove").click();
  await dialog().getByLabel("Type 3 to confirm").fill("3");
  await dialog().getByRole("button", { name: "Remove", exact: true }).click();
  await page.waitForURL("**/ui/nodes");
  await until(async () => (await page.getByRole("row").count()) === 4);
});

test("a rebalance shows its plan, then its progress here and among the operations, and ends with the replicas spread", async () => {
  await cluster.call("POST", "/v1/topics", { name: "freight", partitions: 4, replication_factor: 1 });
  const all = [0, 1, 2, 3];
  await cluster.call("POST", "/v1/reassignments", { moves: all.map((partition) => ({ topic: "freight", partition, replicas: [1] })) });
  await until(async () => (await places("freight")).every((p) => p.replicas.join() === "1"), 30_000);
  const value = "x".repeat(100_000);
  await cluster.call("POST", "/v1/topics/freight/records", { records: all.flatMap((partition) => Array(8).fill({ partition, value })) });
  await open("reassignments");
  await page.getByText("Nothing moves").waitFor();
  await button("Rebalance").click();
  await dialog().getByLabel("Throttle").fill("0.0625");
  await button("Show the plan").click();
  await dialog()
    .getByText(/partitions?, [1-9]\d* replicas? to copy/)
    .waitFor();
  await dialog()
    .getByText(/freight:\d/)
    .first()
    .waitFor();
  expect(
    (await places("freight")).flatMap((p) => p.adding),
    "a plan moves nothing",
  ).toEqual([]);
  await look("rebalance");
  await dialog().getByRole("button", { name: "Rebalance", exact: true }).click();
  await dialog().waitFor({ state: "hidden" });
  const row = page.getByRole("row").filter({ hasText: "freight:" }).first();
  await until(async () => /KiB · .* left/.test((await row.textContent()) ?? ""), 20_000);
  await open("operations");
  const operation = page.getByRole("row").filter({ hasText: "move-partition" }).filter({ hasText: "running" }).first();
  await until(async () => /KiB.* left/.test((await operation.textContent()) ?? ""), 20_000);
  await look("rebalancing");
  await open("reassignments");
  await throttle(0);
  await page.getByText("Nothing moves").waitFor({ timeout: 30_000 });
  expect(new Set((await places("freight")).flatMap((p) => p.replicas)).size).toBeGreaterThan(1);
  expect(found.filter((line) => !/Failed to load resource: .* status of 50[34]/.test(line))).toEqual([]);
});
