import { describe, expect, test } from "vitest";
import { change } from "../src/lanewidget.js";
import { curve, scaleOf } from "../src/timeline.js";
import { bytes } from "../src/format.js";
import { piece } from "../src/wire.js";
import { align, common, decided, groups, most, partner } from "../src/pair.js";
import type { Trace } from "../src/replay.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace } from "./traces.js";

/** By step of `a` the step of `b` with the same run, place and op, by walking up from each frame. */
function pairs(a: Trace, b: Trace): number[] {
  const keys = ({ p }: Trace) => [...Array(p.steps).keys()].map((s) => {
    let where = "";
    for (let f = p.step.frame[s]; f >= 0; f = p.frame.parent[f]) where += `${p.frame.run[f]}:${p.frame.graph[f]}:${p.frame.node[f]}:${p.frame.iteration[f]}/`;
    return `${where}${p.step.node[s]}`;
  });
  const there = new Map(keys(b).map((key, s) => [key, s]));
  return keys(a).map((key) => there.get(key) ?? -1);
}

describe("a cursor on two recordings", () => {
  const long = trace(branches(3));
  const short = trace(branches(2));
  const to = align(long.p, short.p);

  test("is aligned by run, frame and op", () => {
    expect([...to]).toEqual(pairs(long, short));
    expect([...align(short.p, long.p)]).toEqual(pairs(short, long));
  });

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
  const sum = (numbers: Float64Array) => numbers.reduce((n, x) => n + x, 0);

  test("of one run have no differences", () => {
    const [a, b] = [trace(llama(2, 3)), trace(llama(2, 3))];
    expect(groups(a, b, align(a.p, b.p))).toEqual([]);
  });

  test("differ nowhere in the runs that both have finished, where one only went on", () => {
    const [a, b] = [trace(branches(3)), trace(branches(2))];
    const extra = groups(a, b, align(a.p, b.p));
    expect(extra.flatMap((g) => g.gaps).length).toBe(a.p.runs[2].last - a.p.runs[2].first);
    expect(extra.every((g) => g.decided[1] === "not run")).toBe(true);
    expect(groups(a, b, align(a.p, b.p), 2)).toEqual([]);
  });

  test("differ by groups whose sums are the differences of the two, the most bytes first", () => {
    for (const [a, b] of [[trace(branches(3)), trace(branches(2))], [trace(llama(2, 3)), trace(llama(2, 4))]]) {
      // given one op that copied, and one that was in place, on one side only
      const one = b.p.steps - 2;
      b.p.step.copied[one] += 4096;
      b.p.step.alloc[1] += 64;
      // when
      const found = groups(a, b, align(a.p, b.p));
      // then
      expect(found.reduce((n, g) => n + g.copied, 0)).toBe(sum(b.p.step.copied) - sum(a.p.step.copied));
      expect(found.reduce((n, g) => n + g.allocated, 0)).toBe(sum(b.p.step.alloc) - sum(a.p.step.alloc));
      expect(found.map(most)).toEqual(found.map(most).sort((x, y) => y - x));
      for (const group of found) expect(group.copied).toBe(group.gaps.reduce((n, gap) => n + gap.copied, 0));
    }
  });

  test("differ where an op ran in place on one side only", () => {
    const [a, b] = [trace(branches(2)), trace(branches(2))];
    const one = stepOf(b, "neg");
    b.p.step.flags[one] ^= b.p.flag.inPlace;
    const found = groups(a, b, align(a.p, b.p));
    expect(found.map((g) => g.gaps)).toEqual([[{ a: one, b: one, copied: 0, allocated: 0 }]]);
    expect(found[0].decided).toEqual([decided(a, one), decided(b, one)]);
    expect(found[0].decided[0]).not.toBe(found[0].decided[1]);
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
});

test("payloads of other lanes are cut out of one piece of bytes", () => {
  const head = new TextEncoder().encode(JSON.stringify({ 1: [0, 3], "cache:1": [3, 2] }));
  const raw = new Uint8Array(4 + head.length + 5);
  new DataView(raw.buffer).setUint32(0, head.length, true);
  raw.set(head, 4);
  raw.set([1, 2, 3, 4, 5], 4 + head.length);
  const view = new DataView(raw.buffer);
  expect([...piece(view, "1")!]).toEqual([1, 2, 3]);
  expect([...piece(view, "cache:1")!]).toEqual([4, 5]);
  expect([piece(view, "2"), piece(null, "1")]).toEqual([null, null]);
});

test("the figures of both carry a sign and a share", () => {
  expect(change(2000, 1500, bytes)).toBe("−500 B (−25 %)");
  expect(change(1000, 1234, bytes)).toBe("+234 B (+23.4 %)");
  expect(change(0, 4, String)).toBe("+4");
  expect(change(7, 7, String)).toBe("no change");
  expect(change(3, 1203, String)).toBe("+1200 (+40,000 %)");
  expect(change(100_000, 100_001, String)).toBe("+1");
});
