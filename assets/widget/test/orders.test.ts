import { describe, expect, test } from "vitest";
import { around, breaks } from "../src/lanewidget.js";
import type { OrderInfo } from "../src/pair.js";

describe("a list of steps around one of them", () => {
  test("has the step in its middle, and is full at both ends", () => {
    for (const steps of [1, 5, 9, 10, 40]) {
      for (let at = 0; at < steps; at++) {
        const [first, end] = around(at, steps, 9);
        expect(end - first).toBe(Math.min(9, steps));
        expect(first <= at && at < end).toBe(true);
        if (first > 0 && end < steps) expect(at - first).toBe(4);
      }
    }
  });

  test("begins with the list before the first step", () => {
    expect(around(-1, 20, 9)).toEqual([0, 9]);
    expect(around(-1, 0, 9)).toEqual([0, 0]);
  });
});

test("a step says each kind of hazard that it breaks once", () => {
  const order: OrderInfo = {
    claim: "", moved: [2], total: 3,
    broken: [["RAW", 1, 4, 32, "k", "…"], ["RAW", 1, 5, 32, "k", "…"], ["WAR", 0, 1, 16, "v", "…"]],
  };
  expect([...breaks(order)].sort(([a], [b]) => a - b)).toEqual([[0, ["WAR"]], [1, ["RAW", "WAR"]], [4, ["RAW"]], [5, ["RAW"]]]);
});
