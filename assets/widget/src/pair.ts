// Two recordings with one cursor: which step of one is which of the other, and where they decided differently.
import type { Trace } from "./replay.js";
import { open, type Ints } from "./wire.js";

export interface Totals { peak: number; copied: number; allocated: number; in_place: number; missed: number; steps: number }
/** What Python says of both, see kvviz/view/payload_pair.py. `to`: by step of one side, the step of the other; -1 = none. */
export interface Match {
  labels: [string, string];
  totals: [Totals, Totals]; // of the first `runs`, null = of all
  runs: number | null;
  note: string; // which they are
  first: { step: number; partner: number; sentence: string } | null;
  back: boolean; // whether there is a debugger to go back to
  to: [Ints, Ints];
}

export function unpackMatch(raw: ArrayBuffer): Match {
  const { header, column } = open<Match & { format: number; columns: Record<string, [string, number, number]> }>(raw);
  return { ...header, to: [column("to.after") as Ints, column("to.before") as Ints] };
}

/** The step of the other side to show: the partner, or that of the nearest earlier step that has one (`exact` is false). */
export function partner(to: Ints, step: number): { step: number; exact: boolean } {
  for (let s = Math.min(step, to.length - 1); s >= 0; s--) if (to[s] >= 0) return { step: to[s], exact: s === step };
  return { step: -1, exact: step < 0 };
}

/** Steps of the first `runs` of `a` that `b` does not have, or decided in another way: dispatch, inputs taken, where outputs live. */
export function differences(a: Trace, b: Trace, to: Ints, runs: number | null = null): number[] {
  const hows = ({ p }: Trace, s: number) => p.out.how.subarray(p.step.out[s], p.step.out[s + 1]).join();
  const { inPlace, missed, view, foreign } = a.p.flag;
  const kinds = inPlace | missed | view | foreign;
  const found: number[] = [];
  for (let s = 0; s < (a.p.runs[runs ?? -1]?.first ?? a.p.steps); s++) {
    const other = to[s] ?? -1;
    const same = other >= 0 && ((a.p.step.flags[s] ^ b.p.step.flags[other]) & kinds) === 0
      && a.p.step.taken[s] === b.p.step.taken[other] && hows(a, s) === hows(b, other);
    if (!same) found.push(s);
  }
  return found;
}

/** The scale on which both curves of live bytes are drawn. */
export interface Scale { top: number; from: number; steps: number; runs: number; byRuns: boolean }

export function common(a: Scale, b: Scale): Scale {
  return { top: Math.max(a.top, b.top), from: Math.min(a.from, b.from), steps: Math.max(a.steps, b.steps), runs: Math.max(a.runs, b.runs), byRuns: a.byRuns || b.byRuns };
}
