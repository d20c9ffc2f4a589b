// What findings stand on: their steps, where they are in this page, and what they spent; and hidden pairs, what they are called, and which
// belong to a step.
import { ensure, group, idsOf, kept } from "./arrays.js";
import { opAt, type Trace } from "./replay.js";
import type { Finding, Part, Payload } from "./wire.js";

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

/** A text of a pair by its name in the header's table. */
export function pairText(p: Payload, pair: number, name: string): string {
  const h = p.hazards;
  if (!h) return "";
  const at = [...h.picture.texts, ...h.picture.paths].indexOf(name);
  return at < 0 ? "" : p.strings[p.pairtext.of[pair * (h.picture.texts.length + h.picture.paths.length) + at]] ?? "";
}

export function pairState(p: Payload, pair: number): string { return p.hazards?.picture.states[p.pair.state[pair]] ?? ""; }

/** Alike pairs of layers and runs, hidden or kept in order by a path of the graph, in the order of the header's titles; those that were not sent are left out. */
export interface PairGroup { group: number; title: string; state: string; pairs: number[] }
export function pairGroups(p: Payload, kind: "pair" | "ordered"): PairGroup[] {
  const titles = (kind === "pair" ? p.hazards : p.hazards?.ordered)?.groups ?? [];
  const lists = group(p[kind].group, titles.length);
  const all = titles.map((title, group) => ({ group, title, pairs: [...idsOf(lists, group)] })).filter(({ pairs }) => pairs.length);
  return all.map((one) => ({ ...one, state: kind === "pair" ? pairState(p, one.pairs[0]) : kind }));
}

/** The steps of the path that keeps a pair in order, its own two with them. */
export function pathOf(p: Payload, pair: number): number[] { return [...p.path.step.subarray(p.ordered.path[pair], p.ordered.path[pair + 1])]; }

/** Where the shared bytes of a pair lie in their root: (low, high) of each piece, as shares of it. */
export function sharedParts(p: Payload, pair: number): [number, number][] {
  const bar = p.hazards?.picture.bar ?? 1;
  return [...pairText(p, pair, "path3").matchAll(/M([\d.]+) 0h([\d.]+)v/g)].map(([, x, wide]) => [Number(x) / bar, (Number(x) + Number(wide)) / bar]);
}

const byStep = kept((p: Payload) => {
  const found = new Map<number, number[]>();
  for (let k = 0; k < p.pair.first.length; k++) {
    if (pairState(p, k) !== "false") for (const at of [p.pair.first[k], p.pair.second[k]]) ensure(found, at, () => []).push(k);
  }
  return found;
});

/** Pairs that a step takes part in; what shares no byte is none. */
export function pairsOf(p: Payload, step: number): number[] { return byStep(p).get(step) ?? []; }
