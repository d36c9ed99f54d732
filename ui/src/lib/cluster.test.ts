import { expect, test } from "vitest";
import { t } from "../i18n";
import { consoleOf, findings, replicaRows } from "./cluster";

type Cluster = Parameters<typeof findings>[0];
type Broker = Cluster["brokers"][number];

const node = (id: number, more: Partial<Broker> = {}): Broker =>
  ({ id, state: "online", role: "voter", out_of_sync: 0, draining: false, ...more }) as Broker;
const cluster = (more: Partial<Cluster> = {}): Cluster => ({
  quorum: { available: true, voters: [1, 2, 3], online: [1, 2, 3], majority: 2 },
  brokers: [node(1, { role: "controller" }), node(2), node(3)],
  offline_partitions: 0,
  under_replicated_partitions: 0,
  under_min_isr_partitions: 0,
  ...more,
});
const said = (more: Partial<Cluster>) => findings(cluster(more)).map((f) => t(f.key, f.values));

test("a cluster without trouble is healthy, and that is all", () => {
  expect(said({})).toEqual(["Healthy"]);
  expect(findings(cluster())[0]?.color).toBe("teal");
});

test("replicas that lag are told with their nodes", () => {
  expect(said({ under_replicated_partitions: 3, brokers: [node(1), node(2, { out_of_sync: 3 }), node(3)] })).toEqual([
    "3 partitions are under-replicated on node 2",
  ]);
  expect(said({ under_replicated_partitions: 1, brokers: [node(1), node(2, { out_of_sync: 1 }), node(3, { out_of_sync: 1 })] })).toEqual([
    "1 partition is under-replicated on nodes 2, 3",
  ]);
  expect(said({ under_replicated_partitions: 2 })).toEqual(["2 partitions are under-replicated"]);
});

test("the worst is said first", () => {
  const all = findings(
    cluster({
      quorum: { available: false, voters: [1, 2, 3], online: [1], majority: 2 },
      offline_partitions: 4,
      under_min_isr_partitions: 2,
      under_replicated_partitions: 9,
      brokers: [
        node(1),
        node(2, { state: "offline", out_of_sync: 9 }),
        node(3, { state: "offline", out_of_sync: 9 }),
        node(4, { state: "draining", draining: true }),
      ],
    }),
  );
  expect(all.map((f) => f.key)).toEqual([
    "health.quorum",
    "health.offline",
    "health.minIsr",
    "health.nodes",
    "health.underOn",
    "health.draining",
  ]);
  expect(all.map((f) => f.color)).toEqual(["red", "red", "red", "yellow", "yellow", "yellow"]);
  expect(t("health.quorum", all[0]?.values)).toContain("1 of 3 voting nodes");
});

test("an election is told apart from a lost quorum", () => {
  const quorum = { available: false, voters: [1, 2, 3], online: [1, 3], majority: 2 };
  expect(findings(cluster({ quorum })).map((f) => f.key)).toEqual(["health.noController"]);
});

test("a node's own console is known by its address alone", () => {
  expect(consoleOf("10.0.0.2:8080", { protocol: "https:" }, "/x/ui/nodes/2")).toBe("https://10.0.0.2:8080/x/ui/nodes/2");
  expect(consoleOf(null, { protocol: "http:" }, "/ui/")).toBeNull();
});

test("replicas are as their leader knows them", () => {
  const state = (broker: number, more: object) => ({
    broker,
    in_sync: true,
    log_end_offset: 10,
    stable_offset: 10,
    lag: 0,
    last_caught_up_ms: 1000,
    ...more,
  });
  const rows = replicaRows(
    {
      leader: 2,
      replicas: [1, 2, 3],
      isr: [1, 2],
      adding: [],
      replica_states: [
        state(1, {}),
        state(2, { stable_offset: null, last_caught_up_ms: null }),
        state(3, { in_sync: false, log_end_offset: 4, lag: 6 }),
      ],
    },
    5000,
  );
  expect(rows).toEqual([
    { broker: 1, role: "in-sync", end: 10, lag: 0, behindMs: null },
    { broker: 2, role: "leader", end: 10, lag: 0, behindMs: null },
    { broker: 3, role: "out-of-sync", end: 4, lag: 6, behindMs: 4000 },
  ]);
});

test("replicas of a partition without a leader are as the metadata knows them", () => {
  expect(replicaRows({ leader: null, replicas: [1, 2], isr: [2], adding: [], replica_states: [] }, 0)).toEqual([
    { broker: 1, role: "out-of-sync", end: null, lag: null, behindMs: null },
    { broker: 2, role: "in-sync", end: null, lag: null, behindMs: null },
  ]);
});

test("a replica that a move adds is told apart from one that has fallen behind", () => {
  const rows = replicaRows({ leader: 1, replicas: [1, 2, 3], isr: [1], adding: [3], replica_states: [] }, 0);
  expect(rows.map((r) => r.role)).toEqual(["leader", "out-of-sync", "adding"]);
});
