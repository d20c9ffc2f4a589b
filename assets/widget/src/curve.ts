// Numbers of the timeline, apart from the canvas: the curve per pixel column, its scale, and labels that keep apart.
import type { Trace } from "./replay.js";

export interface Curve { low: Float64Array; high: Float64Array; floor: number; top: number; from: number }

/** Least and largest live bytes per pixel column. When all of it is high, the axis starts above zero (`from`). */
export function curve({ p, x }: Trace, width: number): Curve {
  const columns = Math.max(1, Math.floor(width));
  const low = new Float64Array(columns).fill(Infinity);
  const high = new Float64Array(columns).fill(-Infinity);
  const n = p.steps;
  let least = Infinity;
  for (let i = 0; i < n; i++) {
    const v = p.step.live[i];
    if (v < least) least = v;
    const from = Math.floor((i / n) * columns);
    const to = Math.max(from, Math.ceil(((i + 1) / n) * columns) - 1);
    for (let c = from; c <= to && c < columns; c++) {
      if (v < low[c]) low[c] = v;
      if (v > high[c]) high[c] = v;
    }
  }
  const top = x.peak >= 0 ? p.step.live[x.peak] : 1;
  const from = n && least > top * 0.4 ? Math.max(0, least - (top - least) * 0.15 - top * 0.001) : 0;
  return { low, high, floor: n ? least : 0, top: top > from ? top : from + 1, from };
}

/** Centre of a step's stretch on the time axis, in pixels. */
export function at(step: number, steps: number, width: number): number {
  return steps ? ((step + 0.5) / steps) * width : 0;
}

export function stepAt(x: number, steps: number, width: number): number {
  return Math.max(0, Math.min(steps - 1, Math.floor((x / Math.max(1, width)) * steps)));
}

/** Which labels can be drawn without touching each other or the right end: every 1st, 2nd, 5th, 10th … as far as needed. */
export function keepApart(labels: { x: number; width: number }[], gap: number, room: number): boolean[] {
  for (let stride = 1; ; stride = nextStride(stride)) {
    let end = -Infinity;
    let fits = true;
    const keep = labels.map((l, i) => {
      if (i % stride || l.x + l.width > room) return false;
      // the first label may be longer than its run; those that follow give way to it
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

function nextStride(stride: number): number {
  const lead = Number(String(stride)[0]);
  return lead === 2 ? (stride * 5) / 2 : stride * 2;
}
