// What happened on which lane, and where every storage lay, by the producer's clock: bars in rows, and arrows between spaces.
import { bytes, opName } from "./format.js";
import { lives } from "./mapdata.js";
import type { Trace } from "./replay.js";
import { touched } from "./select.js";

/** `kind`: an op, a run that holds ops, or the life of a storage. `id`: step, run or life. `open`: it does not end in the recording. */
export interface Bar { kind: "op" | "run" | "life"; id: number; start: number; end: number; row: number; text: string; storage: number; open: boolean }
/** `rows`: so many; `rest`: lives that found no row, and their bytes. */
export interface Lane { name: string; kind: "lane" | "space"; bars: Bar[]; rows: number; rest: number; bytes: number }
/** Bytes that went from a storage to another one in another space. */
export interface Move { step: number; at: number; from: number; to: number; bytes: number }
export interface Clock {
  lanes: Lane[]; moves: Move[]; start: Float64Array; end: Float64Array; // by step
  from: number; to: number;
  bar: Map<number, [lane: number, bar: number]>; // by storage: its last life
  refused: { storage: number; at: number; why: string }[];
}

/** Rows that a lane or a space has at most: what is smaller is summed up. */
const ROWS = { lane: 4, space: 12 };
const made = new WeakMap<Trace, Clock | null>();

/** Null for a recording whose time is the step number. */
export function clock(t: Trace): Clock | null {
  let found = made.get(t);
  if (found === undefined) made.set(t, (found = t.p.time?.step.length ? gather(t) : null));
  return found;
}

/** Times of steps; one without a time of its own happens when the one before it is over. */
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

/** Give every bar the first row that is free; `weight`: what comes first. Returns how many rows there are and what found none. */
function stack(bars: Bar[], most: number, weight: (bar: Bar) => number): { rows: number; left: Bar[] } {
  const rows: Bar[][] = [];
  const left: Bar[] = [];
  for (const bar of [...bars].sort((a, b) => weight(b) - weight(a) || a.start - b.start)) {
    // rows are kept in order of time: the neighbours say whether it fits
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

function after(row: Bar[], time: number): number {
  let [low, high] = [0, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].start < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function gather(t: Trace): Clock {
  const { p } = t;
  const [start, end, laneOf] = times(t);
  let [from, to] = [Infinity, -Infinity];
  for (let step = 0; step < p.steps; step++) [from, to] = [Math.min(from, start[step]), Math.max(to, end[step])];
  const found: Clock = { lanes: [...queues(t, start, end, laneOf), ...spaces(t, start, end, to)], moves: [], start, end, from, to, bar: new Map(), refused: [] };
  found.lanes.forEach((lane, i) => lane.bars.forEach((bar, k) => bar.kind === "life" && found.bar.set(bar.storage, [i, k])));
  const space = (s: number) => p.storage.space[s];
  for (let step = 0; step < p.steps; step++) {
    const { reads, writes } = touched(t, step);
    const target = writes.find((w) => reads.some((r) => space(r) !== space(w)));
    const source = reads.find((r) => target !== undefined && space(r) !== space(target));
    if (target !== undefined && source !== undefined && p.step.copied[step] > 0) found.moves.push({ step, at: end[step], from: source, to: target, bytes: p.step.copied[step] });
  }
  const refused = p.refused ?? { step: [], storage: [], why: [] };
  for (let k = 0; k < refused.step.length; k++) {
    const step = Math.min(refused.step[k], p.steps - 1);
    found.refused.push({ storage: refused.storage[k], at: step < 0 ? from : end[step], why: p.strings[refused.why[k]] });
  }
  return found;
}

/** Lanes on which ops ran, in the order in which they are first met; the ops of a run that has several lie in a band. */
function queues({ p, x }: Trace, start: Float64Array, end: Float64Array, laneOf: Int32Array): Lane[] {
  const lanes = new Map<number, Lane>();
  const bands = new Map<string, Bar & { ops: number }>();
  for (let step = 0; step < p.steps; step++) {
    if (laneOf[step] < 0) continue;
    let lane = lanes.get(laneOf[step]);
    if (!lane) lanes.set(laneOf[step], (lane = { name: p.strings[laneOf[step]] || "ops", kind: "lane", bars: [], rows: 1, rest: 0, bytes: 0 }));
    const node = p.graphs[p.frame.graph[p.step.frame[step]]].nodes[p.step.node[step]];
    lane.bars.push({ kind: "op", id: step, start: start[step], end: end[step], row: 0, text: opName(node[1]), storage: -1, open: false });
    const run = x.run[step];
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

/** Spaces of memory with the lives in them, the largest first. */
function spaces(t: Trace, start: Float64Array, end: Float64Array, last: number): Lane[] {
  const { p } = t;
  const l = lives(t);
  const found = new Map<string, Lane>();
  for (let k = 0; k < l.n; k++) {
    const s = l.storage[k];
    const name = p.storage.space.length ? p.strings[p.storage.space[s]] : "host";
    let lane = found.get(name);
    if (!lane) found.set(name, (lane = { name, kind: "space", bars: [], rows: 1, rest: 0, bytes: 0 }));
    const open = !l.freed[k];
    const to = open ? last : end[Math.min(l.to[k], p.steps) - 1];
    const label = p.strings[p.storage.name[s]];
    lane.bars.push({ kind: "life", id: k, start: start[Math.min(l.from[k], p.steps - 1)], end: to, row: 0, text: `${label} ${bytes(l.bytes[k])}`, storage: s, open });
  }
  for (const lane of found.values()) {
    const { rows, left } = stack(lane.bars, ROWS.space, (bar) => l.bytes[bar.id]);
    const gone = new Set(left);
    lane.rows = rows;
    lane.rest = left.length;
    lane.bytes = left.reduce((sum, bar) => sum + l.bytes[bar.id], 0);
    lane.bars = lane.bars.filter((bar) => !gone.has(bar));
  }
  return [...found.values()];
}
