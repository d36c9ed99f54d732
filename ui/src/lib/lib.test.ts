import { describe, expect, test, vi } from "vitest";
import { bytesOf, type Field, hexDump, show } from "./decode";
import { bytes, count, duration, settingInWords, time } from "./format";
import { indentJSON } from "./json";
import { Ring } from "./ring";
import { conflicts, faultOf, patchOf, prune, type Setting } from "./settings";
import { LiveTail, type TailState } from "./tail";
import { fillTemplate, randomUUID } from "./template";

describe("JSON is indented without being read", () => {
  test.each([["12345678901234567890"], ["1.0"], ["1e3"], ["-0"], ['"a\\u00e9\\"{,[:"']])("the scalar %s stays as it is", (text) =>
    expect(indentJSON(text)).toBe(text),
  );

  test("numbers, members that occur twice and their order stay", () => {
    expect(indentJSON('{"b":9007199254740993,"b":1.50,"a":[],"o":{},"l":[1,{"x":"{,}"}]}')).toBe(
      '{\n  "b": 9007199254740993,\n  "b": 1.50,\n  "a": [],\n  "o": {},\n  "l": [\n    1,\n    {\n      "x": "{,}"\n    }\n  ]\n}',
    );
  });

  test("white space between tokens goes, that in strings stays", () => {
    expect(indentJSON(' { "a b" :\n "c  d" } ')).toBe('{\n  "a b": "c  d"\n}');
  });

  test("what is no JSON is none", () => {
    for (const text of ["", "{", "nope", "{'a':1}", "[1,]", "01"]) expect(indentJSON(text)).toBeNull();
  });

  test("what comes out is the same value", () => {
    const value = { a: [1, [2, { b: null }], "\\", '"', "\n"], "": { "": "" } };
    expect(JSON.parse(indentJSON(JSON.stringify(value)) ?? "")).toEqual(value);
  });
});

describe("fields", () => {
  const text = (value: string | null): Field => ({ value, encoding: value === null ? null : "text" });
  test("null, an empty text, white space and the word null are told apart", () => {
    const kinds = [text(null), text(""), text(" \n"), text("null"), text("\u00a0")].map((f) => show(f, "auto"));
    expect(kinds.map((k) => k.kind)).toEqual(["null", "empty", "space", "text", "space"]);
    expect(new Set(kinds.map((k) => k.kind + k.text)).size).toBe(5);
  });
  test("bytes that are no text are shown in hex", () => {
    const field: Field = { value: btoa("\x00\xff"), encoding: "base64" };
    expect(show(field, "auto")).toEqual({ kind: "binary", text: "00 ff" });
    expect([...bytesOf(field)]).toEqual([0, 255]);
  });
  test("a text as hex and base64 is its UTF-8", () => {
    expect(show(text("é"), "hex").text).toBe("c3 a9");
    expect(show(text("é"), "base64").text).toBe("w6k=");
  });
  test("a hex dump has offset, bytes and ASCII", () => {
    expect(hexDump(new TextEncoder().encode("0123456789abcdefX\n"))).toBe(
      "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n00000010  58 0a                                            X.",
    );
  });
});

describe("formats", () => {
  test("sizes", () =>
    expect([0, 1023, 1024, 1536, 10 * 1024 ** 2, 2 ** 50 * 3].map(bytes)).toEqual([
      "0 B",
      "1,023 B",
      "1 KiB",
      "1.5 KiB",
      "10 MiB",
      "3 PiB",
    ]));
  test("unknown is a dash and zero is zero", () => {
    expect([count(null), count(0), bytes(null), duration(null), duration(0)]).toEqual(["–", "0", "–", "–", "0 ms"]);
  });
  test("durations have two units at most", () => {
    expect([999, 1000, 61_000, 604_800_000, 90_061_000].map(duration)).toEqual(["999 ms", "1 s", "1 min 1 s", "7 d", "1 d 1 h"]);
  });
  test("times", () => {
    const at = Date.UTC(2026, 0, 2, 3, 4, 5, 6);
    expect(time(at, "utc", 0)).toBe("2026-01-02 03:04:05.006 UTC");
    expect(time(at, "relative", at + 65_000)).toBe("1 min 5 s ago");
    expect(time(at, "relative", at - 2000)).toBe("in 2 s");
    expect(time(9e15, "utc", 0)).toBe("9000000000000000");
  });
  test("settings in words", () => {
    expect([
      settingInWords("604800000", "ms"),
      settingInWords("-1", "ms"),
      settingInWords("1048576", "bytes"),
      settingInWords("abc", "ms"),
      settingInWords("9223372036854775807", "bytes"),
    ]).toEqual(["7 d", "", "1 MiB", "", "∞"]);
  });
});

describe("ring", () => {
  test("keeps the newest, in order, and counts all", () => {
    const ring = new Ring<number>(3);
    for (let i = 0; i < 8; i++) {
      ring.push(i);
      expect(ring.length).toBeLessThanOrEqual(3);
    }
    expect(ring.toArray()).toEqual([5, 6, 7]);
    expect(ring.total).toBe(8);
  });
});

describe("templates", () => {
  test("known words are filled in, others stay", () => {
    expect(fillTemplate('{"n":{{i}},"u":"{{uuid}}","t":{{now}},"x":"{{other}}"}', 7, 9, () => "U")).toBe(
      '{"n":7,"u":"U","t":9,"x":"{{other}}"}',
    );
  });
  test("a UUID is one of version 4", () =>
    expect(randomUUID()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/));
});

const setting = (name: string, value: string, more: Partial<Setting> = {}): Setting => ({
  name,
  value,
  default: "1",
  source: value === "1" ? "default" : "topic",
  scope: "topic",
  type: "long",
  unit: "ms",
  min: 0,
  max: 100,
  allowed_values: [],
  doc: "",
  ...more,
});

describe("settings", () => {
  test("a change back to the value is no change, and neither is resetting what is not set", () => {
    expect(
      prune({ a: "1", b: "5", c: null, d: null }, [setting("a", "1"), setting("b", "2"), setting("c", "1"), setting("d", "9")]),
    ).toEqual({ b: "5", d: null });
  });
  test("a patch names only what is saved", () => {
    expect(patchOf({ a: "5", b: null, c: "6" }, ["a", "b"])).toEqual({ set: { a: "5" }, unset: ["b"] });
    expect(patchOf({ a: "5" })).toEqual({ set: { a: "5" } });
  });
  test("what somebody else changed is told beside mine", () => {
    expect(
      conflicts([setting("a", "1"), setting("b", "1"), setting("c", "3")], [setting("a", "7"), setting("b", "1"), setting("c", "4")], {
        a: "8",
        b: "9",
      }),
    ).toEqual([
      { name: "a", was: "1", theirs: "7", mine: "8" },
      { name: "c", was: "3", theirs: "4", mine: null },
    ]);
  });
  test("values out of range are told before they are sent", () => {
    expect(["x", "-1", "101", "50", "1.5", ""].map((v) => faultOf(setting("a", "1"), v))).toEqual([
      "number",
      "min",
      "max",
      null,
      "number",
      "number",
    ]);
    expect(faultOf(setting("a", "1", { type: "double" }), "1.5")).toBeNull();
  });
});

describe("live tail", () => {
  class FakeSocket {
    static all: FakeSocket[] = [];
    sent: string[] = [];
    onopen: (() => void) | null = null;
    onmessage: ((e: { data: string }) => void) | null = null;
    onclose: ((e: { code: number; reason: string }) => void) | null = null;
    constructor(readonly url: string) {
      FakeSocket.all.push(this);
    }
    send(text: string) {
      this.sent.push(text);
    }
    close() {}
    say(frame: unknown) {
      this.onmessage?.({ data: JSON.stringify(frame) });
    }
  }
  test("after a break it goes on behind the last record of each partition, and a refusal is shown until it is none any more", () => {
    vi.useFakeTimers();
    vi.stubGlobal("WebSocket", FakeSocket);
    const states: TailState[] = [];
    const offsets: number[] = [];
    const tail = new LiveTail(
      { url: "ws://node", stream: "http://node/stream", topic: "t", q: "x", within: "key,value", previewBytes: 10 },
      { state: (s) => states.push(s), record: (r) => offsets.push(r.offset), loggedIn: () => Promise.resolve() },
    );
    tail.open();
    const first = FakeSocket.all.at(-1);
    first?.onopen?.();
    expect(JSON.parse(first?.sent[0] ?? "")).toEqual({
      op: "subscribe",
      topics: ["t"],
      from: "latest",
      encoding: "text",
      preview_bytes: 10,
      q: "x",
      q_in: ["key", "value"],
    });
    first?.say({ op: "subscribed" });
    first?.say({
      op: "assigned",
      partitions: [
        { topic: "t", partition: 0, next_offset: 5 },
        { topic: "t", partition: 1, next_offset: 0 },
      ],
    });
    first?.say({
      op: "records",
      records: [
        { partition: 0, offset: 5 },
        { partition: 0, offset: 9 },
      ],
    });
    first?.onclose?.({ code: 1006, reason: "" });
    vi.advanceTimersByTime(500);
    const second = FakeSocket.all.at(-1);
    expect(second).not.toBe(first);
    second?.onopen?.();
    expect(JSON.parse(second?.sent[0] ?? "").partitions).toEqual([
      { topic: "t", partition: 0, next_offset: 10 },
      { topic: "t", partition: 1, next_offset: 0 },
    ]);
    second?.say({ op: "error", problem: { detail: "no longer allowed" } });
    second?.onclose?.({ code: 4403, reason: "" });
    vi.advanceTimersByTime(9_000);
    expect(FakeSocket.all.at(-1)).toBe(second);
    expect(states).toEqual(["connecting", "open", "waiting", "connecting", "ended"]);
    // A right may come back: it is asked for now and then, and the refusal stays in sight until then.
    vi.advanceTimersByTime(1_000);
    const third = FakeSocket.all.at(-1);
    expect(third).not.toBe(second);
    expect(states).toHaveLength(5);
    third?.say({ op: "subscribed" });
    expect(states.at(-1)).toBe("open");
    tail.close();
    expect(offsets).toEqual([5, 9]);
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });
  test("where no WebSocket gets through, the records come as events", () => {
    vi.useFakeTimers();
    vi.stubGlobal("WebSocket", FakeSocket);
    const sources: string[] = [];
    const listeners = new Map<string, (e: { data: string }) => void>();
    class FakeSource {
      static CLOSED = 2;
      readyState = 1;
      onopen: (() => void) | null = null;
      onerror: (() => void) | null = null;
      constructor(url: string) {
        sources.push(url);
        setTimeout(() => this.onopen?.(), 1);
      }
      addEventListener(name: string, listener: (e: { data: string }) => void) {
        listeners.set(name, listener);
      }
      close() {}
    }
    vi.stubGlobal("EventSource", FakeSource);
    const states: TailState[] = [];
    const offsets: number[] = [];
    const tail = new LiveTail(
      { url: "ws://node", stream: "http://node/stream", topic: "t", previewBytes: 10 },
      { state: (s) => states.push(s), record: (r) => offsets.push(r.offset), loggedIn: () => Promise.resolve() },
    );
    tail.open();
    FakeSocket.all.at(-1)?.onclose?.({ code: 1006, reason: "" });
    vi.advanceTimersByTime(500);
    expect(sources).toEqual([]);
    FakeSocket.all.at(-1)?.onclose?.({ code: 1006, reason: "" });
    vi.advanceTimersByTime(1001);
    expect(sources).toEqual(["http://node/stream"]);
    listeners.get("record")?.({ data: JSON.stringify({ partition: 0, offset: 3 }) });
    expect(offsets).toEqual([3]);
    expect(states.at(-1)).toBe("open");
    tail.close();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });
});
