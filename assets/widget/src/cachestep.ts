// The caches between two ops of a run: which rows the run has stored by then, and which wait for ops to come.
import { cellsOf, type CacheData } from "./cachedata.js";

/** The look of rows that wait and hold nothing yet. */
export const PENDING = "pending";
/** Rows that are stored with one step. */
export interface StoredRows { step: number; start: number; stop: number }
/** `done`, `todo`: rows stored, and rows that wait; `now`: this step stores some; `step`: that of the last row, or of the next while some wait; -1 = nothing is known. */
export interface Progress { done: number; todo: number; now: boolean; step: number }

/** What a run stores in a cache, in order; empty where the steps were not kept. */
export function storesOf({ stores, runs }: CacheData, cache: number, run: number): StoredRows[] {
  if (!stores) return [];
  const i = cache * (runs.length + 1) + run;
  const [from, to] = [stores.at[i] ?? 0, stores.at[i + 1] ?? 0];
  return Array.from({ length: Math.max(0, to - from) }, (_, k) => ({ step: stores.step[from + k], start: stores.start[from + k], stop: stores.stop[from + k] }));
}

/** How far a run has come with a cache after a step. */
export function progress(d: CacheData, cache: number, run: number, step: number): Progress {
  const found: Progress = { done: 0, todo: 0, now: false, step: -1 };
  for (const one of storesOf(d, cache, run)) {
    const rows = one.stop - one.start;
    if (one.step > step && !found.todo) found.step = one.step;
    if (one.step > step) found.todo += rows;
    else [found.done, found.step] = [found.done + rows, one.step];
    found.now ||= one.step === step;
  }
  return found;
}

type Cell = [start: number, stop: number, state: number, fresh: number, token: number];

/** The same data, in which the cells of a stream in a run are as they are after a step: rows that wait hold what they held before. */
export function atStep(d: CacheData, cache: number, stream: number, run: number, step: number): CacheData {
  const waits = storesOf(d, cache, run).filter((one) => one.step > step);
  const [from, to] = cellsOf(d, stream, run);
  if (!waits.length || from === to) return d;
  const states = [...d.states, PENDING];
  const found: Cell[] = [];
  for (let c = from; c < to; c++) {
    const edges = new Set([d.start[c], d.stop[c]]);
    const add = (edge: number) => { if (edge > d.start[c] && edge < d.stop[c]) edges.add(edge); };
    const [first, last] = run ? cellsOf(d, stream, run - 1) : [0, 0];
    for (const one of d.fresh[c] ? waits : []) [one.start, one.stop].forEach(add);
    for (let b = first; d.fresh[c] && b < last; b++) [d.start[b], d.stop[b]].forEach(add);
    const all = [...edges].sort((a, b) => a - b);
    for (let i = 0; i + 1 < all.length; i++) {
      const [start, stop] = [all[i], all[i + 1]];
      const token = (cell: number) => (d.token[cell] < 0 ? -1 : d.token[cell] + start - d.start[cell]);
      if (!d.fresh[c] || !waits.some((one) => one.start <= start && start < one.stop)) {
        found.push([start, stop, d.state[c], d.fresh[c], token(c)]);
        continue;
      }
      let before = -1;
      for (let b = first; b < last; b++) if (d.start[b] <= start && start < d.stop[b]) before = b;
      const was = before < 0 ? "reserved" : d.states[d.state[before]];
      // what the run before wrote is no longer new
      const state = was === "reserved" ? PENDING : was === "written" ? "valid" : was;
      found.push([start, stop, states.indexOf(state), 0, was === "reserved" ? -1 : token(before)]);
    }
  }
  const put = (column: ArrayLike<number>, part: number) => Int32Array.from([...Array.from(column).slice(0, from), ...found.map((cell) => cell[part]), ...Array.from(column).slice(to)]);
  const by = found.length - (to - from);
  const at = Int32Array.from(d.at, (n, i) => (i > stream * (d.runs.length + 1) + run ? n + by : n));
  return { ...d, states, at, start: put(d.start, 0), stop: put(d.stop, 1), state: put(d.state, 2), fresh: put(d.fresh, 3), token: put(d.token, 4) };
}
