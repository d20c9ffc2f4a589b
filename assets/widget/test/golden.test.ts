// What Python says at many cursors of real traces, the page must say after it; written by tests/view/golden.py.
import { describe, expect, test } from "vitest";
import { unpackCaches } from "../src/cachedata.js";
import { use } from "../src/modules.js";
import query from "../src/query.js";
import * as debug from "../src/debug.js";
import { around } from "../src/participants.js";
import { frontierAt, readyAt, unpackPlan } from "../src/planner.js";
import { alive, capacity, frameAt, frontier, frontierFrame, generation, nodeStates, numberOf, outcome, placeOf, stack, type Trace } from "../src/replay.js";
import { CODES, METERS, STATES } from "./codes.js";
import { bytes, golden as recorded, NAMES } from "./traces.js";

const json = async (name: string) => JSON.parse(new TextDecoder().decode(await bytes(name)));

type Move = "over" | "into" | "out" | "back";
interface Golden {
  step: number; cursor: number;
  frames: [string][];
  frontier: string[];
  costs?: [number, number][];
  places: [string, number, number, string][][]; // by frame: value, storage, generation, how
  nodes?: string[];
  live?: number[];
  decision?: {
    node: string; op: string; dispatch: string; outcome: string; ended: string; taken: number[]; outs: [string, number, number, string, number, number][]; freed: number[];
    bytes: number[]; blockers: [string, number, string, string, number][]; sentence: string; rule: string; hidden: number;
  };
  moves?: Record<Move, number | null>;
}
interface File { states: Golden[]; stops: [string, string | number, number[]][] }

function between(offsets: ArrayLike<number>, at: number): number[] {
  return Array.from({ length: offsets[at + 1] - offsets[at] }, (_, i) => offsets[at] + i);
}

function places(t: Trace, frame: number, cursor: number): Golden["places"][0] {
  const { p } = t;
  const found: Golden["places"][0] = [];
  p.graphs[p.frame.graph[frame]].values.forEach((name, value) => {
    const place = placeOf(t, frame, value, cursor);
    if (!place) return;
    const how = place.from === "bind" ? p.codes.binding[p.bind.how[place.entry]] : p.codes.how[p.out.how[place.entry]];
    if (how !== "weight") found.push([name, place.storage, place.gen, how]);
  });
  return found.sort((a, b) => (a[0] < b[0] ? -1 : 1));
}

function decision(t: Trace, step: number): Golden["decision"] {
  const { p } = t;
  const g = p.graphs[p.frame.graph[p.step.frame[step]]];
  const [node, op, , inputs] = g.nodes[p.step.node[step]];
  const taken = inputs.map((_, i) => i).filter((i) => (p.step.taken[step] >> i) & 1);
  return {
    node, op, taken,
    dispatch: taken.length ? "in_place" : "run",
    outcome: outcome(p, p.step.flags[step]), ended: p.strings[p.step.end[step]],
    outs: between(p.step.out, step).map((o) => [g.values[p.out.value[o]], p.out.storage[o], p.out.gen[o], p.codes.how[p.out.how[o]], p.out.offset[o], p.out.bytes[o]]),
    freed: between(p.step.free, step).map((k) => p.free.storage[k]),
    bytes: [p.step.live[step], p.step.alloc[step], p.step.copied[step], p.step.written[step]],
    blockers: between(p.step.block, step).map((k) => [p.strings[p.block.code[k]], p.block.input[k], p.strings[p.block.culprit[k]], p.strings[p.block.message[k]], p.block.bytes[k]]),
    sentence: p.strings[p.step.sentence[step]], rule: p.strings[p.step.rule[step]],
    hidden: around(t, step, false)?.hidden ?? 0,
  };
}

const sorted = (numbers: Iterable<number>) => [...numbers].sort((a, b) => a - b);

test("ten traces are there, with 200 cursors of each that is long enough", () => {
  expect(NAMES.length).toBeGreaterThanOrEqual(10);
});

describe.each(NAMES)("of %s", async (name) => {
  const t = await recorded(name);
  const { p } = t;
  const { states, stops } = (await json(`${name}.json.gz`)) as File;
  const each = (check: (golden: Golden, cursor: number) => void) => states.forEach((golden) => check(golden, golden.cursor));

  test("steps have the numbers that they have in Python", () => each(({ step }, cursor) => expect(numberOf(t, cursor)).toBe(step)));

  test("the frames and the frontier are those of the headless debugger", () => each((golden, cursor) => {
    const f = frontierFrame(t, cursor);
    const labels = f < 0 ? [] : stack(t, f).map((frame) => [p.strings[p.frame.label[frame]]]);
    const choices = frontier(t, cursor);
    const nodes = f < 0 ? [] : p.graphs[p.frame.graph[f]].nodes;
    expect([cursor, labels, choices.map((c) => nodes[c.node][0])]).toEqual([cursor, golden.frames, golden.frontier]);
    if (golden.costs) expect(choices.map((c) => [c.alloc, c.frees])).toEqual(golden.costs);
  }));

  test("every value of these frames lies where Python says, and all others nowhere", () => each((golden, cursor) => {
    const f = frontierFrame(t, cursor);
    const told = golden.places.map((frame) => frame.sort((a, b) => (a[0] < b[0] ? -1 : 1)));
    expect([cursor, f < 0 ? [] : stack(t, f).map((frame) => places(t, frame, cursor))]).toEqual([cursor, told]);
  }));

  test("the storages that are alive while a step runs are Python's, to the byte", () => each(({ live }, cursor) => {
    if (!live) return;
    const freed = between(p.step.free, cursor).map((k) => p.free.storage[k]);
    const here = sorted(new Set([...alive(t, cursor), ...freed]));
    expect([cursor, here]).toEqual([cursor, live]);
    expect(here.reduce((sum, s) => sum + capacity(t, s, cursor), 0)).toBe(p.step.live[cursor]);
  }));

  test("generations are those of the outputs that were placed last", () => each(({ decision: told }, cursor) => {
    for (const [, storage, gen] of told?.outs ?? []) expect(generation(t, storage, cursor)).toBe(gen);
  }));

  test("nodes show how they ended", () => each(({ nodes }, cursor) => {
    if (nodes) expect([cursor, nodeStates(t, frameAt(t, cursor), cursor)]).toEqual([cursor, nodes]);
  }));

  test("a decision is told in full", () => each(({ decision: told }, cursor) => {
    if (told) expect(decision(t, cursor)).toEqual(told);
  }));

  test("moves lead where those of the headless debugger do", () => each(({ moves }, cursor) => {
    if (!moves) return;
    const { over, into, out, back } = debug;
    expect([cursor, { over: over(t, cursor), into: into(t, cursor), out: out(t, cursor), back: back(t, cursor) }]).toEqual([cursor, moves]);
  }));

  test("breakpoints stop at the same steps", () => {
    use(query);
    for (const [kind, value, at] of stops) {
      const hit = debug.predicate(t, { kind, value, enabled: true })!;
      const mine = Array.from({ length: p.steps }, (_, step) => step).filter(hit);
      expect([kind, value, mine]).toEqual([kind, value, at]);
    }
  });

  test("the tables of codes are those that made-up payloads have", () => expect(p.codes).toEqual(CODES));
});

test("caches have the states and meters that made-up payloads have", async () => {
  const d = unpackCaches(await bytes("caches.payload"));
  expect([d.states, d.meters]).toEqual([STATES, METERS]);
  expect(Math.max(...d.measured.rows_written)).toBeGreaterThan(0);
});

test("the frontier of a plan is Python's at every event", async () => {
  const plan = unpackPlan(await bytes("plan.payload"));
  const told = (await json("plan.json.gz")) as { phase: string; action: string; node: string | null; frontier: string[]; ready: string[] }[];
  const { p, e } = plan;
  const named = (nodes: number[]) => nodes.map((node) => p.graphs[0].nodes[node][0]);
  const mine = Array.from(e.node, (node, i) => ({
    phase: p.strings[e.phase[i]], action: p.strings[e.action[i]], node: node < 0 ? null : named([node])[0],
    frontier: named(frontierAt(plan, i)), ready: named(readyAt(plan, i)),
  }));
  expect(mine).toEqual(told);
  expect(plan.picks.length).toBe(p.graphs[0].order.length);
  expect(plan.appends.length).toBe(plan.picks.length);
  expect(plan.walk).toBe(told.filter((event) => event.phase === "walk").length);
});
