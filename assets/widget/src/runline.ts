// A long recording on the timeline: the peak of every run, and which runs have steps here.
import { bare } from "./steps.js";
import type { Store } from "./store.js";
import { span, type Plot } from "./axis.js";
import type { Payload } from "./wire.js";

export const MARK = 5; // px below the line: of these a mark takes all but the first and last
const ROOM = 6; // px of a run from which on the steps in it can be told apart

/** The run with the largest peak, -1 if there are none. */
export function highest(p: Payload): number {
  let top = -1;
  p.runs.forEach((r, run) => { if (top < 0 || r.peak > p.runs[top].peak) top = run; });
  return top;
}

export function drawRuns(store: Store, { context, width, bottom, y, colour }: Plot): void {
  const { p } = store.t;
  const slot = width / span(store);
  const line = () => {
    context.beginPath();
    p.runs.forEach((r, run) => {
      context.lineTo(run * slot, y(r.peak));
      context.lineTo((run + 1) * slot, y(r.peak));
    });
  };
  line();
  context.lineTo(p.runs.length * slot, bottom);
  context.lineTo(0, bottom);
  context.globalAlpha = 0.12;
  context.fillStyle = colour("--kv-accent");
  context.fill();
  context.globalAlpha = 1;
  p.runs.forEach((r, run) => {
    if (bare(p, run)) return;
    context.fillStyle = context.strokeStyle = colour("--kv-accent");
    context.fillRect(run * slot, bottom + 1, Math.max(2, slot), MARK - 2);
    if (slot < ROOM) return;
    context.beginPath();
    for (let s = r.first; s < r.last; s++) context.lineTo((run + (s - r.first) / (r.last - r.first)) * slot, y(p.step.live[s]));
    context.lineWidth = 0.8;
    context.stroke();
  });
  line();
  context.lineWidth = 1.3;
  context.strokeStyle = colour("--kv-accent");
  context.stroke();
}
