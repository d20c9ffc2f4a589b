// Long recordings: the steps of some runs are here, the totals of all; steps keep their numbers.
import { describe, expect, test } from "vitest";
import { byRuns, curve, highest, position, scaleOf, span, under } from "../src/timeline.js";
import { Commands, type Message } from "../src/actions.js";
import { bare, bareRuns, buildIndex, findStep, notHere, placeOf } from "../src/replay.js";
import { memory } from "../src/listpanes.js";
import { Store } from "../src/store.js";
import { unpack } from "../src/wire.js";
import { branches, llama } from "./mock.js";
import { few } from "./traces.js";

const RAW = llama(1, 8);
const WHOLE = { p: unpack(RAW), x: buildIndex(unpack(RAW)) };
const KEEP = [0, 1, 4, 7];
const p = few(RAW, KEEP);
const x = buildIndex(p);
const now = (run: () => void) => run();

function opened(cursor = -1): { store: Store; commands: Commands; asked: Message[]; told: string[] } {
  const store = new Store(p, cursor, now);
  const asked: Message[] = [];
  const told: string[] = [];
  store.onPerson = (what) => void told.push(what);
  const ask = Object.assign((m: Message) => asked.push(m) > 0, { able: () => true });
  return { store, commands: new Commands(store, ask, () => {}), asked, told };
}

describe("steps", () => {
  test("that are not here are named where a query cannot find them, with their totals", () => {
    const gone = p.runs.filter((_, run) => !KEEP.includes(run));
    expect(notHere(p)).toContain(`The steps of ${gone.length} of ${p.runs.length} runs`);
    expect(notHere(p)).toContain("are not kept here. Totals say of them: ");
    expect(notHere(WHOLE.p)).toBe("");
  });

  test("that are not here are known by their run", () => {
    for (let number = 0; number < WHOLE.p.steps; number++) {
      const run = WHOLE.x.run[number];
      const found = findStep({ p, x }, number);
      expect(found.run).toBe(run);
      expect(found.step >= 0).toBe(KEEP.includes(run));
    }
    expect(findStep({ p, x }, WHOLE.p.steps + 99)).toEqual({ run: 7, step: p.steps - 1 });
    expect(findStep({ p, x }, -1).step).toBe(-1);
  });

  test("that have run and are still on their way from the kernel are waited for", () => {
    const empty = { ...few(RAW, []), total: 0, runs: [{ ...p.runs[0], first: 0, last: 0, from: 0, steps: 0 }], live: { frame: 0, frontier: [] } };
    const store = new Store(empty, -1, now);
    store.go(0, "model");
    expect([store.bare, store.number]).toEqual([-1, -1]);
    store.replace(p);
    store.go(0, "model");
    expect(store.number).toBe(0);
  });
});

describe("a bare run", () => {
  test("is one whose steps are not here, or were never recorded; what goes on is none", () => {
    expect(p.runs.map((_, run) => bare(p, run))).toEqual([false, false, true, true, false, true, true, false]);
    expect(bareRuns(p)).toBe(4);
    const never = { ...p, runs: p.runs.map((r, run) => (run === 2 ? { ...r, steps: 0 } : r)) };
    expect(bare(never, 2)).toBe(true);
    const begun = { ...p.runs[7], first: p.steps, last: p.steps, steps: 0, written: 0, allocated: 0 };
    expect(bare({ ...p, runs: [...p.runs, begun] }, 8)).toBe(false);
  });

  test("is visited on the way from one run to the next, forward and back", () => {
    const { store, commands } = opened(WHOLE.p.runs[1].last - 1);
    const seen: number[] = [];
    for (let i = 0; i < 3; i++) {
      commands.next();
      seen.push(store.bare);
    }
    expect(seen).toEqual([2, 3, -1]);
    expect([store.run, store.cursor]).toEqual([4, p.runs[4].first]);
    for (let i = 0; i < 3; i++) commands.back();
    expect([store.bare, store.run, store.cursor]).toEqual([-1, 1, p.runs[1].last - 1]);
  });

  test("is passed by a whole run at a time, and the op stays the one that was looked at", () => {
    const { store, commands } = opened(p.runs[1].first + 5);
    const node = p.step.node[store.cursor];
    for (let i = 0; i < 3; i++) commands.nextRun();
    expect([store.run, p.step.node[store.cursor]]).toEqual([4, node]);
    for (let i = 0; i < 3; i++) commands.previousRun();
    expect([store.run, store.cursor]).toEqual([1, p.runs[1].first + 5]);
  });

  test("is told to Python as its last step, and a jump to one of its steps goes to it", () => {
    const { store, told } = opened();
    store.go(WHOLE.p.runs[3].first + 4);
    expect([store.bare, store.run, store.number]).toEqual([3, 3, WHOLE.p.runs[3].last - 1]);
    expect(told).toEqual(["cursor"]);
    store.seek(0);
    expect([store.bare, store.number]).toEqual([-1, 0]);
  });

  test("gives way to its steps when they arrive: to the one that was asked for, else to the same op", () => {
    const { store } = opened(p.runs[1].first + 5);
    const node = p.step.node[store.cursor];
    store.toRun(3);
    store.replace(few(RAW, [...KEEP, 3]));
    expect([store.bare, store.run, store.t.p.step.node[store.cursor]]).toEqual([-1, 3, node]);
    store.go(WHOLE.p.runs[5].first + 2);
    store.replace(few(RAW, [0, 5, 7]));
    expect(store.number).toBe(WHOLE.p.runs[5].first + 2);
  });

  test("is what is left of a run whose steps were taken away", () => {
    const { store } = opened(WHOLE.p.runs[4].first + 3);
    store.replace(few(RAW, [0, 7]));
    expect([store.bare, store.run]).toEqual([4, 4]);
  });

  test("does not stand between the last run and the live edge", () => {
    const { store, commands, asked } = opened(p.total - 1);
    const begun = { ...p.runs[7], first: p.steps, last: p.steps, from: p.total, steps: 0, written: 0, allocated: 0 };
    store.replace({ ...p, runs: [...p.runs, begun], live: { frame: p.step.frame[p.steps - 1], frontier: [] } });
    commands.next();
    expect(asked.map((m) => m.do)).toEqual(["over"]);
    expect(store.bare).toBe(-1);
  });

  test("stops a walk backwards into it only where it lies between", () => {
    const { store, commands } = opened(p.runs[1].first);
    commands.back();
    expect([store.bare, store.cursor]).toEqual([-1, p.runs[0].last - 1]);
  });
});

describe("the timeline of a long recording", () => {
  test("gives every run the same room, and the step or run under the cursor back", () => {
    const { store } = opened();
    expect([byRuns(store), span(store)]).toEqual([true, 8]);
    for (const step of [0, p.runs[1].first, p.runs[4].first + 7, p.steps - 1]) {
      store.seek(step);
      expect(under(store, position(store))).toEqual({ run: x.run[step], step });
    }
    store.visit(5);
    expect(under(store, position(store))).toEqual({ run: 5, step: -1 });
  });

  test("reaches to the highest peak of all runs", () => {
    const high = { ...p, runs: p.runs.map((r, run) => (run === 5 ? { ...r, peak: 10 * r.peak } : r)) };
    expect(highest(high)).toBe(5);
    expect(scaleOf({ p: high, x }).top).toBe(high.runs[5].peak);
    expect(curve({ p, x }, 100).top).toBe(Math.max(...p.runs.map((r) => r.peak)));
  });
});

test("an op of another graph than the frontier's cannot be chosen by its number", () => {
  const t = branches(1, true);
  const store = new Store(unpack(t), unpack(t).steps - 1, now);
  const asked: Message[] = [];
  const commands = new Commands(store, Object.assign((m: Message) => asked.push(m) > 0, { able: () => true }), () => {});
  const { node } = store.now.choices[0];
  commands.choose(node, 3);
  expect(asked).toEqual([]);
  commands.choose(node, 0);
  expect(asked).toEqual([{ do: "choose", node, frame: store.now.next, at: store.number }]);
});

test("another op of a recorded step is asked for as a fork there; the one that ran next is only a step", () => {
  const t = branches(2);
  const asked: Message[] = [];
  let forks = 0;
  for (let cursor = 0; cursor < unpack(t).steps - 1; cursor++) {
    const store = new Store(unpack(t), cursor, now);
    const commands = new Commands(store, Object.assign((m: Message) => asked.push(m) > 0, { able: () => true }), () => {});
    const next = Math.min(...store.now.choices.map((c) => c.step).filter((step) => step >= 0));
    for (const { node, step } of store.now.choices) {
      store.seek(cursor);
      asked.length = 0;
      commands.choose(node);
      if (step === next) expect([asked, store.cursor]).toEqual([[], step]);
      else expect(asked).toEqual([{ do: "fork", step: store.number + 1, change: { run: { node } }, at: store.number }]);
      forks += asked.length;
    }
  }
  expect(forks).toBeGreaterThan(0);
});

test("caches of a run are told as such where the run before does not say where it left them", () => {
  const caches = p.caches.map((c) => ({ ...c, storage: c.storage.map((s, run) => (KEEP.includes(run) ? s : -1)) }));
  const store = new Store({ ...p, caches }, p.runs[4].from, now);
  const main = p.step.frame[p.runs[4].first];
  const pasts = p.caches.map((c) => placeOf({ p, x }, main, p.graphs[0].values.indexOf(c.input), -1)!.storage);
  const { bars, held } = memory(store.t, store.now, store.cursor, false, new Set());
  expect(new Set(pasts).size).toBe(2);
  expect(held.caches).toBe(pasts.reduce((sum, s) => sum + p.storage.capacity[s], 0));
  expect(bars.filter((b) => b.cache >= 0).map((b) => b.id).sort()).toEqual([...pasts].sort());
  expect(bars.find((b) => b.id === pasts[0])!.note).toBe(`${p.caches[0].valid[3]}\u2009/\u2009${p.caches[0].capacity[3]}`);
});
