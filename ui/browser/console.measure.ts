import { execFileSync } from "node:child_process";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, test } from "vitest";
import { ask, binary, launch, logIn, newContext, TestNode, until } from "./node";

// What the console takes in Chromium. It prints figures and asserts none of them: a shared
// machine would make such a test fail for nothing.
const topics = Number(process.env.MEASURE_TOPICS ?? 10_000);
const records = Number(process.env.MEASURE_RECORDS ?? 10_000_000);
const tailSeconds = Number(process.env.MEASURE_TAIL_S ?? 300);
const runs = Number(process.env.MEASURE_RUNS ?? 5);

const node = new TestNode(["--dev"]);
let browser: Browser;
let token = "";
let page: Page;

function say(what: string, values: number[], unit = "ms"): void {
  const sorted = [...values].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  console.log(`${what}: ${Math.round(median)} ${unit} (${values.map((v) => Math.round(v)).join(", ")})`);
}

beforeAll(async () => {
  await node.start();
  browser = await launch();
  const answer = await ask(node, "POST", "/v1/auth/login", undefined, { username: "admin", password: "tidewire" });
  token = ((await answer.json()) as { access_token: string }).access_token;
  page = await (await newContext(browser, { bypassCSP: true })).newPage();
  await logIn(page, node);
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

/** How long it takes in the page from what `act` does until `there` holds, by the page's own clock (ms). */
async function took(act: string, there: string): Promise<number> {
  return page.evaluate(
    ([act, there]) =>
      new Promise<number>((done, failed) => {
        const began = performance.now();
        const holds = new Function(`return ${there}`) as () => boolean;
        const look = () => {
          if (holds()) requestAnimationFrame(() => done(performance.now() - began));
          else if (performance.now() - began > 30_000) failed(new Error(`never: ${there}`));
          else requestAnimationFrame(look);
        };
        new Function(act as string)();
        look();
      }),
    [act, there] as const,
  );
}

const rows = `document.querySelectorAll('[role="row"]')`;
const click = (text: string) =>
  `[...document.querySelectorAll('a,button,label')].find((e) => e.textContent.trim() === ${JSON.stringify(text)} && e.offsetParent !== null).click()`;
const type = (selector: string, text: string) =>
  `const e = document.querySelector(${JSON.stringify(selector)}); e.focus();
   Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(e, ${JSON.stringify(text)});
   e.dispatchEvent(new Event("input", { bubbles: true }))`;

test(`a list of ${topics} topics`, async () => {
  let next = 0;
  const make = async () => {
    while (next < topics) await ask(node, "POST", "/v1/topics", token, { name: `topic-${String(next++).padStart(5, "0")}` });
  };
  await Promise.all(Array.from({ length: 16 }, make));
  const opened: number[] = [];
  const filtered: number[] = [];
  for (let i = 0; i < runs; i++) {
    // A load of the page from nothing until its rows are there and a click would be answered.
    await page.goto("about:blank");
    await page.goto(`${node.url}/ui/topics`, { waitUntil: "commit" });
    await page.waitForFunction(() => document.querySelectorAll('[role="row"]').length > 5, undefined, { polling: "raf" });
    opened.push(await page.evaluate(() => new Promise<number>((done) => setTimeout(() => done(performance.now()), 0))));
    const word = `topic-0${i}77`;
    filtered.push(
      await took(
        type("[data-search]", word),
        `${rows}.length > 1 && [...${rows}].slice(1).every((r) => r.textContent.includes(${JSON.stringify(word)}))`,
      ),
    );
  }
  say(`${topics} topics: the page is usable after`, opened);
  say(`${topics} topics: a filter is shown after`, filtered);
});

test(`a topic of ${records} records`, async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "big", partitions: 6 });
  const env = { PATH: process.env.PATH ?? "", HOME: node.dir, TIDEWIRE_TOKEN: token, TIDEWIRE_SERVER: node.url };
  const load = ["bench", "produce", "--topic", "big", "--batch", "1000", "--acks", "leader", "--records", String(records)];
  execFileSync(binary, load, { env, stdio: "ignore" });
  await ask(node, "POST", "/v1/topics/big/records", token, { records: [{ value: "the needle" }] });
  const newest: number[] = [];
  const time: number[] = [];
  const stopped: number[] = [];
  const progress: number[] = [];
  for (let i = 0; i < runs; i++) {
    await page.goto(`${node.url}/ui/topics/big/partitions`);
    await page.getByRole("navigation", { name: "big" }).waitFor();
    await page.getByText("high watermark", { exact: false }).first().waitFor();
    newest.push(await took(click("Messages"), `document.querySelector('[aria-label="Messages"] [role="cell"]') !== null`));
    await page.goto(`${node.url}/ui/topics/big/messages?seek=oldest`);
    await page.locator('[aria-label="Messages"] [role="cell"]').first().waitFor();
    // From the oldest page to the one of a time: the first row is another one then.
    const first = await page.locator('[aria-label="Messages"] [role="row"]').nth(1).textContent();
    time.push(
      await took(
        click("Time"),
        `document.querySelectorAll('[aria-label="Messages"] [role="row"]')[1]?.textContent !== ${JSON.stringify(first)} || location.search.includes("time=") && document.querySelector('.mantine-Loader-root') === null`,
      ),
    );
    // A text that no record has: the search goes on until it is stopped.
    await page.goto(`${node.url}/ui/topics/big/messages?seek=oldest`);
    await page.locator('[aria-label="Messages"] [role="cell"]').first().waitFor();
    const scanned = `[...document.querySelectorAll('[role="status"]')].some((e) => e.textContent.includes("Scanned"))`;
    await page.locator("[data-search]").fill(`no such text ${i}`);
    progress.push(await took(`document.querySelector("[data-search]").form.requestSubmit()`, scanned));
    await page.getByRole("button", { name: "Stop" }).waitFor();
    stopped.push(
      await took(click("Stop"), `[...document.querySelectorAll('[role="status"]')].some((e) => e.textContent.includes("Stopped"))`),
    );
  }
  say(`${records} records: the newest page is shown after`, newest);
  say(`${records} records: the page of a time is shown after`, time);
  say(`${records} records: the first progress of a search is shown after`, progress);
  say(`${records} records: a search has stopped after`, stopped);
});

/** Watches frames from now on; what it returns tells frames, seconds and the longest gap between two (ms). */
async function frames(): Promise<() => Promise<{ n: number; s: number; longest: number }>> {
  await page.evaluate(() => {
    const w = window as unknown as { frames: { n: number; began: number; last: number; longest: number; on: boolean } };
    w.frames = { n: 0, began: performance.now(), last: performance.now(), longest: 0, on: true };
    const beat = () => {
      const now = performance.now();
      w.frames.n++;
      w.frames.longest = Math.max(w.frames.longest, now - w.frames.last);
      w.frames.last = now;
      if (w.frames.on) requestAnimationFrame(beat);
    };
    requestAnimationFrame(beat);
  });
  return () =>
    page.evaluate(() => {
      const { frames } = window as unknown as { frames: { n: number; began: number; longest: number; on: boolean } };
      frames.on = false;
      return { n: frames.n, s: (performance.now() - frames.began) / 1000, longest: frames.longest };
    });
}

test("a record of 20 MB", async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "heavy", config: { "max.message.bytes": "33554432" } });
  const text = `{"name":"${"x".repeat(20_000_000)}"}`;
  for (const [type, body] of [
    ["text/plain", text],
    ["application/octet-stream", Buffer.alloc(20_000_000, 0xfe)],
  ] as const) {
    const answer = await fetch(`${node.url}/v1/topics/heavy/records`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": type },
      body,
    });
    if (!answer.ok) throw new Error(await answer.text());
  }
  await page.goto(`${node.url}/ui/topics/heavy/messages`);
  await page.locator('[aria-label="Messages"] [role="cell"]').first().waitFor();
  for (const [row, what] of [
    [1, "bytes"],
    [2, "text"],
  ] as const) {
    const end = await frames();
    const shown = await took(
      `document.querySelectorAll('[aria-label="Messages"] [role="row"]')[${row}].querySelector("a").click()`,
      `document.querySelector('[role="dialog"] pre') !== null`,
    );
    await page.getByText(/Showing .* of 19.1 MiB/).waitFor();
    const { longest } = await end();
    say(`20 MB of ${what}: shown after`, [shown]);
    say(`20 MB of ${what}: the longest time without a frame is`, [longest]);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  }
});

test(`a live tail at 5,000 records a second for ${tailSeconds} s`, async () => {
  await ask(node, "POST", "/v1/topics", token, { name: "fast", partitions: 3 });
  await page.goto(`${node.url}/ui/topics/fast/messages?seek=live`);
  await page.getByText("live", { exact: true }).waitFor();
  const client = await page.context().newCDPSession(page);
  const heap = async () => {
    await client.send("HeapProfiler.collectGarbage");
    return ((await client.send("Runtime.getHeapUsage")) as { usedSize: number }).usedSize;
  };
  let sent = 0;
  let on = true;
  const began = Date.now();
  const producer = (async () => {
    while (on) {
      const due = Math.floor(((Date.now() - began) / 1000) * 5000) - sent;
      if (due >= 250) {
        const n = Math.min(due, 1000);
        const batch = Array.from({ length: n }, (_, i) => ({
          key: `k${(sent + i) % 97}`,
          value: { n: sent + i, text: "a record of a live tail, of some hundred bytes, as there are many", at: Date.now() },
        }));
        await ask(node, "POST", "/v1/topics/fast/records?acks=leader", token, { records: batch });
        sent += n;
      } else await new Promise((r) => setTimeout(r, 10));
    }
  })();
  // The ring is full and what the page needs once is there.
  await new Promise((r) => setTimeout(r, 5000));
  const before = await heap();
  const from = sent;
  const fromAt = Date.now();
  const end = await frames();
  await new Promise((r) => setTimeout(r, tailSeconds * 1000));
  const { n, s, longest } = await end();
  const rate = ((sent - from) / (Date.now() - fromAt)) * 1000;
  const after = await heap();
  on = false;
  await producer;
  await until(
    async () => ((await page.getByText(/since it was opened/).textContent()) ?? "").includes(sent.toLocaleString("en-US")),
    30_000,
  );
  say("tail: records sent", [rate], "/s");
  say("tail: frames", [n / s], "/s");
  say("tail: the longest time without a frame is", [longest]);
  say("tail: the heap grew by", [(after - before) / 1024], "KiB");
});
