// Marks on large rectangles of the memory map: names, notches with arrows where contents are overwritten, stripes for
// partial views, an outline where a block is held past its last use.
import { idsOf, within } from "./arrays.js";
import { outline, polygon, type Inks, type Ruler } from "./canvas.js";
import { buffer, bytes, count, opLabel, plural, shortValue } from "./format.js";
import type { Rect } from "./level.js";
import { age, heldFrom, notches, rectOf, xOf, type Layout, type Sheet } from "./mapdata.js";
import { generation, numberOf, opAt, type Trace } from "./replay.js";

const FONT = "11px";
const MOST = 4000; // rectangles with marks; more cannot be told apart anyway
export interface Text { k: number; text: string; x: number; y: number }
type Context2D = CanvasRenderingContext2D;

/** The name of the cache, or of the value that the storage was made for. */
export function nameOf({ p }: Trace, { l }: Layout, k: number): string {
  const cache = p.caches[l.cache[k]];
  return shortValue(cache ? cache.name : p.strings[p.storage.name[l.storage[k]]]);
}

/** Lives large enough for marks. */
export function large(s: Sheet, layout: Layout): number[] {
  const { l } = layout;
  const found: number[] = [];
  const room = 5 / s.px;
  for (let k = 0; k < l.n && found.length < MOST; k++) {
    if (l.from[k] >= s.range.to || l.to[k] <= s.range.from || l.to[k] - l.from[k] < room) continue;
    if (rectOf(s, layout, k).h >= 4) found.push(k);
  }
  return found;
}

/** Names, and if there is room those of later contents. `seen`: the visible range in px. */
export function texts(ruler: Ruler, t: Trace, s: Sheet, layout: Layout, of: number[], seen: [number, number]): Text[] {
  const { l } = layout;
  const found: Text[] = [];
  for (const k of of) {
    const r = rectOf(s, layout, k);
    if (r.h < 12.5 || r.w < 24) continue;
    const y = r.y + r.h / 2 + 0.5;
    const right = Math.min(seen[1], r.x + r.w);
    let begin = Math.max(seen[0], r.x);
    const put = (left: number, end: number, text: string) => {
      const shown = ruler.fit(text, FONT, end - left - 8);
      if (!shown) return;
      found.push({ k, text: shown, x: left + 4, y });
      begin = left + ruler.width(shown, FONT) + 12;
    };
    put(begin, right, nameOf(t, layout, k));
    // a cache keeps its name while it grows
    if (l.cache[k] >= 0 || r.w < 100) continue;
    const cuts = notches(t, l, k).filter((step) => step > l.from[k]);
    cuts.forEach((step, i) => {
      const left = Math.max(seen[0], xOf(s, step));
      const end = Math.min(right, i + 1 < cuts.length ? xOf(s, cuts[i + 1]) : right);
      if (left >= begin && end - left > 44) put(left + 4, end, nameAt(t, l.storage[k], step));
    });
  }
  return found;
}

function nameAt({ p }: Trace, s: number, step: number): string {
  const out = within(p.step.out, step).find((o) => p.out.storage[o] === s && p.out.value[o] >= 0);
  return out === undefined ? "" : shortValue(p.graphs[p.frame.graph[p.step.frame[step]]].values[p.out.value[out]]);
}

export function marks(context: Context2D, inks: Inks, t: Trace, s: Sheet, layout: Layout, of: number[]): void {
  const { l } = layout;
  const pane = inks.colour("pane");
  const ink = inks.colour("ink");
  context.lineWidth = 1;
  for (const k of of) {
    const r = rectOf(s, layout, k);
    views(context, ink, t, s, layout, k, r);
    // notches that would touch are left out
    let last = -Infinity;
    context.fillStyle = pane;
    for (const step of notches(t, l, k)) {
      if (step <= l.from[k]) continue;
      const x = xOf(s, step);
      if (x < 0 || x > s.width || x - last < 3) continue;
      context.fillRect(Math.round(x) - 0.5, r.y + 1, 1.5, r.h - 1);
      if (r.h >= 9 && x - last >= 12) {
        const y = r.y + r.h - 4;
        polygon(context, pane, [[x - 3, y - 3], [x + 4, y], [x - 3, y + 3]]);
      }
      last = x;
    }
  }
  for (const k of of) {
    const held = heldFrom(t, l, k);
    if (held < 0) continue;
    const r = rectOf(s, layout, k);
    const x = Math.max(-2, xOf(s, held));
    const wide = Math.min(s.width + 2, r.x + r.w) - x - 1;
    if (wide < 2 || r.h < 4) continue;
    outline(context, inks.colour("missed"), 1.4, r.h > 8 && wide > 14 ? [5, 2] : [], x, r.y + 0.5, wide, r.h - 0.5);
  }
}

/** A stripe for every partial view, from its creation on. */
function views(context: Context2D, ink: string, t: Trace, s: Sheet, { l }: Layout, k: number, r: Rect): void {
  if (r.h < 8 || r.w < 12) return;
  const { p, x } = t;
  const storage = l.storage[k];
  const view = p.codes.how.indexOf("view");
  context.fillStyle = ink;
  context.globalAlpha = 0.32;
  const seen = new Set<string>();
  for (const o of idsOf(x.outs, storage)) {
    const step = x.outStep[o];
    if (p.out.how[o] !== view || step < l.from[k] || step >= l.to[k] || p.out.bytes[o] >= l.bytes[k] || seen.size > 40) continue;
    const key = `${p.out.offset[o]} ${p.out.bytes[o]}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const left = Math.max(0, xOf(s, step));
    const high = Math.max(1, (p.out.bytes[o] / l.bytes[k]) * r.h);
    const foot = r.y + r.h - (p.out.offset[o] / l.bytes[k]) * r.h;
    if (left < s.width) context.fillRect(left, Math.max(r.y, foot - high), Math.min(s.width, r.x + r.w) - left, Math.min(2, high));
  }
  context.globalAlpha = 1;
}

/** The tooltip of a life. `cursor`: for its generation. */
export function lines(t: Trace, layout: Layout, k: number, cursor: number): string[] {
  const { p, x } = t;
  const { l, bands, band, base } = layout;
  const s = l.storage[k];
  const at = Math.max(l.from[k], Math.min(cursor, l.to[k] - 1));
  const step = (place: number) => `step ${count(numberOf(t, place))}`;
  const maker = l.maker[k] < 0 ? null : opAt(t, x.outStep[l.maker[k]]);
  const born = maker ? `made in ${step(l.from[k])} by ${opLabel(maker.g, maker.node)}` : l.given[k] ? "there before the first step" : `there from ${step(l.from[k])}`;
  const used = l.used[k] < 0 ? "used by no step" : `last used in ${step(l.used[k])}`;
  const freed = l.freed[k] ? `freed by ${step(l.to[k] - 1)}` : p.live ? "alive" : "not freed in this recording";
  const { addressed, arena } = bands[band[k]];
  return [
    `${buffer(p, s, generation(t, s, at))} · ${bytes(l.bytes[k])} · ${nameOf(t, layout, k)}`,
    `${p.codes.owner[p.storage.origin[s]]}${l.cache[k] >= 0 ? `, holds ${p.caches[l.cache[k]].name}` : ""}${addressed ? `, ${arena} from address ${count(base[k])}` : ""}`,
    born,
    `${used}; ${freed}`,
    `lives ${plural(age(l, k), "step")}${heldFrom(t, l, k) >= 0 ? "; held past its last use" : ""}`,
  ];
}
