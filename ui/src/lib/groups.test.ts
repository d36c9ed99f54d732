import { describe, expect, test } from "vitest";
import { changedOffsets } from "../parts/editOffsets";
import { cliOf } from "../parts/resetOffsets";
import { example, filled, operations } from "./document";
import { movesInAll, type ResetForm, ranges, resetBody } from "./resets";
import { sample, sampleKinds } from "./samples";

const form = (change: Partial<ResetForm>): ResetForm => ({
  to: "earliest",
  number: "0",
  time: 5,
  topics: [],
  partitions: [],
  ...change,
});

describe("resets", () => {
  test("the request says what the form means, and nothing where the form is not complete", () => {
    expect(resetBody(form({}))).toEqual({ to: "earliest" });
    expect(resetBody(form({ to: "latest", topics: ["a", "b"] }))).toEqual({ to: "latest", topics: ["a", "b"] });
    expect(resetBody(form({ to: "timestamp" }))).toEqual({ to: "timestamp", value: 5 });
    expect(resetBody(form({ to: "timestamp", time: undefined }))).toBeNull();
    expect(resetBody(form({ to: "shift", number: "-3" }))).toEqual({ to: "shift", value: -3 });
    for (const number of ["", "-", "-3", "1.5", "1e3", "9007199254740993"]) expect(resetBody(form({ to: "offset", number }))).toBeNull();
    expect(resetBody(form({ topics: ["a"], partitions: ["0", "2"] }))).toEqual({
      to: "earliest",
      partitions: [
        { topic: "a", partition: 0 },
        { topic: "a", partition: 2 },
      ],
    });
  });
  test("the command line says the same", () => {
    expect(cliOf("it's", form({ to: "shift", number: "-3", topics: ["a"], partitions: ["0", "2"] }))).toBe(
      `tidewire group reset 'it'\\''s' --to shift --value -3 --topic a --partition 0,2 --dry-run`,
    );
  });
  test("a plan's sum counts both ways apart, and what was never committed in neither", () => {
    const move = (from: number | null, to: number) => ({ topic: "t", partition: 0, from, to });
    expect(movesInAll([move(5, 2), move(1, 9), move(null, 7), move(4, 4)])).toEqual({ again: 3, over: 8 });
  });
  test("runs of partitions are drawn together", () => {
    expect([ranges([]), ranges([3]), ranges([1, 0]), ranges([4, 0, 1, 2, 9, 10])]).toEqual(["", "3", "0, 1", "0–2, 4, 9, 10"]);
  });
});

test("only offsets that were changed are stored, with the metadata that they had", () => {
  const offset = (partition: number, next_offset: number | null) =>
    ({ topic: "t", partition, next_offset, metadata: `m${partition}` }) as Parameters<typeof changedOffsets>[0][number];
  const typed = { "t 0": "5", "t 1": "7", "t 2": "", "t 3": "1" };
  expect(changedOffsets([offset(0, 5), offset(1, 5), offset(2, 5), offset(3, null), offset(4, 1)], typed)).toEqual([
    { topic: "t", partition: 1, next_offset: 7, metadata: "m1" },
    { topic: "t", partition: 3, next_offset: 1, metadata: "m3" },
  ]);
});

test("samples name the group as its address does, whatever it is called", () => {
  const ask = { base: "http://node/x", group: `a'b/c`, topic: "t" };
  for (const kind of sampleKinds.filter((k) => k !== "CLI"))
    expect(sample(kind, ask)).toContain("v1/groups/a'b%2Fc/members".replace("'", kind === "curl" ? `'\\''` : "'"));
  expect(sample("CLI", ask)).toContain(`--group='a'\\''b/c'`);
});

describe("the reference", () => {
  const doc = {
    paths: {
      "/v1/topics/{topic}": {
        post: {
          operationId: "make",
          tags: ["Topics"],
          parameters: [
            { name: "topic", in: "path", required: true, schema: { type: "string" } },
            { name: "dry_run", in: "query", schema: { type: "boolean", default: false } },
          ],
          requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/In" } } } },
          responses: { "201": { description: "made" } },
        },
      },
    },
    components: {
      schemas: {
        In: {
          type: "object",
          required: ["name", "list", "kind"],
          properties: {
            name: { type: "string" },
            list: { type: "array", items: { $ref: "#/components/schemas/In" } },
            kind: { enum: ["a", "b"] },
            more: { type: "integer" },
          },
        },
      },
    },
  };
  test("a call is read with its parameters, and an example of its body that has what it must, even of a type that holds itself", () => {
    const [op] = operations(doc);
    expect(op).toMatchObject({ id: "make", method: "POST", tag: "Topics", takes: ["application/json"] });
    expect(op?.body).toMatchObject({ name: "", kind: "a", list: [{ kind: "a" }] });
    expect(example(doc, undefined)).toEqual({});
  });
  test("its path is filled in, and what is empty left out", () => {
    const [op] = operations(doc);
    if (!op) throw new Error("no operation");
    expect(filled(op, { "path topic": "a/b" })).toBe("/v1/topics/a%2Fb");
    expect(filled(op, { "path topic": "t", "query dry_run": "true" })).toBe("/v1/topics/t?dry_run=true");
  });
});
