// Ops that could have run in place and did not, grouped by node over all runs, worst first.
import type { Trace } from "./replay.js";
import { FLAG } from "./wire.js";

export interface Missed {
  graph: number;
  node: number;
  steps: number[]; // ascending
  bytes: number; // summed over the steps
  message: string; // of the blocker that cost most
  code: string;
}

/** Bytes that one missed step cost: its dearest blocker, else what it allocated. */
export function cost({ p }: Trace, step: number): { bytes: number; block: number } {
  let block = -1;
  for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
    if (block < 0 || p.block.bytes[k] > p.block.bytes[block]) block = k;
  }
  const bytes = block < 0 ? 0 : p.block.bytes[block];
  return { bytes: bytes > 0 ? bytes : p.step.alloc[step], block };
}

export function missed(t: Trace): Missed[] {
  const { p } = t;
  const groups = new Map<number, Missed & { worst: number }>();
  for (let i = 0; i < p.steps; i++) {
    if (!(p.step.flags[i] & FLAG.missed)) continue;
    const graph = p.frame.graph[p.step.frame[i]];
    const key = graph * 2 ** 24 + p.step.node[i];
    let entry = groups.get(key);
    if (!entry) groups.set(key, (entry = { graph, node: p.step.node[i], steps: [], bytes: 0, message: "", code: "", worst: -1 }));
    const { bytes, block } = cost(t, i);
    entry.steps.push(i);
    entry.bytes += bytes;
    if (bytes > entry.worst) {
      entry.worst = bytes;
      entry.message = block < 0 ? p.strings[p.step.rule[i]] : p.strings[p.block.message[block]];
      entry.code = block < 0 ? "" : p.strings[p.block.code[block]];
    }
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes || a.steps[0] - b.steps[0]);
}

/** The next occurrence after the cursor, going round. */
export function occurrence(m: Missed, cursor: number): number {
  return m.steps.find((s) => s > cursor) ?? m.steps[0];
}
