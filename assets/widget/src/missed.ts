// Ops that could have run in place and did not, grouped by node over all runs, worst first: as diagnosed by the kernel
// where there is a report, else as the columns tell them (without fixes).
import type { Trace } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Missed, Report } from "./wire.js";

/** Bytes that one missed step spent: new capacity, or what it moved where its capacity came from the pool. */
export function cost({ p }: Trace, step: number): number {
  return Math.max(p.step.alloc[step], p.step.copied[step]);
}

function key(m: { graph: number; node: number }): number {
  return m.graph * 2 ** 24 + m.node;
}

export function missed(t: Trace, report?: Report | null): Missed[] {
  const first = report?.missed ?? [];
  if (report && first.length >= report.total) return first;
  const told = [...first, ...(report?.worst ?? [])];
  const { p } = t;
  const known = new Set(told.map(key));
  const groups = new Map<number, Missed & { worst: number }>();
  for (let i = 0; i < p.steps; i++) {
    if (!(p.step.flags[i] & p.flag.missed)) continue;
    const graph = p.frame.graph[p.step.frame[i]];
    const id = key({ graph, node: p.step.node[i] });
    if (known.has(id)) continue;
    let entry = groups.get(id);
    if (!entry) groups.set(id, (entry = { graph, node: p.step.node[i], frame: "", step: i, steps: [], times: 0, bytes: 0, reasons: [], fixes: [], worst: -1 }));
    const bytes = cost(t, i);
    entry.steps.push(i);
    entry.bytes += bytes;
    if (bytes > entry.worst) [entry.worst, entry.step] = [bytes, i];
  }
  for (const entry of groups.values()) {
    entry.reasons = reasons(t, entry.step);
    entry.step = numberOf(t, entry.step);
    entry.times = entry.steps.length;
  }
  return [...told, ...[...groups.values()].sort((a, b) => b.bytes - a.bytes || a.steps[0] - b.steps[0])];
}

function reasons({ p }: Trace, step: number): Missed["reasons"] {
  const frame = p.step.frame[step];
  const g = p.graphs[p.frame.graph[frame]];
  const inputs = g.nodes[p.step.node[step]][3];
  return Array.from(p.block.code.subarray(p.step.block[step], p.step.block[step + 1]), (code, i) => {
    const k = p.step.block[step] + i;
    return { code: p.strings[code], value: g.values[inputs[p.block.input[k]]] ?? "", culprit: p.strings[p.block.culprit[k]], message: p.strings[p.block.message[k]], fix: -1 };
  });
}

/** The next occurrence after the cursor, going round; null where none is here. */
export function occurrence(m: Missed, cursor: number): number | null {
  return m.steps.find((s) => s > cursor) ?? m.steps[0] ?? null;
}
