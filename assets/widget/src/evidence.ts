// The steps of findings: where they are in this page, and what they spent.
import { ensure, kept } from "./arrays.js";
import { opAt, type Trace } from "./replay.js";
import type { Finding, Part } from "./wire.js";

/** Numbers from arithmetic series; see kvviz/view/page_data/payload_report.py. */
export function series(spans: number[] = []): number[] {
  const found: number[] = [];
  for (let i = 0; i < spans.length; i += 3) for (let k = 0; k < spans[i + 2]; k++) found.push(spans[i] + k * spans[i + 1]);
  return found;
}

/** Bytes that a step spent: new capacity, or bytes moved if its capacity came from the pool. */
export function cost({ p }: Trace, step: number): number { return Math.max(p.step.alloc[step], p.step.copied[step]); }

/** Places of the steps of a finding that are in this page, the widest first. */
export function stepsOfFinding(t: Trace, { at, parts = [] }: Finding): Int32Array {
  if (at) return Int32Array.from(series(at));
  const steps = parts.flatMap((part) => series(part.at)).sort((a, b) => a - b);
  return Int32Array.from(steps.sort((a, b) => cost(t, b) - cost(t, a)));
}

/** The part of a finding that a missed step belongs to, else one with the same role and op type; as in Markdown of Python. */
export function partOf(t: Trace, findings: Finding[], step: number): { finding: number; part: Part } | null {
  if (!(t.p.step.flags[step] & t.p.flag.missed)) return null;
  const { g, node, op: [, type] } = opAt(t, step);
  const all = findings.flatMap(({ parts = [] }, finding) => parts.map((part) => ({ finding, part })));
  return all.find(({ part }) => series(part.at).includes(step)) ?? all.find(({ part }) => part.op === type && part.name === g.roles[g.role[node]]) ?? null;
}

export function key(m: { graph: number; node: number }): number { return m.graph * 2 ** 24 + m.node; }

/** How often nodes were missed in place, and the bytes, by `key`. */
export const missedByNode = kept((t: Trace) => {
  const found = new Map<number, { times: number; bytes: number }>();
  for (let i = 0; i < t.p.steps; i++) {
    if (!(t.p.step.flags[i] & t.p.flag.missed)) continue;
    const one = ensure(found, key(opAt(t, i)), () => ({ times: 0, bytes: 0 }));
    one.times++;
    one.bytes += cost(t, i);
  }
  return found;
});
