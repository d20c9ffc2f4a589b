// A long recording has the steps of some runs only. Panes count the steps that are there, from 0; people and Python
// know a step by its number in the whole recording. Here one becomes the other.
import { upper } from "./arrays.js";
import { bytes, count, plural } from "./format.js";
import type { Trace } from "./replay.js";
import type { Payload } from "./wire.js";

/** The number of a step. */
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

const known = new WeakMap<Payload, number>();
/** How many runs are bare. */
export function bareRuns(p: Payload): number {
  let n = known.get(p);
  if (n === undefined) known.set(p, (n = p.runs.filter((_, run) => bare(p, run)).length));
  return n;
}
