import { expect, test } from "vitest";
import { copies, plannedRow, rowOf, targets, throttleBytes } from "./moves";

test("a result tells where a partition was and where it goes", () => {
  const base = { topic: "t", partition: 1 };
  expect(rowOf({ ...base, replicas: [1, 2, 3], adding: [3], removing: [1], problem: null })).toEqual({
    ...base,
    from: [1, 2],
    to: [2, 3],
    problem: null,
  });
  expect(rowOf({ ...base, replicas: [], adding: [], removing: [], problem: { detail: "no such node" } }).problem).toBe("no such node");
});

test("only what is new somewhere is copied", () => {
  const row = (from: number[], to: number[]) => plannedRow({ topic: "t", partition: 0, from, to });
  expect(copies([row([1, 2], [2, 1]), row([1, 2], [3, 2]), row([1], [2, 3])])).toBe(3);
  expect(copies([])).toBe(0);
});

test("spread, the partitions take turns with who leads", () => {
  expect(targets([0, 3, 4, 7], [2, 3, 1], true).map((t) => t.replicas)).toEqual([
    [2, 3, 1],
    [3, 1, 2],
    [1, 2, 3],
    [2, 3, 1],
  ]);
  expect(targets([0, 1], [2, 3], false)).toEqual([
    { partition: 0, replicas: [2, 3] },
    { partition: 1, replicas: [2, 3] },
  ]);
  expect(targets([0], [], true)).toEqual([{ partition: 0, replicas: [] }]);
});

test("no throttle, a throttle and its end are told apart", () => {
  expect(throttleBytes("")).toBeUndefined();
  expect(throttleBytes(0)).toBe(0);
  expect(throttleBytes(50)).toBe(52428800);
  expect(throttleBytes(-1)).toBeUndefined();
});
