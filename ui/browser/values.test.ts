import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask, complaints, launch, logIn, newContext, TestNode, until } from "./node";

const node = new TestNode(["--dev"]);
let browser: Browser;
let token = "";
let page: Page;
let found: string[] = [];

const html = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script><b>bold</b>`;
/** What is stored, byte for byte (base64), by its name. */
const values: Record<string, string | null> = {
  numbers: '{"id":9223372036854775807,"big":12345678901234567890123,"f":1.0,"e":1E400,"twice":1,"twice":2}',
  null: null,
  empty: "",
  spaces: "  ",
  newline: "\n",
  html,
  binary: "\x00\x01\x02\xff",
  invalid: "abc\xc3\x28xyz",
  word: "null",
};
const bytesOf = (name: string): Buffer => Buffer.from(values[name] ?? "", name === "binary" || name === "invalid" ? "latin1" : "utf8");

beforeAll(async () => {
  await node.start();
  browser = await launch();
  const answer = await ask(node, "POST", "/v1/auth/login", undefined, { username: "admin", password: "tidewire" });
  token = ((await answer.json()) as { access_token: string }).access_token;
  await ask(node, "POST", "/v1/topics", token, { name: "exact" });
  const records = Object.entries(values).map(([name, value]) => ({
    key: `key of ${name}`,
    value: value === null ? null : bytesOf(name).toString("base64"),
    value_encoding: value === null ? undefined : "base64",
  }));
  const keys = [null, "", " ", html].map((key) => ({ key, value: "a key", headers: [{ name: html, value: html }] }));
  await ask(node, "POST", "/v1/topics/exact/records", token, { records: [...records, ...keys] });
  page = await (await newContext(browser)).newPage();
  found = complaints(page);
  await logIn(page, node);
});
afterAll(async () => {
  await browser?.close();
  await node.remove();
});

const names = Object.keys(values);
const rowOf = (offset: number) =>
  page
    .getByRole("table", { name: "Messages" })
    .getByRole("row")
    .nth(offset + 1);

/** A cell's text without the word that marks bytes, and what kind it is shown as. */
async function cell(offset: number, column: number): Promise<[text: string, kind: string]> {
  const it = rowOf(offset).getByRole("cell").nth(column);
  const odd = it.locator("[data-kind]");
  return [(await it.textContent()) ?? "", (await odd.count()) > 0 ? ((await odd.first().getAttribute("data-kind")) ?? "") : "text"];
}

test("in the list every value is what it is: numbers exact, null, empty and spaces apart, bytes as hex, HTML as text", async () => {
  await page.goto(`${node.url}/ui/topics/exact/messages?seek=oldest`);
  await rowOf(0).waitFor();
  const shown = Object.fromEntries(await Promise.all(names.map(async (name, i) => [name, await cell(i, 3)] as const)));
  expect(shown.numbers?.[0]).toBe(values.numbers);
  expect(shown.html).toEqual([html, "text"]);
  expect(shown.word).toEqual(["null", "text"]);
  // None of these looks like a text, or like another.
  const odd = ["null", "empty", "spaces", "newline"].map((name) => shown[name]);
  expect(odd.map((o) => o?.[1])).not.toContain("text");
  expect(new Set(odd.map((o) => o?.[0])).size).toBe(4);
  expect(shown.binary?.[1]).toBe("binary");
  expect(shown.binary?.[0]).toMatch(/00 ?01 ?02 ?ff/i);
  expect(shown.invalid?.[1]).toBe("binary");
  const keys = await Promise.all([0, 1, 2, 3].map((i) => cell(names.length + i, 2)));
  expect(keys[3]).toEqual([html, "text"]);
  expect(new Set(keys.slice(0, 3).map((k) => k[0])).size).toBe(3);
});

async function view(name: string): Promise<string> {
  const drawer = page.getByRole("dialog");
  await drawer.getByRole("radiogroup", { name: "View" }).getByText(name, { exact: true }).click();
  return (await drawer.textContent()) ?? "";
}

test("in the drawer too, in every view, and nothing of a payload becomes part of the page", async () => {
  for (const [i, name] of names.entries()) {
    await page.goto(`${node.url}/ui/topics/exact/messages?seek=oldest&open=0:${i}`);
    const drawer = page.getByRole("dialog");
    await drawer.getByText(`key of ${name}`).first().waitFor();
    if (name === "numbers")
      for (const n of ["9223372036854775807", "12345678901234567890123", "1.0", "1E400"]) expect(await view("Pretty")).toContain(n);
    if (name === "numbers") expect(await view("Raw")).toContain(values.numbers);
    if (name === "html") for (const v of ["Pretty", "Raw"]) expect(await view(v)).toContain(html);
    if (values[name]) expect((await view("Hex")).toLowerCase()).toContain(bytesOf(name).subarray(0, 1).toString("hex"));
  }
  await page.goto(`${node.url}/ui/topics/exact/messages?seek=oldest&open=0:${names.length}`);
  expect(await view("Headers")).toContain(html);
  expect(await page.title()).not.toContain("owned");
  expect(await page.locator("img[src=x]").count()).toBe(0);
});

test("a record that is sent again has the same bytes", async () => {
  for (const [i, name] of names.entries()) {
    await page.goto(`${node.url}/ui/topics/exact/produce?from=0:${i}`);
    await until(async () => (await page.getByLabel("Key", { exact: true }).inputValue()) === `key of ${name}`);
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.getByText("1 record stored").waitFor();
    const end = await ask(node, "GET", "/v1/topics/exact/offsets?timestamp=latest", token);
    const offset = (((await end.json()) as { offsets: { offset: number }[] }).offsets[0]?.offset ?? 0) - 1;
    const path = `/v1/topics/exact/partitions/0/records/${offset}?encoding=base64`;
    const record = (await (await ask(node, "GET", path, token)).json()) as { value: string | null };
    expect([name, record.value]).toEqual([name, values[name] === null ? null : bytesOf(name).toString("base64")]);
  }
  expect(found).toEqual([]);
});
