// Conversions between steps, bytes and pixels of the memory map, and hit tests. All functions are pure.
import type { Rect } from "./level.js";
import type { Layout } from "./mapdata.js";

/** Steps, `to` not included; fractions are allowed. */
export interface Range { from: number; to: number }
/** A band from `head` to `foot` in px, and the bytes between. */
export interface Box { head: number; foot: number; bytes: number }
/** A drawing; `px`: width of a step. */
export interface Sheet { width: number; height: number; range: Range; px: number; boxes: Box[] }

const GAP = 7; // px between bands
const LEAST = 22; // px of a band

export const xOf = (s: Sheet, step: number) => (step - s.range.from) * s.px;
export const stepOf = (s: Sheet, x: number) => s.range.from + x / s.px;
export const yOf = ({ boxes }: Sheet, band: number, bytes: number) => boxes[band].foot - (bytes / boxes[band].bytes) * (boxes[band].foot - boxes[band].head);

/** The bytes of each band in a range; of an arena, its whole size. */
export function needed({ l, bands, band, base }: Layout, { from, to }: Range): number[] {
  const top = bands.map((b) => (b.addressed ? b.top : 0));
  for (let k = 0; k < l.n; k++) {
    if (l.from[k] >= to || l.to[k] <= from) continue;
    const end = base[k] + l.bytes[k];
    if (end > top[band[k]]) top[band[k]] = end;
  }
  return top.map((bytes, i) => bytes || bands[i].top || 1);
}

/** Bands from top to bottom. Heights grow with bytes, but much slower. */
export function boxes(bytes: number[], height: number): Box[] {
  const room = Math.max(bytes.length, height - GAP * (bytes.length - 1));
  const share = bytes.map((b) => b ** 0.25);
  const all = share.reduce((a, b) => a + b, 0) || 1;
  const least = Math.min(LEAST, room / bytes.length);
  const rest = room - least * bytes.length;
  let head = 0;
  return bytes.map((b, i) => {
    const foot = head + least + (rest * share[i]) / all;
    const box = { head, foot, bytes: b };
    head = foot + GAP;
    return box;
  });
}

/** Vertical zoom: `times` the height, scrolled by `off` px. */
export interface Rise { times: number; off: number }

export function sheet(layout: Layout, range: Range, shown: Range, width: number, height: number, { times, off }: Rise): Sheet {
  const all = boxes(needed(layout, shown), height * times).map(({ head, foot, bytes }) => ({ head: head - off, foot: foot - off, bytes }));
  return { width, height, range, px: width / Math.max(1e-6, range.to - range.from), boxes: all };
}

/** Scale around a fixed height. */
export function raised({ times, off }: Rise, by: number, around: number, height: number): Rise {
  const now = Math.max(1, Math.min(64, times * by));
  return { times: now, off: Math.max(0, Math.min(height * (now - 1), ((off + around) * now) / times - around)) };
}

/** The range within the recording, at least a few steps long. */
export function clamped(from: number, to: number, steps: number, least = 4): Range {
  const size = Math.min(steps, Math.max(Math.min(least, steps), to - from));
  const at = Math.max(0, Math.min(steps - size, from));
  return { from: at, to: at + size };
}

/** Scale around a fixed step. */
export function zoomed({ from, to }: Range, by: number, around: number, steps: number): Range {
  const size = Math.max(Math.min(4, steps), Math.min(steps, (to - from) * by));
  const share = to > from ? (around - from) / (to - from) : 0.5;
  return clamped(around - share * size, around - share * size + size, steps);
}

export function rectOf(s: Sheet, { l, band, base }: Layout, k: number): Rect {
  const x = xOf(s, l.from[k]);
  const y = yOf(s, band[k], base[k] + l.bytes[k]);
  return { x, y, w: Math.max(1, xOf(s, l.to[k]) - x), h: Math.max(1, yOf(s, band[k], base[k]) - y) };
}

/** The life under a point, or the nearest within a few px; -1: none. */
export function under(s: Sheet, layout: Layout, x: number, y: number, reach = 3): number {
  const { l } = layout;
  const [early, late] = [stepOf(s, x - reach), stepOf(s, x + reach)];
  let found = -1;
  let best = Infinity;
  for (let k = 0; k < l.n; k++) {
    if (l.from[k] > late || l.to[k] < early) continue;
    const r = rectOf(s, layout, k);
    const far = Math.max(r.x - x, x - r.x - r.w, r.y - y, y - r.y - r.h, 0);
    if (far > reach) continue;
    const score = far * 1e7 + Math.min(r.w * r.h, 1e6);
    if (score < best) [best, found] = [score, k];
  }
  return found;
}

/** The next life in the direction of an arrow key, or the same one. `step`: where to walk up and down. */
export function neighbour(s: Sheet, layout: Layout, k: number, key: string, step: number): number {
  const { l } = layout;
  const here = rectOf(s, layout, k);
  let found = k;
  let best = Infinity;
  for (let o = 0; o < l.n; o++) {
    if (o === k) continue;
    const r = rectOf(s, layout, o);
    let score: number;
    if (key === "ArrowUp" || key === "ArrowDown") {
      if (l.from[o] > step || l.to[o] <= step) continue;
      score = key === "ArrowUp" ? here.y - (r.y + r.h) : r.y - (here.y + here.h);
      if (score < -0.51) continue;
    } else {
      score = key === "ArrowRight" ? (l.from[o] - l.to[k]) * s.px : (l.from[k] - l.to[o]) * s.px;
      if (score < 0) continue;
      score += 2 * Math.abs(r.y + r.h / 2 - here.y - here.h / 2);
    }
    if (score < best) [best, found] = [score, o];
  }
  return found;
}
