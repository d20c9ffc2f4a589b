import { beforeAll, describe, expect, test } from "vitest";
import { back, clamp, inRun, into, out, over, run, storageId, type Breakpoint } from "../src/debug.js";
import { use } from "../src/modules.js";
import query from "../src/query.js";
import { runAt, type Trace } from "../src/replay.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace } from "./traces.js";

const nextRun = (t: Trace, cursor: number) => inRun(t, cursor, cursor < 0 ? 0 : runAt(t, cursor) + 1);
const previousRun = (t: Trace, cursor: number) => (runAt(t, cursor) > 0 ? inRun(t, cursor, runAt(t, cursor) - 1) : -1);

const decode = trace(llama(2, 8));
const forked = trace(branches(3));
beforeAll(() => void use(query));
const stop = (kind: Breakpoint["kind"], value: string | number): Breakpoint => ({ kind, value, enabled: true });

describe("stepping", () => {
  test("over an If runs its whole branch, into it runs its first op", () => {
    const before = stepOf(forked, "scale");
    expect(over(forked, before)).toBe(stepOf(forked, "choose"));
    expect(into(forked, before)).toBe(stepOf(forked, "relu"));
  });

  test("over goes from one turn of a Loop to the next and then to the Loop itself", () => {
    const tanh = stepOf(forked, "tanh");
    expect(over(forked, tanh)).toBe(stepOf(forked, "mul", 1));
    expect(over(forked, stepOf(forked, "tanh", 2))).toBe(stepOf(forked, "repeat"));
  });

  test("back undoes over, at every step of a main graph", () => {
    for (let cursor = -1; cursor < forked.p.steps - 1; cursor++) {
      if (cursor >= 0 && forked.x.depth[forked.p.step.frame[cursor]] > 0) continue;
      expect(back(forked, over(forked, cursor)!)).toBe(cursor);
    }
    expect(back(forked, 0)).toBe(-1);
    expect(back(forked, -1)).toBe(-1);
  });

  test("out of a body ends at its node, out of a main graph's block at that block's end", () => {
    expect(out(forked, stepOf(forked, "relu"))).toBe(stepOf(forked, "choose"));
    expect(out(decode, stepOf(decode, "q_proj"))).toBe(stepOf(decode, "residual"));
    // already at a block's end: the next block
    const end = out(decode, stepOf(decode, "q_proj"))!;
    expect(decode.p.step.node[out(decode, end)!]).toBe(decode.p.step.node[stepOf(decode, "residual", 1)]);
  });

  test("past the end there is nothing recorded", () => {
    const last = forked.p.steps - 1;
    expect([into(forked, last), over(forked, last), out(forked, last), nextRun(forked, last)]).toEqual([null, null, null, null]);
  });
});

describe("decode steps", () => {
  test("next and previous stay on the same op", () => {
    const at = stepOf(decode, "k_cache", 6);
    const next = nextRun(decode, at)!;
    expect(decode.p.step.node[next]).toBe(decode.p.step.node[at]);
    expect(next).toBeGreaterThan(at);
    expect(previousRun(decode, next)).toBe(at);
  });

  test("an op of a branch that the next run does not take leads to that run's end", () => {
    expect(nextRun(forked, stepOf(forked, "relu"))).toBe(forked.p.runs[1].last - 1);
  });

  test("the same turn of a Loop is found, not just the same node", () => {
    expect(inRun(forked, stepOf(forked, "mul", 1), 2)).toBe(stepOf(forked, "mul", 7));
  });

  test("from before the first step the first token is run", () => {
    expect(nextRun(decode, -1)).toBe(decode.p.runs[0].last - 1);
    expect(previousRun(decode, 5)).toBe(-1);
    expect(inRun(decode, 5, 99)).toBeNull();
  });
});

describe("continue", () => {
  test("stops at an op type whatever its case, and goes on from there", () => {
    const first = run(forked, -1, 1, [stop("op", "tanh")]);
    expect(first.cursor).toBe(stepOf(forked, "tanh"));
    expect(run(forked, first.cursor, 1, [stop("op", "Tanh")]).cursor).toBe(stepOf(forked, "tanh", 1));
  });

  test("stops where a buffer is made, overwritten, shared or freed, and nowhere else", () => {
    const { p } = forked;
    const s = p.out.storage[p.step.out[stepOf(forked, "mul")]];
    const stops: number[] = [];
    for (let at = run(forked, -1, 1, [stop("buffer", `B${s}`)]); at.by; at = run(forked, at.cursor, 1, [stop("buffer", s)])) stops.push(at.cursor);
    expect(stops).toEqual([stepOf(forked, "mul"), stepOf(forked, "tanh")]);
  });

  test("backwards stops at the same steps as forwards", () => {
    const missed = [stop("decision", "missed")];
    const forward: number[] = [];
    for (let at = run(forked, -1, 1, missed); at.by; at = run(forked, at.cursor, 1, missed)) forward.push(at.cursor);
    const backward: number[] = [];
    for (let at = run(forked, forked.p.steps, -1, missed); at.by; at = run(forked, at.cursor, -1, missed)) backward.push(at.cursor);
    expect(forward.length).toBeGreaterThan(1);
    expect(backward.reverse()).toEqual(forward);
    for (const i of forward) expect(forked.p.step.flags[i] & forked.p.flag.missed).not.toBe(0);
  });

  test("with nothing that stops it goes to the end, and back to the beginning", () => {
    const off = [{ ...stop("op", "Tanh"), enabled: false }, stop("condition", "True")];
    expect(run(forked, 3, 1, off)).toEqual({ cursor: forked.p.steps - 1, by: null });
    expect(run(forked, 3, -1, off)).toEqual({ cursor: -1, by: null });
  });

  test("knows the decisions that Python knows", () => {
    const hits = (value: string) => run(decode, -1, 1, [stop("decision", value)]).cursor;
    const first = (test: (i: number) => boolean) => [...Array(decode.p.steps).keys()].find(test);
    const { flag, step: { flags, copied, taken } } = decode.p;
    expect(hits("in_place")).toBe(first((i) => (flags[i] & flag.inPlace) > 0));
    expect(hits("run")).toBe(first((i) => !taken[i]));
    expect(hits("view")).toBe(first((i) => (flags[i] & flag.view) > 0));
    expect(hits("copied")).toBe(first((i) => copied[i] > 0));
  });
});

test("a buffer is written B12, b12.3 or 12", () => {
  expect(["B12", "b12.3", "12", 12].map(storageId)).toEqual([12, 12, 12, 12]);
  expect(storageId("Concat")).toBeNaN();
});

test("a cursor outside the recording is brought to its ends", () => {
  expect([clamp(decode, -5), clamp(decode, 1e9), clamp(decode, 7)]).toEqual([-1, decode.p.steps - 1, 7]);
});
