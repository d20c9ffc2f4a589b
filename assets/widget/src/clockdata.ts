// Ops by lane and storages by space on the producer's clock, and their positions on the canvas.
import { ensure, first, kept, upper } from "./arrays.js";
import { bytes, count, opName } from "./format.js";
import { lives } from "./mapdata.js";
import { opAt, type Trace } from "./replay.js";
import { touched } from "./select.js";

/** `kind`: an op, a run that holds ops, the life of a storage, or the weights that programs bring. `id`: step, run or life. `open`: it does not end in the recording. */
export interface Bar { kind: "op" | "run" | "life" | "weights"; id: number; start: number; end: number; row: number; text: string; storage: number; open: boolean }
/** Bytes held in a space: `bytes[i]` from the time `at[i]` on, and their maximum. `room`: size of the space; 0: unknown. */
export interface Held { at: number[]; bytes: number[]; most: number; room: number; banks: number }
/** `rest`, `bytes`: bars that found no row, and their bytes. */
interface Lane { name: string; kind: "lane" | "space"; bars: Bar[]; rows: number; rest: number; bytes: number; held: Held | null }
/** A transfer between storages in different spaces. */
export interface Move { step: number; at: number; from: number; to: number; bytes: number }
export interface Clock {
  lanes: Lane[]; moves: Move[]; start: Float64Array; end: Float64Array; // by step
  from: number; to: number;
  bar: Map<number, [lane: number, bar: number]>; // by storage: its last life
  refused: { storage: number; at: number; why: string }[];
}

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

function gather(t: Trace, open: boolean): Clock {
  const { p } = t;
  const [start, end, laneOf] = times(t);
  let [from, to] = [Infinity, -Infinity];
  for (let step = 0; step < p.steps; step++) [from, to] = [Math.min(from, start[step]), Math.max(to, end[step])];
  const found: Clock = { lanes: [...queues(t, start, end, laneOf), ...spaces(t, start, end, to, open)], moves: [], start, end, from, to, bar: new Map(), refused: [] };
  found.lanes.forEach((lane, i) => lane.bars.forEach((bar, k) => bar.kind === "life" && found.bar.set(bar.storage, [i, k])));
  const space = (s: number) => p.storage.space[s];
  for (let step = 0; step < p.steps; step++) {
    const { reads, writes } = touched(t, step);
    const target = writes.find((w) => reads.some((r) => space(r) !== space(w)));
    const source = reads.find((r) => target !== undefined && space(r) !== space(target));
    if (target !== undefined && source !== undefined && p.step.copied[step] > 0) found.moves.push({ step, at: end[step], from: source, to: target, bytes: p.step.copied[step] });
  }
  const { refused } = p;
  for (let k = 0; k < refused.step.length; k++) {
    const step = Math.min(refused.step[k], p.steps - 1);
    found.refused.push({ storage: refused.storage[k], at: step < 0 ? from : end[step], why: p.strings[refused.why[k]] });
  }
  return found;
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
