// Hidden pairs: what they are called, and which belong to a step.
import { ensure, group, kept, idsOf } from "./arrays.js";
import type { Payload } from "./wire.js";

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
