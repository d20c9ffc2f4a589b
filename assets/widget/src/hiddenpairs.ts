// Hidden pairs: what they are called, and which belong to a step.
import { ensure, kept } from "./arrays.js";
import type { Payload } from "./wire.js";

/** A text of a pair by its name in the header's table. */
export function pairText(p: Payload, pair: number, name: string): string {
  const h = p.hazards;
  if (!h) return "";
  const at = [...h.picture.texts, ...h.picture.paths].indexOf(name);
  return at < 0 ? "" : p.strings[p.pairtext.of[pair * (h.picture.texts.length + h.picture.paths.length) + at]] ?? "";
}

export function pairState(p: Payload, pair: number): string {
  return p.hazards?.picture.states[p.pair.state[pair]] ?? "";
}

/** Alike pairs of layers and runs, in the order of the header's titles; those that were not sent are left out. */
export interface PairGroup { group: number; title: string; state: string; pairs: number[] }
export function pairGroups(p: Payload): PairGroup[] {
  const found = new Map<number, PairGroup>();
  for (let k = 0; k < p.pair.first.length; k++) {
    const group = p.pair.group[k];
    ensure(found, group, () => ({ group, title: p.hazards?.groups[group] ?? "", state: pairState(p, k), pairs: [] })).pairs.push(k);
  }
  return [...found.values()];
}

/** Pairs that a path of the graph keeps in order, in groups as above. */
export function orderedGroups(p: Payload): PairGroup[] {
  const found = (p.hazards?.ordered?.groups ?? []).map((title, group): PairGroup => ({ group, title, state: "ordered", pairs: [] }));
  for (let k = 0; k < p.ordered.first.length; k++) found[p.ordered.group[k]].pairs.push(k);
  return found.filter((one) => one.pairs.length);
}

/** The steps of the path that keeps a pair in order, its own two with them. */
export function pathOf(p: Payload, pair: number): number[] {
  return [...p.path.step.subarray(p.ordered.path[pair], p.ordered.path[pair + 1])];
}

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
