// Missed ops by kind: one role refused for the same reasons, in all its layers and runs; opens to its layers, and to tokens.
import { layersOf, roleOf } from "./rolematrix.js";
import { cost } from "./missed.js";
import type { Trace } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Missed, Report } from "./wire.js";

/** `runs`: how many. */
export interface Kind { key: string; role: string; layers: number[]; runs: number; times: number; bytes: number; entries: Missed[] }
/** A line of the list: a kind, one of its nodes, or one step of that; `open`: what is below it is shown, null = nothing is. */
export interface Line { kind: Kind; entry: Missed; depth: 0 | 1 | 2; step: number; open: boolean | null; key: string; bytes: number }

export function kinds(t: Trace, entries: Missed[]): Kind[] {
  const { p, x } = t;
  const found = new Map<string, Kind & { in: Set<number> }>();
  for (const entry of entries) {
    const role = roleOf(t, entry.graph, entry.node);
    const codes = [...new Set(entry.reasons.map((r) => r.code))].sort().join(" ");
    const key = [role, p.graphs[entry.graph].nodes[entry.node][1], codes].join("\n");
    let kind = found.get(key);
    if (!kind) found.set(key, (kind = { key, role, layers: [], runs: 0, times: 0, bytes: 0, entries: [], in: new Set() }));
    kind.entries.push(entry);
    kind.times += entry.times;
    kind.bytes += entry.bytes;
    for (const step of entry.steps) kind.in.add(x.run[step]);
    const layer = p.graphs[entry.graph].layer[entry.node] ?? -1;
    if (layer >= 0 && !kind.layers.includes(layer)) kind.layers.push(layer);
  }
  for (const kind of found.values()) {
    kind.runs = kind.in.size;
    kind.layers.sort((a, b) => a - b);
    kind.entries.sort((a, b) => b.bytes - a.bytes || a.step - b.step);
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes || a.entries[0].step - b.entries[0].step);
}

/** The lines that are shown: kinds of few bytes only if wanted, and what is below those that are open. */
export function lines(t: Trace, all: Kind[], open: Set<string>): Line[] {
  const found: Line[] = [];
  for (const kind of all) {
    const [worst] = kind.entries;
    const many = kind.entries.length > 1;
    const deep = many || worst.steps.length > 1;
    found.push({ kind, entry: worst, depth: 0, step: worst.step, open: deep ? open.has(kind.key) : null, key: kind.key, bytes: kind.bytes });
    if (!open.has(kind.key)) continue;
    for (const entry of byLayer(t, kind.entries)) {
      const key = `${kind.key}\n${entry.graph}/${entry.node}`;
      const steps = entry.steps.length > 1 || !many;
      if (many) found.push({ kind, entry, depth: 1, step: entry.step, open: steps ? open.has(key) : null, key, bytes: entry.bytes });
      if (many && !open.has(key)) continue;
      for (const at of steps ? entry.steps : []) found.push({ kind, entry, depth: 2, step: numberOf(t, at), open: null, key: `${key}\n${at}`, bytes: cost(t, at) });
    }
  }
  return found;
}

function byLayer({ p }: Trace, entries: Missed[]): Missed[] {
  const layer = (m: Missed) => p.graphs[m.graph].layer[m.node] ?? -1;
  return [...entries].sort((a, b) => layer(a) - layer(b) || a.graph - b.graph || a.node - b.node);
}

/** Bytes below which kinds are hidden at first. */
export function small(t: Trace, report: Report | null, all: Kind[]): number {
  if (report?.small !== undefined) return report.small;
  return layersOf(t).length && all.length > 20 ? 1000 : 0;
}
