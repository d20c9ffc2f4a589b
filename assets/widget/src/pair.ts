// Two recordings of the same inputs: matching steps, and different decisions.
import { ensure } from "./arrays.js";
import { opAt, type Trace } from "./replay.js";
import type { Ints, Payload } from "./wire.js";

export interface Totals { peak: number; copied: number; allocated: number; in_place: number; missed: number; steps: number }
/** Changes of order against the lane that it left: moved steps, and hazards that this breaks. */
export interface OrderInfo { claim: string; moved: number[]; total: number; broken: [kind: string, first: number, second: number, bytes: number, root: string, sentence: string][] }
/** The data of a lane, see kvviz/view/page_data/payload_lanes.py. Steps are numbers; `figures` are those of `of` and its own. */
export interface LaneInfo {
  id: number; label: string; of: number | null;
  step: number; // where it left that one; 0 = it differs from the beginning
  live: boolean; figures: [Totals, Totals] | null; note: string;
  runs: number | null; // how many runs the figures cover, null = all
  first: { step: number; other: number; sentence: string } | null;
  order?: OrderInfo | null;
  holds?: string; // what of the change holds from where, where it left the other one at a step
  throughout?: boolean; // it holds also before that step
  value?: { step: number; other: number; sentence: string; why?: string } | null; // the first that made other numbers
}
/** Possible changes of the shown lane as a whole. */
export interface Offers { policies?: string[]; donate?: string[]; orders?: string[]; kv_capacity?: number | null }
/** The source of lanes; `show`: draw this one from now on, at a step by its number. */
export interface LaneSource {
  get(name: "lanes" | "lane" | "main" | "offers" | "branches" | "payload" | "edge" | "latest" | "cursor"): any;
  show(lane: number, p: Payload, step: number, who: "person" | "model"): void;
  changed(call: () => void): void;
}
/** Two compared recordings; `badge`: the decisions of both at a step, null if they are equal. */
export interface Versus { names: [string, string]; badge(t: Trace, step: number): [string, string] | null }

/** The decisions of both as text, or "". */
export function badgeOf(versus: Versus | null, t: Trace, step: number): string {
  const sides = versus?.badge(t, step);
  return sides && versus ? sides.map((how, side) => `${versus.names[side]} ${how}`).join(" · ") : "";
}

/** The matching step of `b` for each step of `a`: same op, run and frame; -1 = none. */
export function align(a: Payload, b: Payload): Ints {
  const there = new Map<string, number>();
  keys(b, (key, step) => there.set(key, step));
  const to = new Int32Array(a.steps);
  keys(a, (key, step) => { to[step] = there.get(key) ?? -1; });
  return to;
}

function keys(p: Payload, each: (key: string, step: number) => void): void {
  const paths: string[] = [];
  for (let f = 0; f < p.frames; f++) paths[f] = p.frame.parent[f] < 0 ? String(p.frame.run[f]) : `${paths[p.frame.parent[f]]}/${p.strings[p.frame.label[f]]}`;
  for (let s = 0; s < p.steps; s++) each(`${paths[p.step.frame[s]]} ${p.step.node[s]}`, s);
}

/** The matching step, or that of the nearest earlier step with one (`exact` is false). */
export function partner(to: Ints, step: number): { step: number; exact: boolean } {
  for (let s = Math.min(step, to.length - 1); s >= 0; s--) if (to[s] >= 0) return { step: to[s], exact: s === step };
  return { step: -1, exact: step < 0 };
}

/** The decision of a step in one or two words, from its first output. */
export function decided({ p }: Trace, step: number): string {
  const called = p.step.flags[step] & p.flag.elsewhere ? "called in place, " : "";
  if (p.step.copied[step] > 0) return `${called}copied`;
  const out = p.step.out[step];
  const how = out < p.step.out[step + 1] ? p.codes.how[p.out.how[out]] : "";
  return p.step.flags[step] & p.flag.inPlace && how !== "append" ? "in place" : called + how || "no output";
}

/** Whether two decisions differ: dispatch, inputs taken, placement of outputs. */
export function unlike(a: Trace, s: number, b: Trace, other: number): boolean {
  const { inPlace, elsewhere, missed, view, foreign } = a.p.flag;
  const hows = ({ p }: Trace, step: number) => p.out.how.subarray(p.step.out[step], p.step.out[step + 1]).join();
  return ((a.p.step.flags[s] ^ b.p.step.flags[other]) & (inPlace | elsewhere | missed | view | foreign)) !== 0
    || a.p.step.taken[s] !== b.p.step.taken[other] || hows(a, s) !== hows(b, other);
}

/** A matching pair of steps, -1 if one side did not run it, and what the second costs more. */
export interface Gap { a: number; b: number; copied: number; allocated: number }
export interface Group { op: string; decided: [string, string]; gaps: Gap[]; copied: number; allocated: number }

/** Differing steps of the first `runs` runs, grouped, the most bytes first. */
export function groups(a: Trace, b: Trace, to: Ints, runs: number | null = null): Group[] {
  const found = new Map<string, Group>();
  const end = (t: Trace) => t.p.runs[runs ?? -1]?.first ?? t.p.steps;
  const name = (t: Trace, s: number) => opAt(t, s).op[1];
  const add = (op: string, how: [string, string], gap: Gap) => {
    const key = [op, ...how].join("\n");
    const group = ensure(found, key, () => ({ op, decided: how, gaps: [], copied: 0, allocated: 0 }));
    group.gaps.push(gap);
    group.copied += gap.copied;
    group.allocated += gap.allocated;
  };
  const met = new Uint8Array(b.p.steps);
  for (let s = 0; s < end(a); s++) {
    const o = to[s];
    if (o >= 0) met[o] = 1;
    const copied = (o < 0 ? 0 : b.p.step.copied[o]) - a.p.step.copied[s];
    const allocated = (o < 0 ? 0 : b.p.step.alloc[o]) - a.p.step.alloc[s];
    if (o < 0 || copied || allocated || unlike(a, s, b, o)) add(name(a, s), [decided(a, s), o < 0 ? "not run" : decided(b, o)], { a: s, b: o, copied, allocated });
  }
  for (let o = 0; o < end(b); o++) {
    if (!met[o]) add(name(b, o), ["not run", decided(b, o)], { a: -1, b: o, copied: b.p.step.copied[o], allocated: b.p.step.alloc[o] });
  }
  const list = [...found.values()];
  for (const group of list) group.gaps.sort((x, y) => most(y) - most(x));
  return list.sort((x, y) => most(y) - most(x) || y.gaps.length - x.gaps.length);
}

export function most({ copied, allocated }: { copied: number; allocated: number }): number {
  return Math.max(Math.abs(copied), Math.abs(allocated));
}

/** The shared scale of both curves of live bytes. */
export interface Scale { top: number; from: number; steps: number; runs: number; byRuns: boolean }

export function common(a: Scale, b: Scale): Scale {
  return { top: Math.max(a.top, b.top), from: Math.min(a.from, b.from), steps: Math.max(a.steps, b.steps), runs: Math.max(a.runs, b.runs), byRuns: a.byRuns || b.byRuns };
}
