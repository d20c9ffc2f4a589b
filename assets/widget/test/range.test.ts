// What a range of the timeline sums.
import { describe, expect, test } from "vitest";
import { buildIndex } from "../src/replay.js";
import { sumsOf } from "../src/range.js";
import { bytes, few, trace } from "./traces.js";

const raw = await bytes("growing.payload");
const whole = trace(raw);

describe("a range of steps", () => {
  test("that is all of a recording sums what its runs sum", () => {
    const { p } = whole;
    const sums = sumsOf(whole, [0, p.steps]);
    const total = (key: "allocated" | "copied" | "written") => p.runs.reduce((sum, r) => sum + r[key], 0);
    expect(sums).toMatchObject({ steps: p.steps, runs: 0, allocated: total("allocated"), copied: total("copied"), written: total("written") });
    expect(sums.missed).toBeGreaterThan(0);
  });

  test("names the step with its peak, and over all steps that of the trace", () => {
    const { p, x } = whole;
    expect(sumsOf(whole, [0, p.steps]).peak).toBe(x.peak);
    for (const [from, to] of [[10, 60], [300, 301], [700, 900]] as [number, number][]) {
      expect(p.step.live[sumsOf(whole, [from, to]).peak]).toBe(Math.max(...p.step.live.slice(from, to)));
    }
  });

  test("is the sum of its parts", () => {
    const { p } = whole;
    const parts = [[0, 17], [17, 18], [18, p.steps]].map((range) => sumsOf(whole, range as [number, number]));
    const all = sumsOf(whole, [0, p.steps]);
    for (const key of ["steps", "allocated", "copied", "written", "missed"] as const) expect(parts.reduce((sum, part) => sum + part[key], 0)).toBe(all[key]);
  });

  test("counts runs without steps by their totals", () => {
    const last = whole.p.runs.length - 1;
    const p = few(raw, [0, last]);
    const sums = sumsOf({ p, x: buildIndex(p) }, [0, p.steps]);
    const all = sumsOf(whole, [0, whole.p.steps]);
    expect(sums).toMatchObject({ runs: last - 1, steps: all.steps, copied: all.copied, written: all.written });
  });
});
