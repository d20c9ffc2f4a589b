import { beforeAll, describe, expect, test } from "vitest";
import { clamp, inRun, run, storageId, type Breakpoint } from "../src/debug.js";
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
});

test("a buffer is written B12, b12.3 or 12", () => {
  expect(["B12", "b12.3", "12", 12].map(storageId)).toEqual([12, 12, 12, 12]);
  expect(storageId("Concat")).toBeNaN();
});

test("a cursor outside the recording is brought to its ends", () => {
  expect([clamp(decode, -5), clamp(decode, 1e9), clamp(decode, 7)]).toEqual([-1, decode.p.steps - 1, 7]);
});
