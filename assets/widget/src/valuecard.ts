// The entry of a recorded value, and its smallest form: range and histogram in a line.
import { idsOf, upper } from "./arrays.js";
import { svg } from "./dom.js";
import { count } from "./format.js";
import { opAt, placeOf, type Place, type Trace } from "./replay.js";
import type { ValueData } from "./valuedata.js";

const known = new WeakMap<Trace, { of: ValueData; out: Int32Array; bind: Int32Array }>();

/** Entries of recorded values by out and by bind; -1: none. */
function links(t: Trace, v: ValueData) {
  const found = known.get(t);
  if (found?.of === v) return found;
  const { p } = t;
  const made = { of: v, out: new Int32Array(p.out.value.length).fill(-1), bind: new Int32Array(p.bind.value.length).fill(-1) };
  const mains = new Map<number, number>();
  for (let f = p.frames - 1; f >= 0; f--) if (p.frame.parent[f] < 0) mains.set(p.frame.run[f], f);
  const begun = p.runs.map((run) => run.from);
  v.at.forEach((at, entry) => {
    if (at < 0) {
      const main = mains.get(-1 - at);
      if (main !== undefined) made.bind[p.frame.bind[main] + v.slot[entry]] = entry;
      return;
    }
    const { first, last, from } = p.runs[Math.max(0, upper(begun, at) - 1)];
    const step = first + at - from;
    if (step >= last) return; // its run is not here
    const value = opAt(t, step).op[4][v.slot[entry]];
    for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) if (p.out.value[o] === value) made.out[o] = entry;
  });
  known.set(t, made);
  return made;
}

/** The out that last wrote the value that a frame was given; -1: it came from the caller. */
function handed({ p, x }: Trace, bind: number): number {
  const alike = (["gen", "bytes", "info"] as const).map((column) => [p.out[column], p.bind[column][bind]] as const);
  const same = (o: number) => x.outStep[o] < x.first[x.bindFrame[bind]] && alike.every(([column, value]) => column[o] === value);
  return idsOf(x.outs, p.bind.storage[bind]).filter(same).at(-1) ?? -1;
}

/** The entry of the value at a place; -1: not recorded. */
export function entryOf(t: Trace, { from, entry }: Pick<Place, "from" | "entry">): number {
  if (!t.values) return -1;
  const known = links(t, t.values);
  const own = known[from][entry];
  return own < 0 && from === "bind" ? known.out[handed(t, entry)] ?? -1 : own;
}

/** The input that an output overwrote or appended to. */
export function before(t: Trace, out: number): { value: number; place: Place } | null {
  const { p, x } = t;
  const step = x.outStep[out];
  const { frame, op: [, , , inputs] } = opAt(t, step);
  for (let i = 0; i < inputs.length; i++) {
    if (!(p.step.taken[step] & (1 << i))) continue;
    const place = placeOf(t, frame, inputs[i], step - 1);
    if (place?.storage === p.out.storage[out]) return { value: inputs[i], place };
  }
  return null;
}

/** `histogram` is empty where it is not recorded. */
export interface Small { text: string; histogram: number[] }

export function numeral(v: number): string {
  if (Number.isInteger(v) && Math.abs(v) < 1e6) return String(v).replace("-", "−");
  const text = Math.abs(v) >= 1e6 || Math.abs(v) < 1e-4 ? v.toExponential(2) : v.toPrecision(3);
  return text.replace(/-/g, "−");
}

/** `3 NaN · 1 +∞`; empty where all numbers are finite. */
export function oddities(v: ValueData, entry: number): string {
  const [nan, above, below] = v.counts.subarray(3 * entry, 3 * entry + 3);
  return [nan && `${count(nan)} NaN`, above && `${count(above)} +∞`, below && `${count(below)} −∞`].filter(Boolean).join(" · ");
}

/** Null if it is not recorded. */
export function smallOf(t: Trace, place: Pick<Place, "from" | "entry">): Small | null {
  const [v, entry] = [t.values, entryOf(t, place)];
  if (!v || entry < 0) return null;
  const [low, high] = v.numbers.subarray(3 * entry, 3 * entry + 2);
  const range = Number.isNaN(low) ? "" : low === high ? `all ${numeral(low)}` : `min ${numeral(low)} · max ${numeral(high)}`;
  return { text: [range, oddities(v, entry)].filter(Boolean).join(" · ") || "no numbers", histogram: Array.from(v.histogram.get(entry) ?? []) };
}

/** Bars of a histogram; a non-empty bin shows at least a line. */
export function bars(histogram: ArrayLike<number>, width = 60, height = 12): SVGElement {
  const counts = Array.from(histogram);
  const most = Math.max(1, ...counts);
  const one = width / counts.length;
  const path = counts.map((n, i) => (n ? `M${(i * one).toFixed(2)} ${height}v${(-Math.max(1, (n / most) * height)).toFixed(2)}h${Math.max(1, one - 0.75).toFixed(2)}V${height}z` : "")).join("");
  return svg("svg", { class: "kv-bars", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", preserveAspectRatio: "none" }, svg("path", { d: path }));
}
