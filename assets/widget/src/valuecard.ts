// The smallest and largest number of a recorded value, in a line, and its histogram in 60 × 12 pixels.
import { svg } from "./dom.js";
import { count } from "./format.js";
import type { Place, Trace } from "./replay.js";
import { entryOf, entryOfOut } from "./valuelink.js";
import type { ValueData } from "./valuedata.js";

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

export function smallOf(v: ValueData, entry: number): Small {
  const [low, high] = v.numbers.subarray(3 * entry, 3 * entry + 2);
  const range = Number.isNaN(low) ? "" : low === high ? `all ${numeral(low)}` : `min ${numeral(low)} · max ${numeral(high)}`;
  return { text: [range, oddities(v, entry)].filter(Boolean).join(" · ") || "no numbers", histogram: Array.from(v.histogram.get(entry) ?? []) };
}

/** Of an output by its place in the payload; null where it is not recorded. */
export function smallSummary(t: Trace, out: number): Small | null {
  const entry = entryOfOut(t, out);
  return t.values && entry >= 0 ? smallOf(t.values, entry) : null;
}

/** The same of what lies at a place. */
export function smallAt(t: Trace, place: Place): Small | null {
  const entry = entryOf(t, place);
  return t.values && entry >= 0 ? smallOf(t.values, entry) : null;
}

/** Bars of a histogram; a bin that holds anything shows at least a line. */
export function bars(histogram: ArrayLike<number>, width: number, height: number): SVGElement {
  const counts = Array.from(histogram);
  const most = Math.max(1, ...counts);
  const one = width / counts.length;
  const path = counts.map((n, i) => (n ? `M${(i * one).toFixed(2)} ${height}v${(-Math.max(1, (n / most) * height)).toFixed(2)}h${Math.max(1, one - 0.75).toFixed(2)}V${height}z` : "")).join("");
  return svg("svg", { class: "kv-bars", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", preserveAspectRatio: "none" }, svg("path", { d: path }));
}

export function tinyHistogram(histogram: ArrayLike<number>): SVGElement { return bars(histogram, 60, 12); }
