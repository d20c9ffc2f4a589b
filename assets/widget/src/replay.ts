// The state at a cursor: position, what has run, the frontier, storages and their contents; before it the tables for looking up, built once per
// payload. Pure functions of payload, index and cursor: the number of the step that just ran, -1 before the first.
import { ensure, group, idsOf, kept, upper, within } from "./arrays.js";
import { bytes, count, plural } from "./format.js";
import type { ValueData } from "./valuedata.js";
import type { Choice, Codes, Graph, Ints, Node, Payload } from "./wire.js";

/** Producers, readers and dependencies within one graph. */
function indexGraph(g: Graph) {
  const producer: Ints = new Int32Array(g.values.length).fill(-1); // by value; -1 = exists when the frame starts
  const readers: number[][] = g.values.map(() => []); // by value: nodes of `order`, captures count as reads
  const waits: number[][] = g.nodes.map(() => []); // by node: nodes of this graph that must have run
  const block: Ints = new Int32Array(g.nodes.length).fill(-1); // by node; -1 = in none
  const output = new Uint8Array(g.values.length); // by value: 1 = a graph output, held until the frame ends
  for (const n of g.order) for (const v of g.nodes[n][4]) if (v >= 0) producer[v] = n;
  for (const n of g.order) {
    for (const v of new Set([...g.nodes[n][3], ...g.nodes[n][5]])) {
      if (v < 0) continue;
      readers[v].push(n);
      if (producer[v] >= 0 && !waits[n].includes(producer[v])) waits[n].push(producer[v]);
    }
  }
  g.blocks.forEach((b, i) => b.nodes.forEach((n) => (block[n] = i)));
  for (const v of g.outputs) output[v] = 1;
  return { producer, readers, waits, block, output };
}

/** The owner of each entry, from n + 1 offsets. */
function owners(offsets: Ints, entries: number): Ints {
  const owner = new Int32Array(entries);
  for (let i = 0, at = 0; i + 1 < offsets.length; i++) for (; at < offsets[i + 1]; at++) owner[at] = i;
  return owner;
}

/**
 * When storages come and go, as cursors: one that a pool hands out again lives once more. `born` is -1 for everything that
 * a run was given, also a buffer that an earlier run made: it exists from whatever was first seen of it.
 */
function lifetimes(p: Payload, x: ReturnType<typeof owned>) {
  const found: [number, number, number][] = [];
  const frees = group(p.free.storage, p.storages);
  const freeStep = owners(p.step.free, p.free.storage.length);
  for (let s = 0; s < p.storages; s++) {
    let out = x.outs.start[s];
    let from = p.storage.born[s];
    if (from < 0 && p.storage.origin[s] !== p.from.weights) {
      from = out < x.outs.start[s + 1] ? x.outStep[x.outs.ids[out]] : p.steps;
      for (const b of idsOf(x.binds, s)) {
        // a later run's arrays come with its first step: until then the finished run is what is shown
        const first = x.first[x.bindFrame[b]];
        from = Math.min(from, first > 0 ? first : -1);
      }
    }
    for (const free of idsOf(frees, s)) {
      const to = freeStep[free];
      found.push([s, from, to]);
      while (out < x.outs.start[s + 1] && x.outStep[x.outs.ids[out]] <= to) out++;
      from = out < x.outs.start[s + 1] ? x.outStep[x.outs.ids[out]] : p.steps;
    }
    if (from < p.steps || frees.start[s] === frees.start[s + 1]) found.push([s, from, p.storage.freed[s] < Math.max(0, from) ? p.steps : p.storage.freed[s]]);
  }
  const column = (part: 0 | 1 | 2) => Int32Array.from(order, (i) => found[i][part]);
  const order = group(found.map(([, from]) => from + 1), p.steps + 2).ids;
  // by birth: cursors from which it exists, and from which it is gone; `steps` = never
  const life = { storage: column(0), born: column(1), freed: column(2) };
  return { life, lives: group(life.storage, p.storages) }; // lives by storage
}

/** What belongs to what. */
function owned(p: Payload) {
  const { frame, step, out } = p;
  const depth: Ints = new Int32Array(p.frames); // by frame; main is 0
  const first: Ints = new Int32Array(p.frames).fill(p.steps); // by frame: its first step or one of a frame inside; `steps` if none yet
  const run: Ints = new Int32Array(p.steps); // by step
  // parents are made before their children
  for (let f = 0; f < p.frames; f++) depth[f] = frame.parent[f] < 0 ? 0 : depth[frame.parent[f]] + 1;
  let peak = -1; // the step with the largest live bytes, -1 if there are no steps
  for (let i = 0; i < p.steps; i++) {
    run[i] = frame.run[step.frame[i]];
    if (peak < 0 || step.live[i] > step.live[peak]) peak = i;
    for (let f = step.frame[i]; f >= 0 && first[f] > i; f = frame.parent[f]) first[f] = i;
  }
  let weights = 0; // bytes of all weight storages
  for (let s = 0; s < p.storages; s++) if (p.storage.origin[s] === p.from.weights) weights += p.storage.capacity[s];
  return {
    graphs: p.graphs.map(indexGraph), depth, first, run, peak, weights,
    steps: group(step.frame, p.frames), // steps by frame
    outStep: owners(step.out, out.value.length), // by out: its step
    outs: group(out.storage, p.storages), // by storage, as the next two
    binds: group(p.bind.storage, p.storages),
    grown: group(p.grow.storage, p.storages),
    bindFrame: owners(frame.bind, p.bind.value.length), // by bind: its frame
  };
}

export type Index = ReturnType<typeof owned> & ReturnType<typeof lifetimes>;

export function buildIndex(p: Payload): Index {
  const x = owned(p);
  return { ...x, ...lifetimes(p, x) };
}

/** `values`: summaries of values, if they are recorded. */
export interface Trace { p: Payload; x: Index; values?: ValueData | null }

/** The place of a value: an entry of `out` (written by a step) or `bind` (given to its frame). */
export interface Place { from: "out" | "bind"; entry: number; storage: number; gen: number }

/** State of a node; `path` and `listed` occur only in plans. */
export type State = "waiting" | "frontier" | "running" | "done" | "in_place" | "elsewhere" | "missed" | "view" | "foreign" | "path" | "listed";
/** Meanings of states that differ from those in the payload. */
export type StateWords = Partial<Record<State, string>>;

/** Letters of states that occur only in plans. */
const PLANNED: Record<string, string> = { path: "↓", listed: "✓" };

/** The letter of a state. U+FE0E requests the plain form of a sign. */
export function letter({ state: states }: Codes, state: State): string {
  const found = PLANNED[state] ?? states.find(([name]) => name === state)?.[1] ?? "";
  return found.replace(/[▶⚠✓]/, "$&\uFE0E");
}

/** The cache of which a value is the past or present, or -1. */
export function cacheOf(p: Payload, name: string | undefined): number { return p.caches.findIndex((c) => c.input === name || c.output === name); }

/** Valid and reserved rows of a cache before a run. */
export function rowsBefore({ p }: Trace, cache: number, run: number): [valid: number, capacity: number] {
  const c = p.caches[cache];
  return run > 0 ? [c.valid[run - 1] ?? 0, c.capacity[run - 1] ?? 0] : c.given;
}

export function runAt({ p, x }: Trace, cursor: number): number {
  if (p.steps === 0) return p.live ? p.frame.run[p.live.frame] : 0;
  return x.run[Math.max(0, Math.min(cursor, p.steps - 1))];
}

/** Whether the cursor is at the last step of an unfinished trace. */
export function atEdge({ p }: Trace, cursor: number): boolean { return p.live !== null && cursor >= p.steps - 1; }

/** The shown frame: that of the step that just ran; see `frontierFrame`. */
export function frameAt(t: Trace, cursor: number): number {
  const { p } = t;
  if (cursor >= 0) return p.step.frame[Math.min(cursor, p.steps - 1)];
  return atEdge(t, cursor) ? p.live!.frame : p.steps ? stack(t, p.step.frame[0])[0] : 0;
}

/**
 * The frame of the op that runs next; -1 if everything has run. A control node completes after its body: until then the body
 * is the frame, with an empty frontier, at the live edge as in a recording.
 */
export function frontierFrame(t: Trace, cursor: number): number {
  const { p } = t;
  if (atEdge(t, cursor)) return p.live!.frame;
  if (cursor + 1 >= p.steps) return -1;
  const next = p.step.frame[cursor + 1];
  if (cursor < 0 || !(p.step.flags[cursor + 1] & p.flag.control)) return next;
  for (let f = p.step.frame[cursor]; f >= 0 && f !== next; f = p.frame.parent[f]) {
    if (p.frame.parent[f] === next && p.frame.node[f] === p.step.node[cursor + 1]) return f;
  }
  return next;
}

/** The op of a step, with its frame and graph. */
export function opAt({ p }: Pick<Trace, "p">, step: number): { frame: number; graph: number; g: Graph; node: number; op: Node } {
  const frame = p.step.frame[step];
  const graph = p.frame.graph[frame];
  const node = p.step.node[step];
  return { frame, graph, g: p.graphs[graph], node, op: p.graphs[graph].nodes[node] };
}

/** Frames from main down to `f`. */
export function stack({ p }: Trace, f: number): number[] {
  const frames: number[] = [];
  for (let at = f; at >= 0; at = p.frame.parent[at]) frames.unshift(at);
  return frames;
}

/** The labels of the frames around one, without main. */
export function labels(t: Trace, f: number): string[] { return stack(t, f).slice(1).map((at) => t.p.strings[t.p.frame.label[at]]); }

/** Tables by frame. */
const ofFrames = () => kept((_: Index) => new Map<number, Int32Array>());

const nodeSteps = ofFrames();
/** The step of each node in a frame, perhaps after the cursor; -1 = not recorded. */
export function stepsOf({ p, x }: Trace, f: number): Int32Array {
  return ensure(nodeSteps(x), f, () => {
    const steps = new Int32Array(p.graphs[p.frame.graph[f]]?.nodes.length ?? 0).fill(-1);
    for (const step of idsOf(x.steps, f)) steps[p.step.node[step]] = step;
    return steps;
  });
}

/** The frontier of a frame in plan order: nodes that have not run and whose inputs exist. */
export function ready(t: Trace, f: number, cursor: number): number[] {
  const g = t.p.frame.graph[f];
  const steps = stepsOf(t, f);
  const ran = (n: number) => steps[n] >= 0 && steps[n] <= cursor;
  return t.p.graphs[g].order.filter((n) => !ran(n) && t.x.graphs[g].waits[n].every(ran));
}

/** Bytes of a storage at the cursor; some grow later. */
export function capacity({ p, x }: Trace, s: number, cursor: number): number {
  let bytes = p.storage.capacity[s];
  for (const g of idsOf(x.grown, s)) if (p.grow.step[g] > cursor) bytes -= p.grow.bytes[g];
  return bytes;
}

export function freedBytes(t: Trace, step: number): number {
  return within(t.p.step.free, step).reduce((sum, i) => sum + capacity(t, t.p.free.storage[i], step), 0);
}

/** The frontier with the cost of each op: known at the live edge, else taken from its later step. */
export function frontier(t: Trace, cursor: number): (Choice & { step: number })[] {
  const f = frontierFrame(t, cursor);
  if (f < 0) return [];
  if (atEdge(t, cursor)) return t.p.live!.frontier.map((c) => ({ ...c, step: -1 }));
  const steps = stepsOf(t, f);
  return ready(t, f, cursor).map((node) => {
    const step = steps[node];
    return { node, step, alloc: step < 0 ? null : t.p.step.alloc[step], frees: step < 0 ? null : freedBytes(t, step) };
  });
}

export function outcome({ ends }: Payload, flags: number): State {
  const end = ends.find(([, bit]) => flags & bit)?.[0] ?? "new";
  return end === "new" ? "done" : (end as State);
}

/** States of all nodes of a frame at the cursor. */
export function nodeStates(t: Trace, f: number, cursor: number): State[] {
  const steps = stepsOf(t, f);
  const states: State[] = Array.from(steps, (s) => (s >= 0 && s <= cursor ? outcome(t.p, t.p.step.flags[s]) : "waiting"));
  if (frontierFrame(t, cursor) === f) for (const n of frontier(t, cursor)) states[n.node] = "frontier";
  if (cursor >= 0 && t.p.step.frame[cursor] === f) states[t.p.step.node[cursor]] = "running";
  return states;
}

const places = ofFrames();
/** The place of each value in a frame: out entry + 1, or -(bind entry + 1), or 0. */
function placesOf({ p, x }: Trace, f: number): Int32Array {
  return ensure(places(x), f, () => {
    const at = new Int32Array(p.graphs[p.frame.graph[f]]?.values.length ?? 0);
    for (let b = p.frame.bind[f]; b < p.frame.bind[f + 1]; b++) if (p.bind.value[b] >= 0) at[p.bind.value[b]] = -(b + 1);
    for (const step of idsOf(x.steps, f)) {
      for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) if (p.out.value[o] >= 0) at[p.out.value[o]] = o + 1;
    }
    return at;
  });
}

/** The place of a value after the cursor has passed its producer, else null. */
export function placeOf(t: Trace, f: number, value: number, cursor: number): Place | null {
  const at = value < 0 ? 0 : placesOf(t, f)[value];
  if (at === 0) return null;
  if (at < 0) return { from: "bind", entry: -at - 1, storage: t.p.bind.storage[-at - 1], gen: t.p.bind.gen[-at - 1] };
  if (t.x.outStep[at - 1] > cursor) return null;
  return { from: "out", entry: at - 1, storage: t.p.out.storage[at - 1], gen: t.p.out.gen[at - 1] };
}

/** The place of a value of a frame; a body reads values of outer frames, too. */
export function placeFrom(t: Trace, frame: number, value: number, cursor: number): Place | null {
  const { p } = t;
  const name = p.graphs[p.frame.graph[frame]].values[value];
  let place = placeOf(t, frame, value, cursor);
  for (let f = p.frame.parent[frame]; f >= 0 && !place; f = p.frame.parent[f]) place = placeOf(t, f, p.graphs[p.frame.graph[f]].values.indexOf(name), cursor);
  return place;
}

/** Storages alive at the cursor, oldest first. */
export function alive({ x: { life: { storage, born, freed } } }: Trace, cursor: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < born.length && born[i] <= cursor; i++) if (freed[i] > cursor) found.push(storage[i]);
  return found;
}

/** The birth of the storage that is alive at the cursor; null: it is not alive. */
export function bornAt({ x: { life, lives } }: Trace, s: number, cursor: number): number | null {
  const now = idsOf(lives, s).find((i) => life.born[i] <= cursor && life.freed[i] > cursor);
  return now === undefined ? null : life.born[now];
}

/** Live bytes at the cursor; before the first step, those given to the run. */
export function liveAt(t: Trace, cursor: number): number {
  return cursor < 0 ? alive(t, cursor).reduce((sum, s) => sum + capacity(t, s, cursor), 0) : t.p.step.live[cursor];
}

/** The end of the entries of `x.outs.ids` for a storage up to the cursor. */
function outsUntil({ x }: Trace, s: number, cursor: number): number {
  return upper(x.outStep, cursor, x.outs.start[s], x.outs.start[s + 1], x.outs.ids);
}

/** The last out entry on a storage at the cursor, -1 if none. */
export function lastOut(t: Trace, s: number, cursor: number): number {
  const end = outsUntil(t, s, cursor);
  return end > t.x.outs.start[s] ? t.x.outs.ids[end - 1] : -1;
}

/** How often the contents of a storage were overwritten up to the cursor. */
export function generation(t: Trace, s: number, cursor: number): number {
  const { p, x } = t;
  const out = lastOut(t, s, cursor);
  let gen = out < 0 ? 0 : p.out.gen[out];
  for (const b of idsOf(x.binds, s)) if (x.first[x.bindFrame[b]] - 1 <= cursor && p.bind.gen[b] > gen) gen = p.bind.gen[b];
  return gen;
}

/** Values of the open frames in the present generation of a storage. */
export interface Held { frame: number; value: number; place: Place; readers: number; output: boolean }

export function valuesIn(t: Trace, s: number, cursor: number, frames: number[]): Held[] {
  const { p, x } = t;
  const gen = generation(t, s, cursor);
  const held: Held[] = [];
  const add = (frame: number, value: number, place: Place) => {
    if (value < 0) return;
    const g = x.graphs[p.frame.graph[frame]];
    const steps = stepsOf(t, frame);
    const readers = g.readers[value].filter((n) => steps[n] < 0 || steps[n] > cursor).length;
    held.push({ frame, value, place, readers, output: g.output[value] === 1 });
  };
  for (const b of idsOf(x.binds, s)) {
    if (p.bind.gen[b] === gen && frames.includes(x.bindFrame[b])) add(x.bindFrame[b], p.bind.value[b], { from: "bind", entry: b, storage: s, gen });
  }
  // generations ascend, so the present one is at the end
  for (let i = outsUntil(t, s, cursor) - 1; i >= x.outs.start[s] && p.out.gen[x.outs.ids[i]] === gen; i--) {
    const o = x.outs.ids[i];
    const frame = p.step.frame[x.outStep[o]];
    if (frames.includes(frame)) add(frame, p.out.value[o], { from: "out", entry: o, storage: s, gen });
  }
  return held;
}

export function numberOf({ p, x }: Trace, step: number): number {
  const run = step < 0 ? undefined : p.runs[x.run[step]];
  return run ? run.from + step - run.first : step;
}

/** The run and the place of a step by its number; place -1: not loaded. */
export function findStep({ p }: Trace, number: number): { run: number; step: number } {
  // Python may be a step ahead
  if (number < 0 || !p.total || !p.runs.length) return { run: -1, step: number };
  // several runs have the same first number if the earlier ones have no steps
  const known = Math.min(number, p.total - 1);
  const run = Math.max(0, upper(p.runs.map((r) => r.from), known) - 1);
  const { first, last, from } = p.runs[run];
  const step = first + known - from;
  return { run, step: step < last ? step : -1 };
}

/** Whether a finished run has only totals, since none of its steps are loaded. */
export function bare(p: Payload, run: number): boolean {
  const r = p.runs[run];
  if (!r || r.last > r.first || (p.live && p.frame.run[p.live.frame] === run)) return false;
  return r.steps > 0 || r.written > 0 || r.allocated > 0;
}

/** A note on runs whose steps are not loaded, or "". */
export function notHere(p: Payload): string {
  const gone = p.runs.filter((_, run) => bare(p, run));
  const steps = gone.reduce((n, r) => n + r.steps, 0);
  if (!gone.length) return "";
  const whose = `The steps of ${gone.length} of ${plural(p.runs.length, "run")}${steps ? ` (${count(steps)} steps)` : ""} are not kept here`;
  return `${whose}. Totals say of them: ${bytes(gone.reduce((n, r) => n + r.copied, 0))} copied, ${bytes(gone.reduce((n, r) => n + r.allocated, 0))} allocated. To search them, decode again with detail=[…].`;
}

export const bareRuns = kept((p: Payload): number => p.runs.filter((_, run) => bare(p, run)).length);
