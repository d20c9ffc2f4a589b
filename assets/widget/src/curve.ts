// The calculations of the timeline: its axis, the curve by pixel column, and labels that do not overlap.
import type { Inks } from "./canvas.js";
import { round } from "./format.js";
import type { Scale } from "./pair.js";
import { bareRuns, type Trace } from "./replay.js";
import type { Store } from "./store.js";

/** `y`: the height of a number of bytes. */
export interface Plot {
  context: CanvasRenderingContext2D; width: number; bottom: number;
  y(bytes: number): number;
  inks: Inks;
}

/** Whether all runs have equal widths on the axis. */
export function byRuns(store: Store): boolean { return store.scale?.byRuns ?? bareRuns(store.t.p) > 0; }

/** The length of the axis in steps or runs. */
export function span(store: Store): number {
  const { p } = store.t;
  const { steps, runs } = store.scale ?? { steps: p.steps, runs: p.runs.length };
  return Math.max(1, byRuns(store) ? runs : steps);
}

/** The position of a step, 0 to 1; fractions of steps are allowed. */
export function placed(store: Store, step: number): number {
  const { p, x } = store.t;
  if (!byRuns(store)) return step / span(store);
  const run = x.run[Math.max(0, Math.min(Math.floor(step), p.steps - 1))] ?? 0;
  const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
  return (run + (step - first) / Math.max(1, last - first)) / span(store);
}

export function position(store: Store): number {
  const { cursor, bare } = store;
  if (bare >= 0) return (bare + 0.5) / span(store);
  return cursor < 0 ? 0 : placed(store, cursor + 0.5);
}

/** The run, and if loaded the step, at a position of the axis. */
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

export interface Curve { low: Float64Array; high: Float64Array; top: number; from: number; used: number }

/** The ranges of the axes. Where most bytes are weights, which are always alive, the axis starts above them (`from`). */
export function scaleOf({ p, x }: Trace): Scale {
  const byRuns = bareRuns(p) > 0;
  let top = x.peak >= 0 ? p.step.live[x.peak] : 1;
  let least = top;
  for (const live of p.step.live) if (live < least) least = live;
  if (byRuns) {
    for (const r of p.runs) {
      top = Math.max(top, r.peak);
      least = Math.min(least, r.peak);
    }
  }
  const from = 2 * x.weights > top ? Math.min(x.weights, least) : 0;
  return { top: top > from ? top : from + 1, from, steps: p.steps, runs: p.runs.length, byRuns };
}

/** Minimum and maximum of live bytes by pixel column; columns from `used` on are empty. */
export function curve(t: Trace, width: number, scale: Scale = scaleOf(t)): Curve {
  const { p } = t;
  const columns = Math.max(1, Math.floor(width));
  const low = new Float64Array(columns).fill(Infinity);
  const high = new Float64Array(columns).fill(-Infinity);
  const n = Math.max(1, scale.steps);
  for (let i = 0; i < p.steps; i++) {
    const v = p.step.live[i];
    const from = Math.floor((i / n) * columns);
    const to = Math.max(from, Math.ceil(((i + 1) / n) * columns) - 1);
    for (let c = from; c <= to && c < columns; c++) {
      if (v < low[c]) low[c] = v;
      if (v > high[c]) high[c] = v;
    }
  }
  return { low, high, top: scale.top, from: scale.from, used: Math.min(columns, Math.ceil((p.steps / n) * columns)) };
}

/** Which labels fit without overlap: every 1st, 2nd, 5th, 10th … as needed. */
export function keepApart(labels: { x: number; width: number }[], gap: number, room: number): boolean[] {
  for (let stride = 1; ; stride = round(stride + 1)) {
    let end = -Infinity;
    let fits = true;
    const keep = labels.map((l, i) => {
      if (i % stride || l.x + l.width > room) return false;
      // the first label may be longer than its run; later ones give way
      if (l.x < end && end !== -Infinity) {
        fits &&= end === labels[0].x + labels[0].width + gap;
        return false;
      }
      end = l.x + l.width + gap;
      return true;
    });
    if (fits || stride > labels.length) return keep;
  }
}
