import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { ask, type TestNode } from "./node";

/** Where to put pictures of every page; without it none are taken. */
export const pictures = process.env.PICTURES;

/** Puts something of everything into a node, so that no page is empty. */
export async function fillNode(node: TestNode): Promise<void> {
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

/** Every page of the console, as the addresses of a filled node. */
export const pages = [
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
  "replication",
  "reassignments",
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
export async function settle(page: Page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".mantine-Skeleton-root, .mantine-Loader-root").length === 0);
  await page.evaluate(() => new Promise((done) => setTimeout(done, 250)));
}

export async function picture(page: Page, name: string) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name.replace(/[^A-Za-z0-9]+/g, "-")}.png`) });
}
