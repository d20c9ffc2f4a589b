// The two pictures of the memory map and their colours: a base that does not depend on the cursor, and above it what is alive and chosen.
// Rectangles are filled by pixels: twenty thousand cost little. On large ones there are marks: names, notches with arrows where contents are
// overwritten, stripes for partial views, an outline where a block is held past its last use.
import { bordered, filled, label, outline, polygon, type Inks, type Ruler } from "./canvas.js";
import { idsOf, within } from "./arrays.js";
import { el, mark, set } from "./dom.js";
import { buffer, bytes, count, opLabel, opName, plural, shortValue } from "./format.js";
import { pairText, sharedParts } from "./evidence.js";
import { age, heldFrom, notches, rectOf, xOf, yOf, type Layout, type Lives, type Sheet } from "./mapdata.js";
import { generation, numberOf, opAt, type Trace } from "./replay.js";
import type { Store } from "./store.js";
import type { Rect } from "./level.js";

export const COLOURS = ["owner", "cache", "op", "size"] as const;
export type Colour = (typeof COLOURS)[number];
/** `hue`: a token; `share`: its share in the pale colour. */
export interface Class { name: string; hue: string; share: number }
export interface Classes { of: Uint8Array; all: Class[] }

const HUES = ["view", "accent", "inplace-ink", "missed-ink", "foreign"];
const REST = "soft";
const PALE = 0.4;
/** Hues of owners by origin; all other origins are shown as the caller. */
const OWNER: Record<string, string> = { run: "accent", pool: "foreign" };

const plain = (name: string, hue: string): Class => ({ name, hue, share: PALE });

function grouped(l: Lives, of: (k: number) => Class): Classes {
  const all: Class[] = [];
  const at = Uint8Array.from({ length: l.n }, (_, k) => {
    const c = of(k);
    const known = all.findIndex((o) => o.name === c.name);
    return known < 0 ? all.push(c) - 1 : known;
  });
  return { of: at, all };
}

export function classes(t: Trace, l: Lives, colour: Colour): Classes {
  const { p, x } = t;
  const origin = (k: number) => p.codes.origin[p.storage.origin[l.storage[k]]];
  if (colour === "owner") {
    return grouped(l, (k) => {
      if (l.cache[k] >= 0) return plain("cache", HUES[0]);
      return plain(OWNER[origin(k)] ? origin(k) : "caller", OWNER[origin(k)] ?? REST);
    });
  }
  if (colour === "cache") {
    const named = p.caches.map((c, i) => plain(shortValue(c.name), HUES[i % HUES.length]));
    const rest = plain("no cache", REST);
    // for very many caches, one class for each hue
    return named.length <= 200 ? { of: Uint8Array.from(l.cache, (c) => (c < 0 ? named.length : c)), all: [...named, rest] } : grouped(l, (k) => (l.cache[k] < 0 ? rest : plain(`cache ${l.cache[k] % HUES.length}`, HUES[l.cache[k] % HUES.length])));
  }
  if (colour === "op") {
    const op = (k: number) => {
      const step = l.maker[k] < 0 ? -1 : x.outStep[l.maker[k]];
      return step < 0 ? "given" : opName(opAt(t, step).op[1]);
    };
    const sum = new Map<string, number>();
    for (let k = 0; k < l.n; k++) if (l.maker[k] >= 0) sum.set(op(k), (sum.get(op(k)) ?? 0) + l.bytes[k]);
    const top = [...sum].sort((a, b) => b[1] - a[1]).slice(0, HUES.length).map(([name]) => name);
    const all = [...top.map((name, i) => plain(name, HUES[i])), plain("other", REST)];
    return { of: Uint8Array.from({ length: l.n }, (_, k) => (top.indexOf(op(k)) + all.length) % all.length), all };
  }
  const most = Math.log2(Math.max(2, ...l.bytes.length ? [l.bytes.reduce((a, b) => Math.max(a, b), 0)] : []));
  const levels = 5;
  const all = Array.from({ length: levels }, (_, i) => ({ name: `≤ ${bytes(2 ** (most * ((i + 1) / levels)))}`, hue: "accent", share: 0.12 + 0.12 * i }));
  return { of: Uint8Array.from(l.bytes, (b) => Math.min(levels - 1, Math.floor((Math.log2(Math.max(1, b)) / most) * levels))), all };
}

const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
/** A CSS colour as the four bytes of a pixel. */
export function pixel(colour: string): number {
  if (!brush) return 0xff888888;
  filled(brush, colour, 0, 0, 1, 1);
  return new Uint32Array(brush.getImageData(0, 0, 1, 1).data.buffer)[0];
}

/** A pixel buffer for a canvas. */
class Raster {
  #image: ImageData | null = null;
  #pixels = new Uint32Array();
  #context: CanvasRenderingContext2D | null;
  constructor(readonly canvas: HTMLCanvasElement) { this.#context = canvas.getContext("2d"); }

  /** Clear it and set its size in CSS px. */
  begin(width: number, height: number, ratio: number): CanvasRenderingContext2D | null {
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.canvas.width !== w || this.canvas.height !== h || !this.#image) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.#image = this.#context?.createImageData(w, h) ?? null;
      this.#pixels = new Uint32Array(this.#image?.data.buffer ?? new ArrayBuffer(0));
    } else this.#pixels.fill(0);
    return this.#context;
  }

  fill(x0: number, y0: number, x1: number, y1: number, pixel: number): void {
    const { width, height } = this.canvas;
    const from = Math.max(0, x0);
    const to = Math.min(width, x1);
    if (from >= to) return;
    for (let y = Math.max(0, y0); y < Math.min(height, y1); y++) this.#pixels.fill(pixel, y * width + from, y * width + to);
  }

  show(): void { if (this.#image) this.#context?.putImageData(this.#image, 0, 0); }
}

/** Fill the rectangles of visible lives, or of `few`; returns how many. */
export function fill(raster: Raster, t: Trace, s: Sheet, layout: Layout, ratio: number, pixel: (k: number) => number, few?: Iterable<number>): number {
  const { l, band, base } = layout;
  const { from, to } = s.range;
  const thin: number[] = []; // four numbers and a colour each
  let drawn = 0;
  const one = (k: number) => {
    if (l.from[k] >= to || l.to[k] <= from) return;
    drawn++;
    const foot = yOf(s, band[k], base[k]) * ratio;
    for (const [begin, end, bytes] of spans(t, layout, k)) {
      const x0 = xOf(s, begin) * ratio;
      const x1 = xOf(s, end) * ratio;
      const head = yOf(s, band[k], base[k] + bytes) * ratio;
      const left = Math.floor(x0);
      const top = Math.floor(head);
      if (x1 - x0 < 1 || foot - head < 1) thin.push(left, top, Math.max(left + 1, Math.round(x1)), Math.max(top + 1, Math.round(foot)), k);
      // a gap between neighbours, if there is room
      else raster.fill(Math.round(x0), Math.round(head) + (foot - head >= 4 * ratio ? ratio : 0), Math.round(x1) - (x1 - x0 >= 4 * ratio ? ratio : 0), Math.round(foot), pixel(k));
    }
  };
  if (few) for (const k of few) one(k);
  else for (let k = 0; k < l.n; k++) one(k);
  for (let i = 0; i < thin.length; i += 5) raster.fill(thin[i], thin[i + 1], thin[i + 2], thin[i + 3], pixel(thin[i + 4]));
  raster.show();
  return drawn;
}

/** Ranges of steps with the bytes of a life: several if its storage grew. */
export function spans({ p, x }: Trace, { l }: Layout, k: number): [number, number, number][] {
  const s = l.storage[k];
  const found: [number, number, number][] = [];
  let bytes = l.bytes[k];
  let end = l.to[k];
  for (const g of idsOf(x.grown, s).slice().reverse()) {
    const step = p.grow.step[g];
    if (step >= l.to[k]) continue;
    if (step > l.from[k]) found.push([step, end, bytes]);
    end = Math.min(end, Math.max(step, l.from[k]));
    bytes -= p.grow.bytes[g];
  }
  if (end > l.from[k]) found.push([l.from[k], end, bytes]);
  return found;
}

/** `pale`, `full`: pixels by class. */
export interface Ink { inks: Inks; classes: Classes; pale: Uint32Array; full: Uint32Array }

export class Picture {
  readonly #base = new Raster(el("canvas", { "aria-hidden": "true" }));
  readonly #over = new Raster(el("canvas", { "aria-hidden": "true" }));
  readonly canvases = [this.#base.canvas, this.#over.canvas];
  #labels: Text[] = [];
  #large: number[] = [];

  constructor(private store: Store) {}

  #begin(raster: Raster, s: Sheet, draw: (ratio: number) => void): CanvasRenderingContext2D | null {
    const ratio = globalThis.devicePixelRatio || 1;
    const context = raster.begin(s.width, s.height, ratio);
    if (!context) return null;
    context.setTransform(1, 0, 0, 1, 0, 0);
    draw(ratio);
    set(raster.canvas, "width", `${s.width}px`);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  /** `seen`: the visible range in px. Returns the number of lives. */
  base(s: Sheet, layout: Layout, { inks, classes, pale }: Ink, seen: [number, number]): number {
    const { t } = this.store;
    let drawn = 0;
    const context = this.#begin(this.#base, s, (ratio) => {
      drawn = fill(this.#base, t, s, layout, ratio, (k) => pale[classes.of[k]]);
    });
    if (!context) return 0;
    this.#large = large(s, layout);
    marks(context, inks, t, s, layout, this.#large);
    this.#labels = texts(inks.ruler, t, s, layout, this.#large, seen);
    for (const { text, x, y } of this.#labels) label(context, inks, text, x, y, { ink: "ink" });
    // lines at runs and at the bottom of bands, behind everything
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = inks.colour("line");
    for (const run of t.p.runs) {
      const x = Math.round(xOf(s, run.first));
      if (run.first > 0 && x > 0 && x < s.width && t.p.runs.length * 3 < s.width) context.fillRect(x, 0, 1, s.height);
    }
    for (const { foot } of s.boxes) context.fillRect(0, Math.round(foot) - 1, s.width, 1);
    context.globalCompositeOperation = "source-over";
    return drawn;
  }

  over(s: Sheet, layout: Layout, { inks, classes, full }: Ink): void {
    const { store } = this;
    const { l } = layout;
    const now = store.bare >= 0 ? -1 : Math.max(0, store.cursor);
    const there: number[] = [];
    for (let k = 0; k < l.n && l.from[k] <= now; k++) if (l.to[k] > now) there.push(k);
    const context = this.#begin(this.#over, s, (ratio) => void fill(this.#over, store.t, s, layout, ratio, (k) => full[classes.of[k]], there));
    if (!context) return;
    const alive = new Set(there);
    marks(context, inks, store.t, s, layout, this.#large.filter((k) => alive.has(k)));
    for (const { k, text, x, y } of this.#labels) if (alive.has(k)) label(context, inks, text, x, y, { ink: "on-accent" });
    const chosen = store.selection?.kind === "storage" ? store.selection.id : -1;
    for (let k = 0; k < l.n; k++) {
      const strong = l.storage[k] === chosen;
      if (!strong && !(store.now.lit.storages.has(l.storage[k]) && alive.has(k))) continue;
      const r = rectOf(s, layout, k);
      if (r.x > s.width || r.x + r.w < 0) continue;
      const x = Math.max(-3, r.x) - 0.5;
      const wide = Math.min(s.width + 3, r.x + r.w) - x + 0.5;
      if (strong) bordered(context, inks.colour("pane"), 4, x, r.y - 0.5, wide, r.h + 1);
      bordered(context, inks.colour(strong ? "ink" : "accent"), strong ? 2.2 : 1.4, x, r.y - 0.5, wide, r.h + 1);
    }
    this.#pair(context, s, layout, inks);
  }

  /** The shared bytes of the chosen pair, from its earlier to its later step. */
  #pair(context: CanvasRenderingContext2D, s: Sheet, layout: Layout, inks: Inks): void {
    const { t: { p }, pair } = this.store;
    const canvas = this.#over.canvas;
    mark(canvas, "data-shared", null);
    if (pair < 0) return;
    const [first, second, storage] = [p.pair.first[pair], p.pair.second[pair], p.pair.storage[pair]];
    const { l } = layout;
    let k = 0;
    while (k < l.n && (l.storage[k] !== storage || l.from[k] > first || l.to[k] <= first)) k++;
    if (k === l.n) return;
    const r = rectOf(s, layout, k);
    const [left, right] = [xOf(s, first), Math.min(r.x + r.w, xOf(s, second + 1))];
    const parts = sharedParts(p, pair);
    mark(canvas, "data-shared", `${parts.length} of B${storage}, ${pairText(p, pair, "label")}`);
    const [red, pane] = [inks.colour("hidden"), inks.colour("pane")];
    const wide = Math.max(2, right - left);
    // on a light rim, for contrast on dark bars
    const frame = (ink: string, width: number, dash: number[]) => {
      context.setLineDash(dash);
      bordered(context, ink, width, left, r.y - 0.5, wide, r.h + 1);
      context.setLineDash([]);
    };
    frame(pane, 4, []);
    frame(red, 1.8, [5, 3]);
    for (const [low, high] of parts) {
      const tall = Math.max(3, r.h * (high - low));
      const y = Math.min(r.y + r.h - tall, r.y + r.h * (1 - high));
      filled(context, pane, left - 2, y - 2, wide + 4, tall + 4);
      filled(context, red, left, y, wide, tall);
      // colour alone carries no meaning: an end at each step
      for (const x of [left, right]) context.fillRect(x - 1, y - 3, 2, tall + 6);
    }
  }
}

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
