// The time axis of the timeline: as many pixels for every step, or, where runs are bare, for every run.
import { bareRuns } from "./steps.js";
import type { Store } from "./store.js";

/** Where to draw, and how; `y` is the height of so many bytes. */
export interface Plot {
  context: CanvasRenderingContext2D; width: number; bottom: number;
  y(bytes: number): number;
  colour(name: string): string;
}

/** Whether runs share the axis equally. */
export function byRuns(store: Store): boolean {
  return store.scale?.byRuns ?? bareRuns(store.t.p) > 0;
}

/** Steps, or runs, from end to end. */
export function span(store: Store): number {
  const { p } = store.t;
  const { steps, runs } = store.scale ?? { steps: p.steps, runs: p.runs.length };
  return Math.max(1, byRuns(store) ? runs : steps);
}

/** Where a step begins, 0 to 1; parts of steps are allowed. */
export function placed(store: Store, step: number): number {
  const { p, x } = store.t;
  if (!byRuns(store)) return step / span(store);
  const run = x.run[Math.max(0, Math.min(Math.floor(step), p.steps - 1))] ?? 0;
  const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
  return (run + (step - first) / Math.max(1, last - first)) / span(store);
}

/** Where the cursor is, 0 to 1. */
export function position(store: Store): number {
  const { cursor, bare } = store;
  if (bare >= 0) return (bare + 0.5) / span(store);
  return cursor < 0 ? 0 : placed(store, cursor + 0.5);
}

/** What lies at a place of the axis: a run, and its step if it is here. */
export function under(store: Store, place: number): { run: number; step: number } {
  const { p, x } = store.t;
  const at = Math.max(0, Math.min(place, 1)) * span(store);
  if (!byRuns(store)) {
    const step = Math.min(Math.floor(at), p.steps - 1);
    return { run: x.run[step] ?? 0, step };
  }
  const run = Math.min(Math.floor(at), p.runs.length - 1);
  const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
  return { run, step: first < last ? first + Math.min(Math.floor((at - run) * (last - first)), last - first - 1) : -1 };
}
