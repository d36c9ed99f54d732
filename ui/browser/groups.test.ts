import { execFileSync, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ask, binary, complaints, launch, logIn, newContext, TestNode, until } from "./node";

const node = new TestNode(["--dev"]);
let browser: Browser;
let token = "";
let page: Page;
let found: string[] = [];

beforeAll(async () => {
  await node.start();
  browser = await launch();
  const answer = await ask(node, "POST", "/v1/auth/login", undefined, { username: "admin", password: "tidewire" });
  token = ((await answer.json()) as { access_token: string }).access_token;
  await ask(node, "POST", "/v1/topics", token, { name: "orders", partitions: 2, config: { "retention.ms": "-1" } });
  const records = Array.from({ length: 20 }, (_, i) => ({
    partition: i % 2,
    key: `k${i}`,
    value: `v${i}`,
    timestamp: 1_000_000 + i * 1000,
  }));
  await ask(node, "POST", "/v1/topics/orders/records", token, { records });
  page = await (await newContext(browser, { timezoneId: "UTC" })).newPage();
  found = complaints(page);
  await logIn(page, node);
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

// What stood in the page when a test failed.
afterEach(async ({ task }) => {
  if (process.env.PICTURES && task.result?.state === "fail")
    await page.screenshot({ path: join(process.env.PICTURES, `failed ${task.name.slice(0, 40)}.png`) });
});

const button = (name: string | RegExp) => page.getByRole("button", { name, exact: typeof name === "string" });

async function put(group: string, offsets: [partition: number, next: number][], topic = "orders"): Promise<void> {
  await ask(node, "PUT", `/v1/groups/${encodeURIComponent(group)}/offsets`, token, {
    offsets: offsets.map(([partition, next_offset]) => ({ topic, partition, next_offset })),
  });
}

async function committed(group: string): Promise<(number | null)[]> {
  const answer = await (await ask(node, "GET", `/v1/groups/${encodeURIComponent(group)}`, token)).json();
  return (answer as { offsets: { next_offset: number | null }[] }).offsets.map((o) => o.next_offset);
}

const join_ = async (group: string, client_id = "a test"): Promise<string> => {
  const body = { topics: ["orders"], auto_offset_reset: "earliest", client_id, session_timeout_ms: 300_000 };
  const answer = await ask(node, "POST", `/v1/groups/${group}/members`, token, body);
  const { member_id } = (await answer.json()) as { member_id: string };
  await ask(node, "POST", `/v1/groups/${group}/members/${member_id}/poll`, token, { wait_ms: 5000, max_records: 1 });
  return member_id;
};
const leave = (group: string, member: string) => ask(node, "DELETE", `/v1/groups/${group}/members/${member}`, token);

test("each kind of reset shows the node's plan first, and applies it", async () => {
  await put("resets", [
    [0, 5],
    [1, 5],
  ]);
  await page.goto(`${node.url}/ui/groups/resets`);
  const dialog = page.getByRole("dialog");
  const kinds: [kind: string, fill: () => Promise<void>, sum: string, then: number[]][] = [
    ["Latest", async () => {}, "2 partitions: 0 records come again, 10 are passed over", [10, 10]],
    ["Earliest", async () => {}, "2 partitions: 20 records come again, 0 are passed over", [0, 0]],
    ["Offset", () => dialog.getByLabel("Next offset").fill("7"), "2 partitions: 0 records come again, 14 are passed over", [7, 7]],
    ["Shift", () => dialog.getByLabel("Records forward").fill("-3"), "2 partitions: 6 records come again, 0 are passed over", [4, 4]],
    // 1,012 s after the epoch: the records 12 and 13, which are the seventh of their partitions.
    ["Time", () => dialog.getByLabel("From (your time)").fill("1970-01-01T00:16:52"), "0 records come again, 4 are passed over", [6, 6]],
  ];
  for (const [kind, fill, sum, then] of kinds) {
    await button("Reset offsets").click();
    await dialog.getByText(kind, { exact: true }).click();
    await fill();
    await button("Show the plan").click();
    await dialog.getByText(sum).waitFor();
    expect(await dialog.getByRole("table", { name: "Show the plan" }).getByRole("row").count()).toBe(3);
    const before = await committed("resets");
    await dialog.getByLabel("Type resets to confirm").fill("resets");
    expect(await committed("resets"), "a plan moves nothing").toEqual(before);
    await button("Move 2 offsets").click();
    await dialog.waitFor({ state: "hidden" });
    expect([kind, await committed("resets")]).toEqual([kind, then]);
  }
  // One partition of one topic alone.
  await button("Reset offsets").click();
  await dialog.getByRole("combobox", { name: "Topics" }).or(dialog.getByLabel("Topics")).first().click();
  await page.getByRole("option", { name: "orders" }).click();
  await dialog.getByLabel("Partitions").first().click();
  await page.getByRole("option", { name: "1", exact: true }).click();
  await page.keyboard.press("Tab");
  await button("Show the plan").click();
  await dialog.getByText("1 partition: 6 records come again").waitFor();
  await dialog.getByLabel("Type resets to confirm").fill("resets");
  await button("Move 1 offset").click();
  await dialog.waitFor({ state: "hidden" });
  expect(await committed("resets")).toEqual([6, 0]);
});

test("what is applied is the plan that was seen: a group that changed meanwhile is planned anew", async () => {
  await put("moving", [[0, 5]]);
  await page.goto(`${node.url}/ui/groups/moving`);
  await button("Reset offsets").click();
  const dialog = page.getByRole("dialog");
  await button("Show the plan").click();
  await dialog.getByText(/: 5 records come again/).waitFor();
  await put("moving", [[0, 9]]);
  await dialog.getByLabel("Type moving to confirm").fill("moving");
  await button(/^Move \d offsets?$/).click();
  await dialog.getByText("The group changed after the plan was made").waitFor();
  await dialog.getByText(/: 9 records come again/).waitFor();
  expect((await committed("moving"))[0]).toBe(9);
  await button(/^Move \d offsets?$/).click();
  await dialog.waitFor({ state: "hidden" });
  expect((await committed("moving"))[0]).toBe(0);
});

test("members are shown with what they read, and while they live nothing is moved and the page says why", async () => {
  const member = await join_("living", "till 4");
  await page.goto(`${node.url}/ui/groups/living`);
  const row = page.getByRole("row").filter({ hasText: member });
  await row.getByText("orders: 0, 1").waitFor();
  await row.getByText("till 4").waitFor();
  await row.getByText("127.0.0.1").waitFor();
  for (const name of ["Reset offsets", "Edit offsets", "Delete", "Delete offsets of orders"]) {
    expect([name, await button(name).getAttribute("data-reason")]).toEqual([name, expect.stringContaining("1 live member")]);
    await button(name).click({ force: true });
    expect(await page.getByRole("dialog").count()).toBe(0);
  }
  // The page follows by itself: the member leaves, and comes back while the dialog is open.
  await leave("living", member);
  await page.getByText("Nobody reads as a member now").waitFor();
  await button("Reset offsets").click();
  const dialog = page.getByRole("dialog");
  await put("living", [
    [0, 3],
    [1, 3],
  ]);
  await button("Show the plan").click();
  await dialog.getByText(/: 6 records come again/).waitFor();
  const again = await join_("living");
  await dialog.getByLabel("Type living to confirm").fill("living");
  await button("Move 2 offsets").click();
  await dialog.getByRole("alert").getByText("The group has live members").waitFor();
  expect(await committed("living")).toEqual([3, 3]);
  await leave("living", again);
});

test("offsets are edited one by one, and what somebody else committed meanwhile stands beside", async () => {
  await put("edited", [
    [0, 5],
    [1, 6],
  ]);
  await page.goto(`${node.url}/ui/groups/edited`);
  await button("Edit offsets").click();
  const dialog = page.getByRole("dialog");
  const field = dialog.getByLabel("Next offset of partition 1");
  await field.fill("2");
  await put("edited", [[0, 9]]);
  await button("Store 1 offset").click();
  await dialog.getByText("The group changed meanwhile").waitFor();
  expect(await field.inputValue()).toBe("2");
  await dialog
    .getByRole("row")
    .filter({ has: page.getByRole("cell", { name: "0", exact: true }) })
    .getByText("9", { exact: true })
    .waitFor();
  await button("Store 1 offset").click();
  await dialog.waitFor({ state: "hidden" });
  expect(await committed("edited")).toEqual([9, 2]);
});

test("without the right every button is there, does nothing, and says which right it takes", async () => {
  await put("looked-at", [[0, 5]]);
  await ask(node, "POST", "/v1/users", token, { username: "looker", password: "password1" });
  for (const [resource_type, resource_name] of [
    ["group", "looked-at"],
    ["topic", "orders"],
  ])
    await ask(node, "POST", "/v1/acls", token, {
      principal: "User:looker",
      resource_type,
      resource_name,
      operation: "describe",
      permission: "allow",
    });
  const context = await newContext(browser);
  const theirs = await context.newPage();
  await logIn(theirs, node, "looker", "password1");
  await theirs.goto(`${node.url}/ui/groups`);
  await theirs.getByText("1 of 1").waitFor();
  await theirs.getByRole("link", { name: "looked-at" }).click();
  await theirs.getByText("lag 5").waitFor();
  for (const [name, right] of [
    ["Reset offsets", "read on group:looked-at"],
    ["Edit offsets", "read on group:looked-at"],
    ["Delete", "delete on group:looked-at"],
    ["Delete offsets of orders", "delete on group:looked-at"],
  ] as const) {
    const barred = theirs.getByRole("button", { name, exact: true });
    expect([name, await barred.getAttribute("data-reason")]).toEqual([name, expect.stringContaining(right)]);
    await barred.click({ force: true });
    expect(await theirs.getByRole("dialog").count()).toBe(0);
  }
  await theirs.goto(`${node.url}/ui/groups/edited`);
  await theirs.getByRole("alert").waitFor();
  expect(await theirs.getByText("by hand").count()).toBe(0);
  await context.close();
});

test("a topic's offsets are deleted after the plan, and a group by typing its name, whatever it is called", async () => {
  const name = "a/b %2F ü";
  await put(name, [
    [0, 5],
    [1, 5],
  ]);
  await page.goto(`${node.url}/ui/groups?q=ü`);
  await page.getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { name, level: 1 }).waitFor();
  await page.reload();
  await page.getByText("lag 10").waitFor();
  await button("Delete offsets of orders").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The group forgets 2 partitions of orders (0, 1)").waitFor();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await dialog.waitFor({ state: "hidden" });
  const gone = page.getByText("There is no such group").or(page.getByText("Nothing is committed yet"));
  await gone.first().waitFor();
  await put(name, [[0, 1]]);
  await page.reload();
  await button("Delete").click();
  await dialog.getByText("The committed offsets of 1 partition go with it").waitFor();
  const confirm = dialog.getByRole("button", { name: "Delete" });
  expect(await confirm.isDisabled()).toBe(true);
  await dialog.getByLabel(`Type ${name} to confirm`).fill(name);
  await confirm.click();
  await page.waitForURL(`${node.url}/ui/groups`);
  const answer = await fetch(`${node.url}/v1/groups/${encodeURIComponent(name)}`, { headers: { Authorization: `Bearer ${token}` } });
  expect(answer.status).toBe(404);
});

test("a group is prepared before its first member comes", async () => {
  await page.goto(`${node.url}/ui/groups`);
  await button("Prepare a group").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Group").fill("prepared");
  await dialog.getByLabel("Topics").first().fill("orders");
  await page.keyboard.press("Enter");
  await dialog.getByText("Latest", { exact: true }).click();
  await button("Show the plan").click();
  await dialog.getByText("begins here").first().waitFor();
  await dialog.getByLabel("Type prepared to confirm").fill("prepared");
  await button("Move 2 offsets").click();
  await page.waitForURL(`${node.url}/ui/groups/prepared`);
  expect(await committed("prepared")).toEqual([10, 10]);
});

test("the list comes page by page, searched and sorted by the node", async () => {
  for (let i = 0; i < 110; i++) await put(`many-${String(i).padStart(3, "0")}`, [[0, i % 10]]);
  await page.goto(`${node.url}/ui/groups?q=many-`);
  await page.getByText("100 of 110").waitFor();
  await button("Load more").click();
  await page.getByText("110 of 110").waitFor();
  await page.getByRole("button", { name: "Lag" }).click();
  await page.waitForURL(/sort=total_lag/);
  await page.getByRole("button", { name: "Lag" }).click();
  await page.waitForURL(/sort=-total_lag/);
  await until(async () => ((await page.getByRole("row").nth(1).textContent()) ?? "").match(/^many-\d\d0/) !== null);
  await page.getByLabel("Search groups").fill("many-042");
  await page.getByText("1 of 1").waitFor();
});

/** A program of the page, as it stands there. */
async function sampleOf(kind: string): Promise<string> {
  await page.getByRole("radiogroup", { name: "Language" }).getByText(kind, { exact: true }).click();
  return (await page.getByRole("region", { name: "Sample consumer", exact: true }).textContent()) ?? "";
}

test("every sample consumer runs as it stands in the page, and reads on where it was", async () => {
  await page.goto(`${node.url}/ui/topics/orders/groups`);
  const env = { PATH: process.env.PATH ?? "", HOME: node.dir, TIDEWIRE_TOKEN: token };
  for (const [kind, file] of [
    ["curl", "sample.sh"],
    ["JavaScript", "sample.mjs"],
    ["Python", "sample.py"],
    ["CLI", "cli.sh"],
  ] as const) {
    const group = `it's ${kind}`;
    await page.getByLabel("Group", { exact: true }).fill(group);
    const path = join(node.dir, file);
    writeFileSync(path, (await sampleOf(kind)).replace("tidewire consume", `exec '${binary}' consume`));
    if (kind === "curl") {
      const out = execFileSync("sh", [path], { env }).toString();
      expect(out).toContain('"v19"');
      expect(await committed(group), kind).toEqual([10, 10]);
      continue;
    }
    const [program, args] = kind === "JavaScript" ? [process.execPath, [path]] : kind === "Python" ? ["python3", [path]] : ["sh", [path]];
    const child = spawn(program, args, { env });
    let out = "";
    child.stdout.on("data", (b) => {
      out += b;
    });
    child.stderr.on("data", (b) => {
      out += b;
    });
    try {
      await until(async () => {
        if (child.exitCode !== null) throw new Error(`${kind} ended: ${out}`);
        return out.includes("v18") && out.includes("v19");
      });
      await until(async () => (await committed(group)).join() === "10,10");
    } finally {
      child.kill("SIGTERM");
    }
  }
  expect(found).toEqual([]);
});
