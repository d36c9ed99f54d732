// Does the main job against a real node with nothing but what Node has, the types that
// openapi-typescript makes of the document, and fetch: a topic is created, records are
// produced and read back, by fetch and by WebSocket. TEST_NODE is the node's address.
import assert from "node:assert/strict";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
type Method = "get" | "post" | "patch" | "delete";
type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M]>;
// Body and Answer are what the document says about application/json.
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : undefined;
type Answer<O, S extends number> = O extends { responses: Record<S, { content: { "application/json": infer A } }> } ? A : undefined;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Q : undefined;

const node = process.env["TEST_NODE"];
assert(node, "TEST_NODE is needed");
let token = "";

class Refused extends Error {
  constructor(readonly problem: Schemas["Problem"]) {
    super(`${problem.code}: ${problem.detail}`);
  }
}

async function call<P extends keyof paths, M extends Method, S extends number>(
  path: P,
  method: M,
  status: S,
  in_: { params?: Record<string, string>; query?: Query<Operation<P, M>>; body?: Body<Operation<P, M>> } = {},
): Promise<Answer<Operation<P, M>, S>> {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(in_.params?.[name] ?? ""));
  const query = new URLSearchParams(Object.entries(in_.query ?? {}).map(([k, v]) => [k, String(v)]));
  const headers: Record<string, string> = { Accept: "application/json" };
  if (token !== "") headers["Authorization"] = `Bearer ${token}`;
  const init: RequestInit = { method: method.toUpperCase(), headers };
  if (in_.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(in_.body);
  }
  const answer = await fetch(`${node}${filled}?${query}`, init);
  if (answer.status >= 400) throw new Refused((await answer.json()) as Schemas["Problem"]);
  assert.equal(answer.status, status, filled);
  return (await answer.json()) as Answer<Operation<P, M>, S>;
}

async function consume(topic: string, count: number): Promise<Schemas["RecordsFrame"]["records"]> {
  const { ticket } = await call("/v1/auth/tickets", "post", 200);
  const socket = new WebSocket(`${node!.replace(/^http/, "ws")}/v1/ws/consume?ticket=${ticket}`, "tidewire.v1.json");
  const records: Schemas["RecordsFrame"]["records"] = [];
  const ops: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const subscribe = { op: "subscribe", topics: [topic], from: "earliest" } satisfies Partial<Schemas["SubscribeFrame"]>;
    socket.onopen = () => socket.send(JSON.stringify(subscribe));
    socket.onerror = () => reject(new Error("the socket failed"));
    socket.onclose = (e) => reject(new Error(`the socket was closed: ${e.code} ${e.reason}`));
    socket.onmessage = (e) => {
      const frame = JSON.parse(String(e.data)) as { op: string };
      ops.push(frame.op);
      if (frame.op === "error") reject(new Refused((frame as Schemas["ErrorFrame"]).problem));
      if (frame.op !== "records") return;
      records.push(...(frame as Schemas["RecordsFrame"]).records);
      if (records.length >= count) resolve();
    };
  });
  socket.onclose = null;
  socket.close();
  assert.deepEqual(ops.slice(0, 2), ["subscribed", "assigned"]);
  return records;
}

const login = await call("/v1/auth/login", "post", 200, { body: { username: "admin", password: "tidewire" } });
assert("access_token" in login);
token = login.access_token;

const topic = "types.orders";
const made = await call("/v1/topics", "post", 201, { body: { name: topic, partitions: 2, config: { "retention.ms": "-1" } } });
assert.equal(made.partitions.length, 2);

const values = [{ id: 1, "ü": "é" }, "text", null, [1, 2.5]];
const produced = await call("/v1/topics/{topic}/records", "post", 200, {
  params: { topic },
  query: { acks: "all" },
  body: { records: values.map((value) => ({ key: "k", value, headers: [{ name: "h", value: "v" }] })) },
});
assert.equal(produced.results.length, values.length);
const partition = produced.results[0]!.partition;
assert(partition !== undefined && partition !== null);

const page = await call("/v1/topics/{topic}/partitions/{partition}/records", "get", 200, {
  params: { topic, partition: String(partition) },
  query: { offset: "earliest", max_records: 10 },
});
assert.deepEqual(page.records.map((r) => r.value), values);
assert.equal(page.next_offset, values.length);
assert.deepEqual(page.records[0]!.headers.map((h) => [h.name, h.value]), [["h", "v"]]);

const streamed = await consume(topic, values.length);
assert.deepEqual(streamed.map((r) => r.value), values);
assert.deepEqual(streamed.map((r) => r.offset), [0, 1, 2, 3]);

await assert.rejects(call("/v1/topics/{topic}", "get", 200, { params: { topic: "none" } }), (e) => e instanceof Refused && e.problem.code === "unknown-topic");
console.log("done");
