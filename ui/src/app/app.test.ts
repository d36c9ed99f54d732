import { afterEach, describe, expect, test, vi } from "vitest";
import { send } from "../api/client";
import { addCoverage, asInput, browsePath } from "../api/records";
import { fill } from "../i18n";
import { en } from "../i18n/en";
import { zh } from "../i18n/zh";
import { destination } from "../pages/login";
import { nameFault } from "../pages/newTopic";
import { recordOf } from "../pages/produce";
import { quote } from "../parts/copy";
import { messagesSearch, parseSearch, stringifySearch } from "./search";
import { session } from "./session";

describe("addresses", () => {
  test("what is in the address comes back as it was", () => {
    const search = { seek: "offset", partition: 4, offset: 1182, q: "a&b=c #%é", open: "4:1182" };
    expect(messagesSearch(parseSearch(stringifySearch(search)))).toMatchObject(search);
  });
  test("reading what was read already changes nothing", () => {
    const once = messagesSearch(parseSearch("?seek=offset&partition=4&offset=0&time=1000&open=0:1"));
    expect(messagesSearch(once)).toEqual(once);
    expect(once).toMatchObject({ partition: 4, offset: 0, time: 1000 });
  });
  test("numbers in texts stay texts", () => expect(messagesSearch(parseSearch("?q=0123"))).toMatchObject({ q: "0123" }));
  test("what is no value of a parameter is left out", () => {
    const bad = messagesSearch(parseSearch("?seek=sideways&offset=-1&partition=1e3&time=99999999999999999999&open=x&decoder=evil"));
    expect(Object.values(bad).filter((v) => v !== undefined)).toEqual([]);
  });
  test("the login leads to pages of the console only", () => {
    expect(["/topics?q=x", undefined, "https://evil", "//evil", "/\\evil", "/login?to=/x", "/"].map(destination)).toEqual([
      "/topics?q=x",
      "/overview",
      "/overview",
      "/overview",
      "/overview",
      "/overview",
      "/overview",
    ]);
  });
});

describe("texts", () => {
  test("both languages fill in the same values", () => {
    const names = (text: string) => [...new Set([...text.matchAll(/\{(\w+)(\||\})/g)].map((m) => m[1]).filter((n) => n !== "n"))].sort();
    for (const key of Object.keys(en) as (keyof typeof en)[]) expect([key, names(zh[key])]).toEqual([key, names(en[key])]);
  });
  test("one and many are told apart", () => {
    expect(fill("{n} {n|record|records}", { n: 1 })).toBe("1 record");
    expect(fill("{n} {n|record|records}", { n: 0 })).toBe("0 records");
  });
});

describe("requests", () => {
  test("a search asks for text in every field, and a cursor replaces where to begin", () => {
    const path = browsePath({ topic: "a b", seek: "newest", q: "PHX", in: "key" }, 50);
    expect(path).toContain("/v1/topics/a%20b/records?");
    expect(parseSearch(path.split("?")[1] ?? "")).toEqual({
      encoding: "text",
      key_encoding: "text",
      header_encoding: "text",
      direction: "backward",
      q: "PHX",
      q_in: "key",
      max_records: "50",
    });
    expect(browsePath({ topic: "t", seek: "newest", cursor: "C" }, 1)).not.toContain("direction");
  });
  test("what pieces of a search looked at is joined", () => {
    const a = { records: 1, bytes: 2, partitions: [{ partition: 1, from: 5, to: 9 }] };
    const b = {
      records: 3,
      bytes: 4,
      partitions: [
        { partition: 1, from: 9, to: 12 },
        { partition: 0, from: 0, to: 1 },
      ],
    };
    expect(addCoverage(a, b)).toEqual({
      records: 4,
      bytes: 6,
      partitions: [
        { partition: 0, from: 0, to: 1 },
        { partition: 1, from: 5, to: 12 },
      ],
    });
  });
  test("a record is sent again with equal bytes", () => {
    expect(
      asInput({
        topic: "t",
        partition: 1,
        offset: 2,
        timestamp: 3,
        timestamp_type: "CreateTime",
        key: null,
        key_encoding: null,
        value: "AAE=",
        value_encoding: "base64",
        headers: [{ name: "h", value: "1", encoding: "text" }],
      }),
    ).toEqual({ key: null, value: "AAE=", value_encoding: "base64", headers: [{ name: "h", value: "1" }] });
  });
  test("a form tells null from an empty text, and keeps number text", () => {
    const draft = {
      key: "",
      keyNull: false,
      keyEncoding: "text" as const,
      value: '{"n":12345678901234567890,"i":{{i}}}',
      valueNull: false,
      encoding: "text" as const,
      partition: "",
      headers: [],
    };
    expect(recordOf(draft, 3, 0)).toEqual({ key: "", value: '{"n":12345678901234567890,"i":3}' });
    expect(recordOf({ ...draft, keyNull: true, valueNull: true, partition: 2 }, 0, 0)).toEqual({ partition: 2, key: null, value: null });
  });
  test("names of topics", () => {
    expect(["a.b_c-1", "", ".", "..", "a b", "ü", "x".repeat(250)].map(nameFault)).toEqual([
      null,
      null,
      "topic.nameDots",
      "topic.nameDots",
      "topic.nameChars",
      "topic.nameChars",
      "topic.nameLong",
    ]);
  });
  test("words of a shell are quoted", () => expect(["abc", "it's", "a b", ""].map(quote)).toEqual(["abc", `'it'\\''s'`, "'a b'", "''"]));
});

describe("a session that ends", () => {
  afterEach(() => vi.unstubAllGlobals());
  test("lets the request wait, and sends it again with what was typed and the new token", async () => {
    const sent: { body: string; csrf: string | null }[] = [];
    const answers = [401, 201];
    vi.stubGlobal("fetch", async (r: Request) => {
      sent.push({ body: await r.text(), csrf: r.headers.get("X-CSRF-Token") });
      return new Response("{}", { status: answers.shift() ?? 500 });
    });
    session.set({ state: "in", me: { username: "a", admin: true, csrf: "old" } });
    const answer = send(new Request("http://node/v1/topics", { method: "POST", body: '{"name":"typed"}' }));
    await vi.waitFor(() => expect(session.get().state).toBe("expired"));
    expect(sent).toHaveLength(1);
    session.set({ state: "in", me: { username: "a", admin: true, csrf: "new" } });
    expect((await answer).status).toBe(201);
    expect(sent).toEqual([
      { body: '{"name":"typed"}', csrf: "old" },
      { body: '{"name":"typed"}', csrf: "new" },
    ]);
  });
  test("ends the request when the console is left", async () => {
    vi.stubGlobal("fetch", async () => new Response("{}", { status: 401 }));
    session.set({ state: "in", me: { username: "a", admin: true, csrf: "old" } });
    const answer = send(new Request("http://node/v1/topics"));
    const refused = expect(answer).rejects.toMatchObject({ name: "AbortError" });
    await vi.waitFor(() => expect(session.get().state).toBe("expired"));
    session.set({ state: "out", me: null });
    await refused;
  });
  test("another tab's login is enough: only the token is fetched anew", async () => {
    const sent: (string | null)[] = [];
    vi.stubGlobal("fetch", async (r: Request) => {
      if (r.url.endsWith("/v1/auth/me")) return Response.json({ username: "a", admin: true, csrf_token: "new", expires_at: "" });
      sent.push(r.headers.get("X-CSRF-Token"));
      return sent.length === 1 ? Response.json({ code: "csrf" }, { status: 403 }) : Response.json({}, { status: 201 });
    });
    session.set({ state: "in", me: { username: "a", admin: true, csrf: "old" } });
    expect((await send(new Request("http://node/v1/topics", { method: "POST", body: "{}" }))).status).toBe(201);
    expect(sent).toEqual(["old", "new"]);
    expect(session.get().state).toBe("in");
  });
  test("a wrong password is an answer, and no end of a session", async () => {
    vi.stubGlobal("fetch", async () => new Response("{}", { status: 401 }));
    session.set({ state: "in", me: { username: "a", admin: true, csrf: "old" } });
    expect((await send(new Request("http://node/v1/auth/login?session=cookie", { method: "POST" }))).status).toBe(401);
    expect(session.get().state).toBe("in");
  });
});
