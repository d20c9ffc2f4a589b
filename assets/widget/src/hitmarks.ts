// Ticks on the time axis where the query finds steps.
import { byRuns, span, type Plot } from "./axis.js";
import type { Store } from "./store.js";

const HEIGHT = 7; // px, above the axis

/** Left edges of the ticks in whole pixels, each once. */
export function ticks(store: Store, width: number): number[] {
  const { hits, t: { x } } = store;
  const many = byRuns(store);
  const whole = span(store);
  const found = new Set<number>();
  for (const step of hits ?? []) found.add(Math.min(width - 2, Math.floor((((many ? x.run[step] : step) + 0.5) / whole) * width)));
  return [...found];
}

export function drawHits(store: Store, { context, width, bottom, colour }: Plot): void {
  context.fillStyle = colour("--kv-ink");
  for (const x of ticks(store, width)) context.fillRect(x, bottom - HEIGHT, 2, HEIGHT);
}
