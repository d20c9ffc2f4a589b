// The two pictures of a cache. Heads × rows after one run: the state of every row, with attention weights, words and arcs above.
// Runs × rows: how the cache grows. Both are drawn by spans, so that 4,096 rows cost no more than ten.
import { above, box, cellsOf, drawAxis, drawOwners, LEFT, lookOf, rowAt, wideOf, xOf, type Axis, type CacheData } from "./cachedata.js";
import { bordered, filled, label, outline, polygon, sized, type Inks } from "./canvas.js";
import { el, on, onDrag, onKey } from "./dom.js";
import { bytes, round } from "./format.js";

const MOST = 48; // arcs
const SHARE = 0.02; // of the largest weight: what is less has no arc
const SLANT = Math.PI / 3;

/** `high`: height in px; `every`: rows between words, 0: no room; `slanted`: for narrow columns. */
interface WordRow { high: number; every: number; slanted: boolean }

/** The layout of words over rows: upright if each fits its column. */
export function wordRow(axis: Axis, words: string[], wide: (text: string) => number): WordRow {
  const one = axis.width / axis.rows;
  if (!words.some(Boolean)) return { high: 0, every: 0, slanted: false };
  const longest = Math.max(...words.map(wide));
  if (longest + 2 <= one) return { high: 15, every: 1, slanted: false };
  return { high: Math.min(44, Math.ceil(longest * Math.sin(SLANT)) + 10), every: Math.max(1, Math.ceil(12 / one)), slanted: true };
}

function drawWords(context: CanvasRenderingContext2D, inks: Inks, axis: Axis, words: string[], { every, slanted }: WordRow, bottom: number, now: number): void {
  if (!every) return;
  context.textBaseline = slanted ? "middle" : "alphabetic";
  context.textAlign = slanted ? "left" : "center";
  const half = axis.width / axis.rows / 2;
  words.forEach((word, i) => {
    const row = axis.first + i;
    // the querying word is always shown; its neighbours give way
    if (!word || (row !== now && (i % every || Math.abs(row - now) < every))) return;
    context.font = `${row === now ? "bold " : ""}11px ${inks.family}`;
    context.fillStyle = inks.colour(row === now ? "accent" : "ink");
    context.save();
    context.translate(xOf(axis, row) + half, bottom - 4);
    if (slanted) context.rotate(-SLANT);
    context.fillText(word.length > 9 ? `${word.slice(0, 8)}…` : word, 0, 0);
    context.restore();
  });
}

/** The mean of several rows of weights. */
export function mean(all: number[][]): number[] {
  return all[0]?.map((_, row) => all.reduce((sum, one) => sum + (one[row] ?? 0), 0) / all.length) ?? [];
}

/** The rows that get an arc, the strongest on top. */
export function arcsOf(weights: number[], now: number, axis: Axis): { row: number; weight: number }[] {
  const seen = weights.map((weight, row) => ({ row, weight })).filter(({ row }) => row >= axis.first && row < axis.first + axis.rows && row !== now);
  const most = Math.max(0, ...weights);
  return seen.filter(({ weight }) => weight > 0 && weight >= most * SHARE).sort((a, b) => a.weight - b.weight).slice(-MOST);
}

function drawArcs(context: CanvasRenderingContext2D, inks: Inks, axis: Axis, weights: number[], now: number, top: number, bottom: number): void {
  if (now < axis.first || now >= axis.first + axis.rows) return;
  const half = axis.width / axis.rows / 2;
  const most = Math.max(1e-9, ...weights);
  const from = xOf(axis, now) + half;
  const wide = Math.max(1, from - LEFT, axis.width + LEFT - from);
  context.strokeStyle = inks.colour("accent");
  context.lineCap = "round";
  for (const { row, weight } of arcsOf(weights, now, axis)) {
    const to = xOf(axis, row) + half;
    const high = (bottom - top) * (0.25 + 0.75 * Math.sqrt(Math.abs(to - from) / wide));
    context.globalAlpha = 0.25 + 0.7 * (weight / most);
    context.lineWidth = 0.75 + 4.25 * (weight / most);
    context.beginPath();
    context.moveTo(from, bottom);
    // a cubic curve rises to three quarters of its handles
    context.bezierCurveTo(from, bottom - high * 4 / 3, to, bottom - high * 4 / 3, to, bottom);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.fillStyle = inks.colour("accent");
  context.beginPath();
  context.arc(from, bottom, 3, 0, 7);
  context.fill();
}

const STRIP = 64; // px for the weights over the rows
const NAMES = 15; // px under the cells and lines
const LEAST = 3; // px of a written row

export interface Place { row: number; head: number }
/** `weights`: by cache head and row, null: hidden; `words`: over the rows of the axis; `now`: row of the querying word. */
export interface Picture { d: CacheData; stream: number; run: number; heads: number; axis: Axis; weights: number[][] | null; at: Place | null; words: string[]; now: number }

export class HeatMap {
  readonly root: HTMLElement;
  #canvas = el("canvas", { "data-kv": "heat" });
  #shown: Picture | null = null;
  #top = 0;
  #pitch = 14;

  /** `point`: a cell under the pointer, or chosen; `move`: by keys; `focus`: gained or lost. */
  constructor(point: (at: Place | null, chosen: boolean) => void, move: (rows: number, heads: number) => void, focus: (on: boolean) => void, signal: AbortSignal) {
    this.root = el("div.kv-heat", { tabindex: 0, role: "img", "aria-keyshortcuts": "ArrowLeft ArrowRight ArrowUp ArrowDown PageUp PageDown Home End" }, this.#canvas);
    on(this.#canvas, "pointermove", (event) => point(this.#under(event), false), signal);
    on(this.#canvas, "pointerleave", () => point(null, false), signal);
    on(this.#canvas, "pointerdown", (event) => point(this.#under(event), true), signal);
    on(this.root, "focus", () => focus(true), signal);
    on(this.root, "blur", () => focus(false), signal);
    onKey(this.root, (key) => {
      const page = 16;
      const by = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [-page, 0], PageDown: [page, 0], Home: [-Infinity, 0], End: [Infinity, 0] } as Record<string, [number, number]>)[key];
      if (!by) return false;
      move(...by);
    }, signal);
  }

  #under(event: PointerEvent): Place | null {
    const shown = this.#shown;
    if (!shown) return null;
    const row = rowAt(shown.axis, event.offsetX);
    const head = Math.floor((event.offsetY - this.#top) / this.#pitch);
    return row < 0 || head < 0 || head >= shown.heads ? null : { row, head };
  }

  draw(picture: Picture, inks: Inks): void {
    this.#shown = picture;
    const { d, stream, run, heads, axis, weights, at, words, now } = picture;
    this.#pitch = heads <= 4 ? (d.owners ? 24 : 18) : heads <= 12 ? 13 : heads <= 20 ? 9 : 6;
    const measure = this.#canvas.getContext("2d");
    if (measure) measure.font = `11px ${inks.family}`;
    const named = wordRow(axis, words, (text) => measure?.measureText(text.slice(0, 9)).width ?? 0);
    this.#top = 7 + (weights ? STRIP : 0) + named.high;
    this.#canvas.dataset.top = String(this.#top);
    const high = heads * this.#pitch;
    const context = sized(this.#canvas, wideOf(axis), this.#top + high + NAMES, inks.ratio);
    if (!context) return;
    const one = axis.width / axis.rows;
    const [from, to] = cellsOf(d, stream, run);
    const cells = Array.from({ length: to - from }, (_, i) => from + i).filter((c) => d.stop[c] > axis.first && d.start[c] < axis.first + axis.rows);
    cells.sort((a, b) => above(d.states[d.state[a]], d.states[d.state[b]]) || a - b);
    for (const c of cells) {
      const state = d.states[d.state[c]];
      const x = xOf(axis, d.start[c]);
      const wide = Math.max(xOf(axis, d.stop[c]) - x, state === "reserved" ? 0 : d.fresh[c] ? LEAST : 1.5);
      box(context, inks, state, x, this.#top, wide, high, one < 6);
      if (d.fresh[c]) {
        const { ink, line, dash } = lookOf("written");
        if (one < 6) outline(context, inks.colour(ink), line, dash, x, this.#top, wide, high);
        // a mark above, since a long cache shows little of a row
        const middle = x + wide / 2;
        polygon(context, inks.colour("accent"), [[middle, this.#top - 1], [middle - 4, this.#top - 7], [middle + 4, this.#top - 7]]);
      }
    }
    if (d.owners) for (let head = 0; head < heads; head++) drawOwners(context, inks, d, stream, run, axis, this.#top + head * this.#pitch, this.#pitch);
    this.#heads(context, inks, picture, high);
    if (one >= 6) {
      for (const c of cells) {
        // rows with owners show nothing else here
        if (d.owners && !d.fresh[c]) continue;
        // new rows have a thick border even if attention does not see them
        const { ink, line, dash } = lookOf(d.fresh[c] ? "written" : d.states[d.state[c]]);
        for (let row = Math.max(d.start[c], axis.first); row < Math.min(d.stop[c], axis.first + axis.rows); row++) {
          for (let head = 0; head < heads; head++) outline(context, inks.colour(ink), line, dash, xOf(axis, row) + 0.5, this.#top + head * this.#pitch + 0.5, one - 1, this.#pitch - 1);
        }
      }
    }
    drawWords(context, inks, axis, words, named, this.#top - 6, now);
    if (weights) this.#weights(context, inks, picture, weights);
    if (at) {
      const wide = Math.max(one, 4);
      bordered(context, inks.colour("ink"), 2, xOf(axis, at.row) + one / 2 - wide / 2, this.#top + at.head * this.#pitch, wide, this.#pitch);
    }
    drawAxis(context, inks, axis, this.#top + high + 3);
  }

  #heads(context: CanvasRenderingContext2D, inks: Inks, { heads, axis }: Picture, high: number): void {
    for (let head = 1; head < heads; head++) filled(context, inks.colour("pane"), LEFT, this.#top + head * this.#pitch - 0.5, axis.width, 1);
    const every = Math.ceil(12 / this.#pitch);
    for (let head = 0; head < heads; head += every) {
      const text = heads === 1 ? "rows" : head === 0 ? "head 0" : String(head);
      label(context, inks, text, LEFT - 5, this.#top + (head + 0.5) * this.#pitch, { align: "right" });
    }
    bordered(context, inks.colour("line"), 1, LEFT - 0.5, this.#top - 0.5, axis.width + 1, high + 1);
  }

  /** Weights of every head at the bottom of its cells; their mean in the strip above, as bars and arcs. */
  #weights(context: CanvasRenderingContext2D, inks: Inks, { axis, heads, at, now }: Picture, weights: number[][]): void {
    const columns = Math.min(axis.rows, Math.floor(axis.width));
    const span = (column: number) => [axis.first + Math.floor((column / columns) * axis.rows), axis.first + Math.floor(((column + 1) / columns) * axis.rows)];
    const wide = Math.max(1, axis.width / columns - (axis.width / columns > 4 ? 1.5 : 0));
    const largest = (values: number[], column: number) => {
      const [from, to] = span(column);
      let found = 0;
      for (let row = from; row < to; row++) found = Math.max(found, values[row] ?? 0);
      return found;
    };
    const all = mean(weights);
    const most = Math.max(1e-9, ...all);
    for (let column = 0; column < columns; column++) {
      const h = (largest(all, column) / most) * (STRIP - 10);
      if (h > 0) filled(context, inks.colour("line"), xOf(axis, span(column)[0]) + 0.5, STRIP - 4 - h, wide, Math.max(h, 0.5));
    }
    drawArcs(context, inks, axis, at && weights[at.head] ? weights[at.head] : all, now, 4, STRIP - 4);
    label(context, inks, most.toFixed(2), LEFT - 5, 10, { align: "right" });
    label(context, inks, "weight", LEFT - 5, STRIP - 10, { align: "right" });
    if (this.#pitch < 9) return;
    for (let head = 0; head < Math.min(heads, weights.length); head++) {
      const top = Math.max(1e-9, ...weights[head]);
      for (let column = 0; column < columns; column++) {
        const h = (largest(weights[head], column) / top) * (this.#pitch - 4);
        if (h > 0.3) filled(context, inks.colour("ink"), xOf(axis, span(column)[0]) + 0.5, this.#top + (head + 1) * this.#pitch - 1.5 - h, Math.min(wide, 6), h);
      }
    }
  }
}

const LINE = 12; // px of a line at most
const TALL = 12; // px of a text on a line
const OWNED = 16; // the same where rows name their sequences

/** `moved`: runs in which past rows were moved. */
export interface History { d: CacheData; stream: number; run: number; axis: Axis; room: number; moved: { run: number; bytes: number }[] }

export class Occupancy {
  readonly root: HTMLElement;
  #canvas = el("canvas", { "data-kv": "occupancy" });
  #shown: History | null = null;
  #drawn: unknown[] = []; // what the picture depends on: pointing at rows draws nothing anew
  #pitch = 1;

  constructor(go: (run: number, drag: boolean) => void, point: (run: number, row: number) => void, signal: AbortSignal) {
    this.root = el("div.kv-occupancy", { "aria-hidden": "true" }, this.#canvas);
    const run = (event: PointerEvent) => Math.max(0, Math.min(Math.floor(event.offsetY / this.#pitch), (this.#shown?.d.runs.length ?? 1) - 1));
    onDrag(this.#canvas, (event, moving) => go(run(event), moving), signal);
    on(this.#canvas, "pointermove", (event) => {
      if (this.#shown) point(run(event), rowAt(this.#shown.axis, event.offsetX));
    }, signal);
    on(this.#canvas, "pointerleave", () => point(-1, -1), signal);
  }

  draw(history: History, inks: Inks): void {
    this.#shown = history;
    const { d, stream, run, axis, room, moved } = history;
    const now = [d, inks, stream, run, axis.first, axis.rows, axis.width, room];
    if (now.every((each, i) => each === this.#drawn[i])) return;
    this.#drawn = now;
    const n = d.runs.length;
    this.#pitch = Math.min(d.owners ? OWNED : LINE, room / n);
    const high = Math.max(1, Math.ceil(n * this.#pitch));
    const context = sized(this.#canvas, wideOf(axis), high + NAMES, inks.ratio);
    if (!context) return;
    this.#lines(context, history, high, inks);
    const y = (run + 0.5) * this.#pitch;
    bordered(context, inks.colour("ink"), 1.5, LEFT, y - Math.max(this.#pitch, 3) / 2, axis.width, Math.max(this.#pitch, 3));
    polygon(context, inks.colour("ink"), [[LEFT - 1, y], [LEFT - 8, y - 4], [LEFT - 8, y + 4]]);
    this.#moves(context, inks, axis, moved);
  }

  /** All but the mark at the present run. */
  #lines(context: CanvasRenderingContext2D, { d, stream, axis }: History, high: number, inks: Inks): void {
    const n = d.runs.length;
    const gap = this.#pitch >= 4 ? 1 : 0;
    for (const state of [...d.states].sort(above)) {
      for (let r = 0; r < n; r++) {
        const [from, to] = cellsOf(d, stream, r);
        for (let c = from; c < to; c++) {
          if (d.states[d.state[c]] !== state || d.stop[c] <= axis.first || d.start[c] >= axis.first + axis.rows) continue;
          const x = xOf(axis, d.start[c]);
          const wide = Math.max(xOf(axis, d.stop[c]) - x, state === "reserved" ? 0 : 1.5);
          box(context, inks, state, x, r * this.#pitch, wide, Math.max(this.#pitch - gap, 0.7), false);
        }
      }
    }
    if (d.owners) for (let r = 0; r < n; r++) drawOwners(context, inks, d, stream, r, axis, r * this.#pitch, Math.max(this.#pitch - gap, 0.7));
    bordered(context, inks.colour("line"), 1, LEFT - 0.5, -0.5, axis.width + 1, high + 1);
    this.#names(context, inks, n);
    drawAxis(context, inks, axis, high + 3);
  }

  /** A mark in the margin of each run that moved rows, with the bytes if there is room. */
  #moves(context: CanvasRenderingContext2D, inks: Inks, axis: Axis, moved: History["moved"]): void {
    const left = LEFT + axis.width + 5;
    let free = -Infinity;
    const said: string[] = [];
    for (const { run, bytes: amount } of moved) {
      const y = (run + 0.5) * this.#pitch;
      filled(context, inks.colour("missed"), left, y - Math.max(this.#pitch - 1, 1) / 2, 4, Math.max(this.#pitch - 1, 1));
      if (y < free) continue;
      const text = `${bytes(amount)} moved`;
      const at = Math.max(TALL / 2, y);
      label(context, inks, text, left + 8, at, { size: 10.5, ink: "missed-ink" });
      free = at + TALL;
      said.push(`${run}: ${text}`);
    }
    this.#canvas.dataset.moves = said.join("; ");
  }

  #names(context: CanvasRenderingContext2D, inks: Inks, n: number): void {
    const step = Math.max(1, round(13 / this.#pitch));
    for (let run = 0; run < n; run += step) {
      const y = Math.max(6, (run + 0.5) * this.#pitch);
      label(context, inks, run === 0 ? "run 0" : String(run), LEFT - 10, y, { size: 10.5, align: "right" });
    }
  }
}
