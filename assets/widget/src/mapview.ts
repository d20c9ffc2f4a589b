// Conversions between steps, bytes and pixels of the memory map, hit tests, and gestures.
import { onDrag, onKey, onPointer, placeIn, stop } from "./dom.js";
import type { Layout } from "./mapdata.js";
import type { Store } from "./store.js";

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

export interface Rect { x: number; y: number; w: number; h: number }
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

const KEYS: Record<string, (map: Mapped) => void> = {
  "+": (map) => map.zoom(0.5), "=": (map) => map.zoom(0.5), "-": (map) => map.zoom(2), "0": (map) => map.zoom(0), z: (map) => map.zoom(-1), PageUp: (map) => map.raise(1.5), PageDown: (map) => map.raise(1 / 1.5),
};

interface Mapped {
  width: number;
  range: Range;
  stepAt(x: number): number;
  at(x: number, y: number): number;
  zoom(by: number, around?: number): void;
  raise(by: number, y?: number): void;
  lift(px: number): void;
  pan(steps: number): void;
  look(range: Range): void;
  choose(k: number, go?: boolean): void;
  chosen(): number;
  point(k: number, fixed?: boolean): void;
  hover(at: [number, number] | null): void;
  walk(key: string): void;
}

/** A drag selects a window; with Shift or the middle button it pans. The wheel zooms only with Ctrl (steps) or Alt (bytes), so that the notebook still scrolls. */
export class Gestures {
  constructor(view: HTMLElement, steps: HTMLElement, store: Store, map: Mapped, signal: AbortSignal) {
    let [range, pan, height] = [map.range, false, 0];
    onPointer(view, {
      press: (event) => {
        [range, pan, height] = [map.range, event.button === 1 || event.shiftKey, placeIn(view, event)[1]];
        view.focus({ preventScroll: true });
        event.preventDefault();
        return pan ? "xy" : "x";
      },
      drag: ([start], [x, y]) => {
        map.hover(null);
        const { from, to } = range;
        const { steps: all } = store.t.p;
        if (pan) {
          const by = ((start - x) / Math.max(1, map.width)) * (to - from);
          map.lift(height - y);
          height = y;
          return map.look(clamped(from + by, to + by, all));
        }
        const [a, b] = [map.stepAt(Math.min(x, start)), map.stepAt(Math.max(x, start))];
        const first = Math.max(0, Math.min(Math.floor(a), all - 1));
        store.setWindow([first, Math.max(first + 1, Math.min(Math.ceil(b), all))]);
      },
      click: (at) => map.choose(map.at(...at)),
      double: (at) => { if (map.at(...at) >= 0) map.choose(map.at(...at), true); },
      over: (at) => map.hover(at),
    }, signal);
    view.addEventListener("wheel", (event) => {
      const turn = Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode ? 30 : 1)));
      if (event.ctrlKey || event.metaKey) map.zoom(1.0015 ** turn, map.stepAt(placeIn(view, event)[0]));
      else if (event.altKey) map.raise(1.0015 ** -turn, placeIn(view, event)[1]);
      else if (event.shiftKey || Math.abs(event.deltaX) > 2 * Math.abs(event.deltaY)) {
        const { from, to } = map.range;
        if (to - from >= store.t.p.steps) return;
        map.pan(((event.deltaX || event.deltaY) / Math.max(1, map.width)) * (to - from));
      } else return; // the page's own
      stop(event);
    }, { signal, passive: false });
    onKey(view, (key, event) => {
      if (/^Arrow/.test(key)) {
        const { from, to } = map.range;
        if (!event.shiftKey) map.walk(key);
        else if (/Left|Right/.test(key)) map.pan(((to - from) / 8) * (key === "ArrowRight" ? 1 : -1));
        else map.lift(key === "ArrowUp" ? -40 : 40);
      } else if (key === "Enter" && map.chosen() >= 0) map.choose(map.chosen(), true);
      else if (key === "Escape" && store.window) store.setWindow(null);
      else if (KEYS[key]) KEYS[key](map);
      else return false;
    }, signal);
    onDrag(steps, (event, moving) => store.seek(Math.floor(map.stepAt(placeIn(view, event)[0])), "person", moving), signal);
  }
}
