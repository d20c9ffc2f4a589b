// What is true at a cursor: where we are, what has run, what could run, which storages exist and what lies in them.
// Pure functions of (payload, index, cursor). The cursor is the number of the step that just ran, -1 before the first.
import { ensure, kept, upper } from "./arrays.js";
import { bytes, count, plural } from "./format.js";
import { KEY, type Index } from "./index.js";
import type { ValueData } from "./valuedata.js";
import type { Choice, Graph, Node, Payload } from "./wire.js";

/** `values`: what the recording keeps of its values, where it does. */
export interface Trace { p: Payload; x: Index; values?: ValueData | null }

/** Where a value's bytes lie: an entry of `out` (written by a step) or of `bind` (there when the frame began). */
export interface Place { from: "out" | "bind"; entry: number; storage: number; gen: number }

/** Of a node; `path` and `listed` are of a planner only. */
export type State = "waiting" | "frontier" | "running" | "done" | "in_place" | "elsewhere" | "missed" | "view" | "foreign" | "path" | "listed";
/** What states mean where it is not what the payload says. */
export type StateWords = Partial<Record<State, string>>;

/** Rows of a cache that held tokens, and rows that there was room for, before a run. */
export function rowsBefore({ p }: Trace, cache: number, run: number): [valid: number, capacity: number] {
  const c = p.caches[cache];
  return run > 0 ? [c.valid[run - 1] ?? 0, c.capacity[run - 1] ?? 0] : c.given;
}

export function runAt({ p, x }: Trace, cursor: number): number {
  if (p.steps === 0) return p.live ? p.frame.run[p.live.frame] : 0;
  return x.run[Math.max(0, Math.min(cursor, p.steps - 1))];
}

/** At the last recorded step of something that can still go on. */
export function atEdge({ p }: Trace, cursor: number): boolean { return p.live !== null && cursor >= p.steps - 1; }

/** The frame to show: the one of the step that just ran, so that this step is always on screen; see `frontierFrame`. */
export function frameAt(t: Trace, cursor: number): number {
  const { p } = t;
  if (cursor >= 0) return p.step.frame[Math.min(cursor, p.steps - 1)];
  return atEdge(t, cursor) ? p.live!.frame : p.steps ? stack(t, p.step.frame[0])[0] : 0;
}

/**
 * The frame of the op that runs next, whose nodes are candidates; -1 = all has run. An op that completes its body comes
 * after all of it: until then that body is the frame, with nothing left to choose. The same at the live edge and behind it.
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

/** What a step ran: the op `node` of `graph`, by its number and as a whole, in a frame. */
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

/** Tables by frame, of which a few are in use at a time. */
const ofFrames = () => kept((_: Index) => new Map<number, Int32Array>());
function tableOf(tables: (x: Index) => Map<number, Int32Array>, { x }: Trace, f: number, make: () => Int32Array): Int32Array {
  const known = tables(x);
  if (known.size > 32 && !known.has(f)) known.clear();
  return ensure(known, f, make);
}

const nodeSteps = ofFrames();
/** By node of the frame's graph: the step that ran it in this frame (maybe after the cursor), -1 = not recorded. */
export function stepsOf(t: Trace, f: number): Int32Array {
  const { p, x } = t;
  return tableOf(nodeSteps, t, f, () => {
    const steps = new Int32Array(p.graphs[p.frame.graph[f]].nodes.length).fill(-1);
    for (let i = x.steps.start[f]; i < x.steps.start[f + 1]; i++) steps[p.step.node[x.steps.ids[i]]] = x.steps.ids[i];
    return steps;
  });
}

/** Runnable nodes of frame `f` in plan order: not run at the cursor, and everything they read exists. */
export function ready(t: Trace, f: number, cursor: number): number[] {
  const g = t.p.frame.graph[f];
  const steps = stepsOf(t, f);
  const ran = (n: number) => steps[n] >= 0 && steps[n] <= cursor;
  return t.p.graphs[g].order.filter((n) => !ran(n) && t.x.graphs[g].waits[n].every(ran));
}

/** Bytes of a storage at the cursor: some are made larger later on. */
export function capacity({ p, x }: Trace, s: number, cursor: number): number {
  let bytes = p.storage.capacity[s];
  for (let i = x.grown.start[s]; i < x.grown.start[s + 1]; i++) if (p.grow.step[x.grown.ids[i]] > cursor) bytes -= p.grow.bytes[x.grown.ids[i]];
  return bytes;
}

export function freedBytes(t: Trace, step: number): number {
  const { p } = t;
  let bytes = 0;
  for (let i = p.step.free[step]; i < p.step.free[step + 1]; i++) bytes += capacity(t, p.free.storage[i], step);
  return bytes;
}

/** The frontier with what each choice would cost: known at the live edge, else read from the step it became. */
export function frontier(t: Trace, cursor: number): (Choice & { step: number })[] {
  const f = frontierFrame(t, cursor);
  if (f < 0) return [];
  if (atEdge(t, cursor)) return t.p.live!.frontier.map((c) => ({ ...c, step: -1 }));
  const steps = stepsOf(t, f);
  return ready(t, f, cursor).map((node) => {
    const step = steps[node];
    return step < 0
      ? { node, step, alloc: null, frees: null }
      : { node, step, alloc: t.p.step.alloc[step], frees: freedBytes(t, step) };
  });
}

/** How a step ended, as the graph shows it. */
export function outcome({ ends }: Payload, flags: number): State {
  const end = ends.find(([, bit]) => flags & bit)?.[0] ?? "new";
  return end === "new" ? "done" : (end as State);
}

/** State of every node of the frame's graph at the cursor. */
export function nodeStates(t: Trace, f: number, cursor: number): State[] {
  const steps = stepsOf(t, f);
  const states: State[] = Array.from(steps, (s) => (s >= 0 && s <= cursor ? outcome(t.p, t.p.step.flags[s]) : "waiting"));
  if (frontierFrame(t, cursor) === f) for (const n of frontier(t, cursor)) states[n.node] = "frontier";
  if (cursor >= 0 && t.p.step.frame[cursor] === f) states[t.p.step.node[cursor]] = "running";
  return states;
}

const places = ofFrames();
/** By value of the frame's graph: out entry + 1, or -(bind entry + 1), or 0. A value is written once in a frame. */
function placesOf(t: Trace, f: number): Int32Array {
  const { p, x } = t;
  return tableOf(places, t, f, () => {
    const at = new Int32Array(p.graphs[p.frame.graph[f]].values.length);
    for (let b = p.frame.bind[f]; b < p.frame.bind[f + 1]; b++) if (p.bind.value[b] >= 0) at[p.bind.value[b]] = -(b + 1);
    for (let i = x.steps.start[f]; i < x.steps.start[f + 1]; i++) {
      const step = x.steps.ids[i];
      for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) if (p.out.value[o] >= 0) at[p.out.value[o]] = o + 1;
    }
    return at;
  });
}

/** Where a value of frame `f` lies once the cursor has passed its maker; null = not there (yet). */
export function placeOf(t: Trace, f: number, value: number, cursor: number): Place | null {
  const at = value < 0 ? 0 : placesOf(t, f)[value];
  if (at === 0) return null;
  if (at < 0) return { from: "bind", entry: -at - 1, storage: t.p.bind.storage[-at - 1], gen: t.p.bind.gen[-at - 1] };
  if (t.x.outStep[at - 1] > cursor) return null;
  return { from: "out", entry: at - 1, storage: t.p.out.storage[at - 1], gen: t.p.out.gen[at - 1] };
}

/** Storages that exist at the cursor, oldest first: the nearest key frame and what was born since. */
export function alive({ x }: Trace, cursor: number): number[] {
  const { storage, born, freed } = x.life;
  const key = Math.min(Math.floor((cursor + 1) / KEY), x.keys.length - 1);
  const found: number[] = [];
  if (key < 0) return found;
  for (const i of x.keys[key]) if (freed[i] > cursor) found.push(storage[i]);
  for (let i = upper(born, -1 + key * KEY); i < born.length && born[i] <= cursor; i++) {
    if (freed[i] > cursor) found.push(storage[i]);
  }
  return found;
}

/** The cursor from which a storage exists that does so at this one; null = it does not. */
export function bornAt({ x }: Trace, s: number, cursor: number): number | null {
  for (let i = x.lives.start[s]; i < x.lives.start[s + 1]; i++) {
    const { born, freed } = x.life;
    if (born[x.lives.ids[i]] <= cursor && freed[x.lives.ids[i]] > cursor) return born[x.lives.ids[i]];
  }
  return null;
}

/** Bytes that are alive at the cursor: while a step ran, or, before the first one, of what its run was given. */
export function liveAt(t: Trace, cursor: number): number {
  return cursor < 0 ? alive(t, cursor).reduce((sum, s) => sum + capacity(t, s, cursor), 0) : t.p.step.live[cursor];
}

/** Position in `x.outs.ids` behind the last entry of storage `s` that the cursor has passed. */
function outsUntil({ x }: Trace, s: number, cursor: number): number {
  return upper(x.outStep, cursor, x.outs.start[s], x.outs.start[s + 1], x.outs.ids);
}

/** The last out entry on a storage at the cursor, -1 if none. */
export function lastOut(t: Trace, s: number, cursor: number): number {
  const end = outsUntil(t, s, cursor);
  return end > t.x.outs.start[s] ? t.x.outs.ids[end - 1] : -1;
}

/** Generation of a storage at the cursor: 0, or how often its contents were overwritten. */
export function generation(t: Trace, s: number, cursor: number): number {
  const { p, x } = t;
  const out = lastOut(t, s, cursor);
  let gen = out < 0 ? 0 : p.out.gen[out];
  for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) {
    const b = x.binds.ids[i];
    if (x.first[x.bindFrame[b]] - 1 <= cursor && p.bind.gen[b] > gen) gen = p.bind.gen[b];
  }
  return gen;
}

/** Value entries in the frames of the stack that lie in storage `s` at its present generation. */
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
  for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) {
    const b = x.binds.ids[i];
    if (p.bind.gen[b] === gen && frames.includes(x.bindFrame[b])) {
      add(x.bindFrame[b], p.bind.value[b], { from: "bind", entry: b, storage: s, gen });
    }
  }
  // generations only grow, so those of the present one are the last entries
  for (let i = outsUntil(t, s, cursor) - 1; i >= x.outs.start[s] && p.out.gen[x.outs.ids[i]] === gen; i--) {
    const o = x.outs.ids[i];
    if (frames.includes(p.step.frame[x.outStep[o]])) {
      add(p.step.frame[x.outStep[o]], p.out.value[o], { from: "out", entry: o, storage: s, gen });
    }
  }
  return held;
}

export function numberOf({ p, x }: Trace, step: number): number {
  const run = step < 0 ? undefined : p.runs[x.run[step]];
  return run ? run.from + step - run.first : step;
}

/** The run of the step with this number, and its place; -1 where it is not there. */
export function findStep({ p }: Trace, number: number): { run: number; step: number } {
  // where nothing has run yet, Python may be a step ahead: what it ran is on its way
  if (number < 0 || !p.total || !p.runs.length) return { run: -1, step: number };
  // several runs begin at one number where the earlier ones have no steps
  const known = Math.min(number, p.total - 1);
  const run = Math.max(0, upper(p.runs.map((r) => r.from), known) - 1);
  const { first, last, from } = p.runs[run];
  const step = first + known - from;
  return { run, step: step < last ? step : -1 };
}

/** Whether a run is over and none of its steps are here: all there is to show are its totals. */
export function bare(p: Payload, run: number): boolean {
  const r = p.runs[run];
  if (!r || r.last > r.first || (p.live && p.frame.run[p.live.frame] === run)) return false;
  return r.steps > 0 || r.written > 0 || r.allocated > 0;
}

/** What a query cannot find, as the steps of some runs are not here; empty where all are. */
export function notHere(p: Payload): string {
  const gone = p.runs.filter((_, run) => bare(p, run));
  const steps = gone.reduce((n, r) => n + r.steps, 0);
  if (!gone.length) return "";
  const whose = `The steps of ${gone.length} of ${plural(p.runs.length, "run")}${steps ? ` (${count(steps)} steps)` : ""} are not kept here`;
  return `${whose}. Totals say of them: ${bytes(gone.reduce((n, r) => n + r.copied, 0))} copied, ${bytes(gone.reduce((n, r) => n + r.allocated, 0))} allocated.`;
}

export const bareRuns = kept((p: Payload): number => p.runs.filter((_, run) => bare(p, run)).length);
