// Ops by lane and storages by space on the producer's clock, and their positions on the canvas; and the cards beside the lanes: warnings, the
// story of the chosen tensor, and the memories of a device by address.
import { ensure, first, kept, upper } from "./arrays.js";
import { buffer, bytes, capital, count, opName, plural } from "./format.js";
import { lives } from "./mapdata.js";
import { opAt, type Trace } from "./replay.js";
import { touched } from "./select.js";
import { filled, Inks, sized } from "./canvas.js";
import { el, mark, on, onHit, say } from "./dom.js";
import type { Store } from "./store.js";

/** `kind`: an op, a run that holds ops, the life of a storage, or the weights that programs bring. `id`: step, run or life. `open`: it does not end in the recording. */
export interface Bar { kind: "op" | "run" | "life" | "weights"; id: number; start: number; end: number; row: number; text: string; storage: number; open: boolean }
/** Bytes held in a space: `bytes[i]` from the time `at[i]` on, and their maximum. `room`: size of the space; 0: unknown. */
export interface Held { at: number[]; bytes: number[]; most: number; room: number; banks: number }
/** `rest`, `bytes`: bars that found no row, and their bytes. */
interface Lane { name: string; kind: "lane" | "space"; bars: Bar[]; rows: number; rest: number; bytes: number; held: Held | null }
/** A transfer between storages in different spaces. */
export interface Move { step: number; at: number; from: number; to: number; bytes: number }
export type Clock = ReturnType<typeof gather>;

/** The maximum number of rows; smaller bars are only counted. */
const ROWS = { lane: 4, space: 12, host: 3 };
const made = kept((t: Trace) => gather(t, false));

/** Null if the recording has no times. `open`: show each weight of a program as a bar. */
export function clock(t: Trace, open = false): Clock | null { return !t.p.time.step.length ? null : open ? gather(t, true) : made(t); }

/** Times of steps; a step without a time happens when the previous one ends. */
function times({ p }: Trace): [Float64Array, Float64Array, Int32Array] {
  const [start, end] = [new Float64Array(p.steps), new Float64Array(p.steps)];
  const lane = new Int32Array(p.steps).fill(-1);
  const { time } = p;
  for (let step = 0, k = 0, now = time.start[0] ?? 0; step < p.steps; step++) {
    if (time.step[k] === step) {
      [start[step], end[step], lane[step]] = [time.start[k], time.end[k], time.lane[k]];
      now = Math.max(now, end[step]);
      k++;
    } else start[step] = end[step] = now;
  }
  return [start, end, lane];
}

/** Put every bar in the first free row, in the order of `weight`. Returns the number of rows and the bars that found none. */
function stack(bars: Bar[], most: number, weight: (bar: Bar) => number): { rows: number; left: Bar[] } {
  const rows: Bar[][] = [];
  const left: Bar[] = [];
  for (const bar of [...bars].sort((a, b) => weight(b) - weight(a) || a.start - b.start)) {
    // rows are sorted by time, so the neighbours decide
    const at = rows.findIndex((row) => {
      const next = after(row, bar.start);
      return (next === row.length || row[next].start >= bar.end) && (next === 0 || row[next - 1].end <= bar.start);
    });
    bar.row = at >= 0 ? at : rows.length;
    if (at < 0 && rows.length >= most) left.push(bar);
    else if (at < 0) rows.push([bar]);
    else rows[at].splice(after(rows[at], bar.start), 0, bar);
  }
  return { rows: Math.max(1, rows.length), left };
}

const after = (row: Bar[], time: number) => first(0, row.length, (i) => row[i].start >= time);

function gather(t: Trace, open: boolean) {
  const { p } = t;
  const [start, end, laneOf] = times(t);
  let [from, to] = [Infinity, -Infinity];
  for (let step = 0; step < p.steps; step++) [from, to] = [Math.min(from, start[step]), Math.max(to, end[step])];
  const lanes = [...queues(t, start, end, laneOf), ...spaces(t, start, end, to, open)];
  const moves: Move[] = [];
  const bars = new Map<number, [lane: number, bar: number]>(); // by storage: its last life
  lanes.forEach((lane, i) => lane.bars.forEach((bar, k) => bar.kind === "life" && bars.set(bar.storage, [i, k])));
  const space = (s: number) => p.storage.space[s];
  for (let step = 0; step < p.steps; step++) {
    const { reads, writes } = touched(t, step);
    const target = writes.find((w) => reads.some((r) => space(r) !== space(w)));
    const source = reads.find((r) => target !== undefined && space(r) !== space(target));
    if (target !== undefined && source !== undefined && p.step.copied[step] > 0) moves.push({ step, at: end[step], from: source, to: target, bytes: p.step.copied[step] });
  }
  const { refused } = p;
  return {
    lanes, moves, start, end, from, to, bar: bars,
    refused: Array.from(refused.step, (at, k) => ({ storage: refused.storage[k], at: at < 0 ? from : end[Math.min(at, p.steps - 1)], why: p.strings[refused.why[k]] })),
  };
}

/** Lanes of ops, in order of appearance; several ops of one run share a band. */
function queues({ p, x }: Trace, start: Float64Array, end: Float64Array, laneOf: Int32Array): Lane[] {
  const lanes = new Map<number, Lane>();
  const bands = new Map<string, Bar & { ops: number }>();
  for (let step = 0; step < p.steps; step++) {
    if (laneOf[step] < 0) continue;
    const lane = ensure(lanes, laneOf[step], (): Lane => ({ name: p.strings[laneOf[step]] || "ops", kind: "lane", bars: [], rows: 1, rest: 0, bytes: 0, held: null }));
    const run = x.run[step];
    // an op that contains a program is labelled like its run
    const text = p.step.flags[step] & p.flag.control && p.runs.length > 1 ? p.runs[run].label : opName(opAt({ p }, step).op[1]);
    lane.bars.push({ kind: "op", id: step, start: start[step], end: end[step], row: 0, text, storage: -1, open: false });
    const key = `${laneOf[step]}:${run}`;
    const band = bands.get(key);
    if (!band) bands.set(key, { kind: "run", id: run, start: start[step], end: end[step], row: -1, text: p.runs[run].text || p.runs[run].label, storage: -1, open: false, ops: 1 });
    else [band.end, band.ops] = [Math.max(band.end, end[step]), band.ops + 1];
  }
  for (const [number, lane] of lanes) {
    const { rows, left } = stack(lane.bars, ROWS.lane, (bar) => -bar.start);
    lane.rows = rows;
    lane.rest = left.length;
    lane.bars = lane.bars.filter((bar) => !left.includes(bar));
    for (const [key, band] of bands) if (band.ops > 1 && key.startsWith(`${number}:`)) lane.bars.push(band);
  }
  return [...lanes.values()];
}

/** Spaces of memory with their lives. */
function spaces(t: Trace, start: Float64Array, end: Float64Array, last: number, open: boolean): Lane[] {
  const { p } = t;
  const l = lives(t);
  const weights = new Set(p.bind.storage.filter((_, i) => p.codes.binding[p.bind.how[i]] === "weight"));
  const all = new Map<string, Bar[]>();
  for (let k = 0; k < l.n; k++) {
    const s = l.storage[k];
    const name = p.storage.space.length ? p.strings[p.storage.space[s]] : "host";
    const stays = !l.freed[k];
    const bar: Bar = {
      kind: weights.has(s) ? "weights" : "life", id: k, start: start[Math.min(l.from[k], p.steps - 1)], end: stays ? last : end[Math.min(l.to[k], p.steps) - 1],
      row: 0, text: `${p.strings[p.storage.name[s]]} ${bytes(l.bytes[k])}`, storage: s, open: stays && !weights.has(s),
    };
    ensure(all, name, () => []).push(bar);
  }
  return [...all].map(([name, bars]) => {
    const held = heldOf(t, name, bars, (bar) => l.bytes[bar.id]);
    const brought = bars.filter((bar) => bar.kind === "weights");
    if (open || brought.length < 2) brought.forEach((bar) => (bar.kind = "life"));
    else {
      const text = `${count(brought.length)} weights of programs: ${bytes(brought.reduce((sum, bar) => sum + l.bytes[bar.id], 0))}`;
      bars = [{ ...brought[0], id: -1, storage: -1, start: Math.min(...brought.map((bar) => bar.start)), end: Math.max(...brought.map((bar) => bar.end)), text }, ...bars.filter((bar) => bar.kind === "life")];
    }
    const { rows, left } = stack(bars, name === "host" ? ROWS.host : ROWS.space, (bar) => (bar.id < 0 ? Infinity : l.bytes[bar.id]));
    const gone = new Set(left);
    return { name, kind: "space", rows, rest: left.length, bytes: left.reduce((sum, bar) => sum + l.bytes[bar.id], 0), bars: bars.filter((bar) => !gone.has(bar)), held };
  });
}

export function heldAt(held: Held, time: number): number {
  const k = upper(held.at, time) - 1;
  return k < 0 ? 0 : held.bytes[k];
}

function heldOf({ p }: Trace, space: string, bars: Bar[], size: (bar: Bar) => number): Held {
  const moves = bars.flatMap((bar) => [[bar.start, size(bar)], ...(bar.open || bar.kind === "weights" ? [] : [[bar.end, -size(bar)]])]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const held: Held = { at: [], bytes: [], most: 0, room: 0, banks: 1 };
  let now = 0;
  for (const [at, by] of moves) {
    now += by;
    if (held.at[held.at.length - 1] === at) held.bytes[held.bytes.length - 1] = now;
    else {
      held.at.push(at);
      held.bytes.push(now);
    }
    held.most = Math.max(held.most, now);
  }
  p.arena.space.forEach((of, i) => {
    if (p.strings[of] === space) [held.room, held.banks] = [held.room + p.arena.bytes[i], Math.max(held.banks, p.arena.banks[i])];
  });
  return held;
}

export const ROW = 17;
const GAP = 12; // between lanes
const HEAD = 4;
const STRIP = 34; // above the lives of a space: the bytes that are held there

/** `foot`: bottom of the last row in px; `strip`: px above the first row. */
export interface Box { top: number; foot: number; strip: number }
export interface ClockView { boxes: Box[]; width: number; height: number; from: number; to: number }

export function clockView(c: Clock, width: number, from: number, to: number): ClockView {
  let top = HEAD;
  const boxes = c.lanes.map((lane) => {
    const strip = lane.held ? STRIP : 0;
    const box = { top, foot: top + strip + lane.rows * ROW + (lane.rest ? ROW : 0), strip };
    top = box.foot + GAP;
    return box;
  });
  return { boxes, width, height: top, from, to: to > from ? to : from + 1 };
}

export function xAt(v: ClockView, time: number): number { return ((time - v.from) / (v.to - v.from)) * v.width; }

export function timeAt(v: ClockView, x: number): number {
  return v.from + (x / Math.max(1, v.width)) * (v.to - v.from);
}

/** The rectangle of a bar, at least two px wide; a band covers its lane. */
export function place(v: ClockView, lane: number, bar: Bar): { x: number; y: number; w: number; h: number } {
  const { top, foot, strip } = v.boxes[lane];
  const x = xAt(v, bar.start);
  const w = Math.max(2, xAt(v, bar.end) - x);
  return bar.row < 0 ? { x: x - 1, y: top - 3, w: w + 2, h: foot - top + 4 } : { x, y: top + strip + bar.row * ROW, w, h: ROW - 3 };
}

/** The bar under a point; bands last. */
export function barAt(c: Clock, v: ClockView, x: number, y: number): { lane: number; bar: Bar } | null {
  const lane = v.boxes.findIndex((box) => y >= box.top - 3 && y < box.foot + 3);
  if (lane < 0) return null;
  let found: Bar | null = null;
  for (const bar of c.lanes[lane].bars) {
    const r = place(v, lane, bar);
    if (x >= r.x - 2 && x <= r.x + r.w + 2 && y >= r.y && y <= r.y + r.h && (!found || bar.row >= 0)) found = bar;
  }
  return found && { lane, bar: found };
}

export function zoomTime(c: Clock, v: ClockView, by: number, around: number): [number, number] {
  const span = Math.min(c.to - c.from, Math.max((c.to - c.from) / 5000, (v.to - v.from) / by));
  const share = (around - v.from) / (v.to - v.from);
  const from = Math.max(c.from, Math.min(c.to - span, around - share * span));
  return [from, from + span];
}

/** The next bar in the direction of an arrow key. */
export function beside(c: Clock, v: ClockView, lane: number, bar: Bar, key: string): { lane: number; bar: Bar } | null {
  const middle = (bar.start + bar.end) / 2;
  const y = place(v, lane, bar).y;
  let best: { lane: number; bar: Bar } | null = null;
  let least = Infinity;
  c.lanes.forEach((other, i) => {
    for (const one of other.bars) {
      if (one === bar || one.row < 0) continue;
      const dx = (one.start + one.end) / 2 - middle;
      const dy = place(v, i, one).y - y;
      const fits = key === "ArrowRight" ? !dy && dx > 0 : key === "ArrowLeft" ? !dy && dx < 0 : key === "ArrowDown" ? dy > 0 : dy < 0;
      const far = /Up|Down/.test(key) ? Math.abs(dy) * 1e6 + Math.max(0, one.start - middle, middle - one.end) / (v.to - v.from) : Math.abs(dx);
      if (fits && far < least) [best, least] = [{ lane: i, bar: one }, far];
    }
  });
  return best;
}

/** `step`: place of the preceding step; `code`: of a warning, else empty. */
export interface Mark { step: number; time: number; kind: string; code: string; value: string; storage: number; bytes: number; text: string; line: string }

const WARNING = "warning ";
export const marks = kept(({ p: { mark: m, strings } }: Trace): Mark[] => Array.from(m.step, (step, k) => {
  const kind = strings[m.kind[k]];
  const code = kind.startsWith(WARNING) ? kind.slice(WARNING.length) : "";
  return { step, time: m.time[k], kind, code, value: strings[m.value[k]], storage: m.storage[k], bytes: m.bytes[k], text: strings[m.text[k]], line: strings[m.line[k]] };
}));

/** `USE_AFTER_FREE` as `Use after free`. */
const words = (code: string) => capital(code.toLowerCase().replace(/_/g, " "));

export class MarksCard {
  readonly root = el("aside.kv-clock-marks", { "aria-label": "Warnings, and the story of a tensor", "data-kv": "marks" });
  #shown = "";

  constructor(private store: Store, signal: AbortSignal) {
    onHit(this.root, "mark", (node) => this.#go(Number(node.dataset.at)), signal);
    on(this.root, "keydown", (event) => event.stopPropagation(), signal);
  }

  #go(at: number): void {
    const { store } = this;
    const one = marks(store.t)[at];
    if (!one) return;
    if (one.storage >= 0) store.select({ kind: "storage", id: one.storage });
    store.seek(Math.max(-1, Math.min(one.step, store.t.p.steps - 1)));
  }

  update(): void {
    const { t, selection, cursor } = this.store;
    const all = marks(t);
    this.root.hidden = !all.length;
    const storage = selection?.kind === "storage" ? selection.id : -1;
    const key = `${all.length} ${storage} ${cursor}`;
    if (this.root.hidden || key === this.#shown) return;
    this.#shown = key;
    const warnings = all.filter((one) => one.code);
    const story = all.filter((one) => one.storage === storage);
    const parts: HTMLElement[] = [];
    if (storage >= 0) {
      const name = t.p.strings[t.p.storage.name[storage]];
      parts.push(el("h4", {}, `${buffer(t.p, storage)} `, el("span.kv-soft", {}, name)));
      parts.push(story.length ? el("ol.kv-clock-story", {}, ...story.map((one) => this.#line(all, one, cursor))) : el("p.kv-none", {}, "No events were recorded for this buffer."));
    }
    parts.push(el("h4", {}, warnings.length ? `Warnings ${count(warnings.length)}` : "No warnings"));
    for (const one of warnings) parts.push(this.#warning(all, one));
    this.root.replaceChildren(...parts);
  }

  #line(all: Mark[], one: Mark, cursor: number): HTMLElement {
    const place = one.line ? el("code", { title: one.line }, short(one.line)) : "";
    const row = el("li", { "data-code": one.code || null }, this.#jump(all, one, `t = ${Number(one.time.toPrecision(5)).toLocaleString("en-US")}`), el("b", {}, one.code ? words(one.code) : one.kind), el("span", {}, one.text), place);
    mark(row, "data-later", one.step > cursor ? 1 : null);
    return row;
  }

  #warning(all: Mark[], one: Mark): HTMLElement {
    const head = el("b", {}, words(one.code), one.bytes ? `: ${bytes(one.bytes)}` : "");
    return el("section.kv-clock-warning", { "data-code": one.code }, head, el("p", {}, one.text), el("p", {}, this.#jump(all, one, one.step < 0 ? "before the first step" : "show where"), one.line ? el("code", { title: one.line }, short(one.line)) : ""));
  }

  #jump(all: Mark[], one: Mark, text: string): HTMLElement {
    return el("button.kv-link", { "data-kv": "mark", "data-at": all.indexOf(one) }, text);
  }
}

/** `loop.py:21 device.submit(…)` without the folders. */
function short(line: string): string { return line.replace(/^.*[/\\](?=[^/\\]+:\d)/, ""); }

/** `bytes`: the occupied bytes, more than those of the tensor if its pages are spread over banks. */
export interface Block { address: number; bytes: number; storage: number }
/** Arenas of known size at a step, and their blocks by address. `room`: its size; `free`: the largest free range. */
function arenas(t: Trace, step: number) {
  const { p } = t;
  const l = lives(t);
  const found = Array.from(p.arena.space, (space, i) => ({ space: p.strings[space], name: p.strings[p.arena.name[i]], room: p.arena.bytes[i], banks: p.arena.banks[i], blocks: [] as Block[], held: 0, free: 0 }));
  for (let k = 0; k < l.n; k++) {
    if (l.from[k] > step || l.to[k] <= step) continue;
    const s = l.storage[k];
    const address = p.storage.address[s] ?? -1;
    const arena = address < 0 ? undefined : found.find((one) => one.space === p.strings[p.storage.space[s]] && one.name === p.strings[p.storage.arena[s]]);
    arena?.blocks.push({ address, bytes: p.storage.taken[s] ?? l.bytes[k], storage: s });
  }
  for (const one of found) {
    one.blocks.sort((a, b) => a.address - b.address);
    let end = 0;
    for (const block of one.blocks) {
      one.held += block.bytes;
      one.free = Math.max(one.free, block.address - end);
      end = Math.max(end, block.address + block.bytes);
    }
    one.free = Math.max(one.free, one.room - end);
  }
  return found;
}

export class BanksCard {
  readonly root = el("section.kv-clock-banks", { "aria-label": "Memory by address", "data-kv": "banks" });
  #rows: { canvas: HTMLCanvasElement; text: HTMLElement }[] = [];

  update(store: Store, c: Clock | null): void {
    const all = c && clock(store.t) ? arenas(store.t, Math.max(0, store.cursor)) : [];
    this.root.hidden = !all.length;
    if (this.#rows.length !== all.length) {
      this.#rows = all.map(() => ({ canvas: el("canvas", { "aria-hidden": "true" }), text: el("p") }));
      this.root.replaceChildren(el("h4", {}, "By address, now"), ...this.#rows.flatMap(({ canvas, text }) => [text, canvas]));
    }
    all.forEach((arena, i) => {
      const { canvas, text } = this.#rows[i];
      const banks = arena.banks > 1 ? `, the same in each of ${count(arena.banks)} banks` : "";
      say(text, `${arena.name}: ${plural(arena.blocks.length, "buffer")} of ${bytes(arena.held)} in ${bytes(arena.room)}${banks}; largest contiguous free part ${bytes(arena.free)}`);
      const end = arena.blocks.reduce((most, block) => Math.max(most, block.address + block.bytes), 0);
      paint(canvas, arena, Math.min(arena.room, end * 1.15 || arena.room), store);
    });
  }
}

/** Draw blocks up to the address `top`; the rest of a nearly empty memory is left out. */
function paint(canvas: HTMLCanvasElement, arena: ReturnType<typeof arenas>[number], top: number, store: Store): void {
  const width = canvas.clientWidth;
  if (!width) return;
  const brush = sized(canvas, width, 14);
  if (!brush) return;
  const inks = new Inks(canvas);
  filled(brush, inks.colour("ground"), 0, 0, width, 14);
  const { selection, now } = store;
  for (const block of arena.blocks) {
    const x = (block.address / top) * width;
    const lit = (selection?.kind === "storage" && selection.id === block.storage) || now.lit.storages.has(block.storage);
    filled(brush, lit ? inks.colour("accent") : inks.mixed("view", 0.4), x, 0, Math.max(1, (block.bytes / top) * width - (block.bytes * width > 3 * top ? 0.7 : 0)), 14);
  }
}
