// Traces that several tests look at.
import { buildIndex } from "../src/index.js";
import type { Trace } from "../src/replay.js";
import { unpack } from "../src/wire.js";

export function trace(raw: ArrayBuffer): Trace {
  const p = unpack(raw);
  return { p, x: buildIndex(p) };
}

/** Step of a node by its short name, counted from the n-th time it runs. */
export function stepOf({ p }: Trace, name: string, time = 0): number {
  for (let i = 0, seen = 0; i < p.steps; i++) {
    const node = p.graphs[p.frame.graph[p.step.frame[i]]].nodes[p.step.node[i]];
    if (node[0].endsWith(`/${name}`) && seen++ === time) return i;
  }
  throw new Error(`no step ${name} (${time})`);
}

export function value({ p }: Trace, frame: number, name: string): number {
  return p.graphs[p.frame.graph[frame]].values.indexOf(name);
}
