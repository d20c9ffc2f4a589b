import { describe, expect, test } from "vitest";
import { curve, scaleOf } from "../src/curve.js";
import { common, differences, partner, unpackMatch } from "../src/pair.js";
import { change } from "../src/pairview.js";
import type { Trace } from "../src/replay.js";
import { bytes } from "../src/format.js";
import { pack } from "./encode.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace } from "./traces.js";

/** By step of `a` the step of `b` with the same run, place and op. */
function pairs(a: Trace, b: Trace): Int32Array {
  const keys = ({ p }: Trace) => [...Array(p.steps).keys()].map((s) => {
    let where = "";
    for (let f = p.step.frame[s]; f >= 0; f = p.frame.parent[f]) where += `${p.frame.run[f]}:${p.frame.graph[f]}:${p.frame.node[f]}:${p.frame.iteration[f]}/`;
    return `${where}${p.step.node[s]}`;
  });
  const there = new Map(keys(b).map((key, s) => [key, s]));
  return Int32Array.from(keys(a), (key) => there.get(key) ?? -1);
}

describe("a cursor on two recordings", () => {
  const long = trace(branches(3));
  const short = trace(branches(2));
  const to = pairs(long, short);

  test("goes to the step at which the same op of the same run ran", () => {
    for (const [name, time] of [["scale", 1], ["tanh", 4], ["sum", 1]] as const) {
      expect(partner(to, stepOf(long, name, time))).toEqual({ step: stepOf(short, name, time), exact: true });
    }
    expect(partner(to, -1)).toEqual({ step: -1, exact: true });
  });

  test("stays at the nearest earlier partner where the op did not run", () => {
    expect(partner(to, stepOf(long, "scale", 2))).toEqual({ step: short.p.steps - 1, exact: false });
    expect(partner(new Int32Array([-1, 4, -1, -1]), 3)).toEqual({ step: 4, exact: false });
    expect(partner(new Int32Array([-1, -1]), 1)).toEqual({ step: -1, exact: false });
  });

  test("never goes back when the order is the same on both sides", () => {
    const steps = [...Array(long.p.steps).keys()].map((s) => partner(to, s).step);
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
  });
});

describe("two recordings", () => {
  test("of one run have no differences", () => {
    const [a, b] = [trace(llama(2, 3)), trace(llama(2, 3))];
    expect(differences(a, b, pairs(a, b))).toEqual([]);
  });

  test("differ nowhere in the runs that both have finished, where one only went on", () => {
    const [a, b] = [trace(branches(3)), trace(branches(2))];
    expect(differences(a, b, pairs(a, b)).length).toBe(a.p.runs[2].last - a.p.runs[2].first);
    expect(differences(a, b, pairs(a, b), 2)).toEqual([]);
  });

  test("differ where an op ran in place on one side only, and where it is missing", () => {
    const [a, b] = [trace(branches(3)), trace(branches(2))];
    const one = stepOf(a, "neg");
    b.p.step.flags[stepOf(b, "neg")] ^= b.p.flag.inPlace;
    b.p.out.how[b.p.step.out[stepOf(b, "less")]] = 2;
    const found = differences(a, b, pairs(a, b));
    expect(found.slice(0, 2)).toEqual([stepOf(a, "less"), one]);
    expect(found.slice(2)).toEqual([...Array(a.p.steps).keys()].filter((s) => a.x.run[s] === 2));
  });

  test("are drawn on one scale, so that the smaller curve stays below and ends earlier", () => {
    const [a, b] = [trace(llama(2, 8)), trace(llama(1, 4))];
    const both = common(scaleOf(a), scaleOf(b));
    const [big, small] = [curve(a, 400, both), curve(b, 400, both)];
    expect([big.top, big.from]).toEqual([small.top, small.from]);
    expect(Math.max(...small.high.subarray(0, small.used))).toBe(b.p.step.live[b.x.peak]);
    expect(small.used).toBe(Math.ceil((b.p.steps / a.p.steps) * 400));
    expect(big.used).toBe(400);
    expect(small.from).toBeLessThanOrEqual(scaleOf(b).from);
  });

  test("are matched by what Python told", () => {
    const header = { labels: ["a", "b"], totals: [{ peak: 5 }, { peak: 3 }], first: null, back: true };
    const match = unpackMatch(pack(header as never, { "to.after": [0, -1, 1], "to.before": [0, 2] }));
    expect(match.labels).toEqual(["a", "b"]);
    expect(match.to.map((side) => [...side])).toEqual([[0, -1, 1], [0, 2]]);
  });
});

describe("the figures of both", () => {
  test("carry a sign and a share", () => {
    expect(change(2000, 1500, bytes)).toBe("−500 B (−25 %)");
    expect(change(1000, 1234, bytes)).toBe("+234 B (+23.4 %)");
    expect(change(0, 4, String)).toBe("+4");
    expect(change(7, 7, String)).toBe("no change");
    expect(change(3, 1203, String)).toBe("+1200 (+40,000 %)");
    expect(change(100_000, 100_001, String)).toBe("+1");
  });
});
