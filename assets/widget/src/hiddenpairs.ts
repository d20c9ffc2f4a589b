// Hidden pairs: what they are called, which belong to a step, and which lines the graph draws. Pure.
import { ensure, kept } from "./arrays.js";
import type { Trace } from "./replay.js";
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

/** Alike pairs of layers and runs, in the order of the header's titles; those that are not told here are left out. */
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
export function orderedGroups(p: Payload): { group: number; title: string; pairs: number[] }[] {
  const found = (p.hazards?.ordered?.groups ?? []).map((title, group) => ({ group, title, pairs: [] as number[] }));
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

/** A line between two places of the graph, and how many pairs it stands for. */
export interface RedLine { from: number; to: number; pairs: number[]; state: string; strong: boolean }

/** So many pairs of one frame are all drawn. */
const ALL = 12;

/** Pairs to draw in a frame: all if they are few, those of the cursor's step, and what is alike with the chosen one. */
export function drawn({ p }: Trace, frame: number, cursor: number, chosen: number): number[] {
  const inside: number[] = [];
  for (let k = 0; k < p.pair.first.length; k++) {
    if (p.step.frame[p.pair.first[k]] === frame && p.step.frame[p.pair.second[k]] === frame && pairState(p, k) !== "false") inside.push(k);
  }
  const own = chosen < 0 ? -1 : p.pair.group[chosen];
  const wanted = inside.length <= ALL ? inside : inside.filter((k) => p.pair.group[k] === own || p.pair.first[k] === cursor || p.pair.second[k] === cursor);
  // a pair of another run, or one that is none, is drawn where its ops are
  const there = chosen >= 0 && !wanted.includes(chosen) && [p.pair.first[chosen], p.pair.second[chosen]].every((step) => p.frame.graph[p.step.frame[step]] === p.frame.graph[frame]);
  return there && !wanted.some((k) => p.pair.group[k] === own) ? [...wanted, chosen] : wanted;
}

/** One line for each two places: `place` says where a node is seen, itself (its number) or the card that it is folded into. */
export function lines({ p }: Trace, pairs: number[], chosen: number, place: (node: number) => number): RedLine[] {
  const found = new Map<string, RedLine>();
  for (const k of pairs) {
    const [from, to] = [place(p.step.node[p.pair.first[k]]), place(p.step.node[p.pair.second[k]])];
    const state = pairState(p, k);
    const key = `${from} ${to} ${state} ${p.strings[p.pair.kind[k]]}`;
    const one = ensure(found, key, () => ({ from, to, pairs: [], state, strong: false }));
    one.pairs.push(k);
    one.strong ||= k === chosen;
  }
  return [...found.values()];
}

/** `RAW · 384 B`, or `RAW ×30`. */
export function lineText(p: Payload, line: RedLine): string {
  return line.pairs.length > 1 ? `${p.strings[p.pair.kind[line.pairs[0]]]} ×${line.pairs.length}` : pairText(p, line.pairs[0], "label");
}
