// The lives of storages as columns, for the memory map: birth, death, bytes, last use, cache and maker; their places; and conversions
// between steps, bytes and pixels. Weights are left out, since they are always alive. Steps are places among the loaded ones.
import { ensure, idsOf, kept, upper, within } from "./arrays.js";
import { capacity, placeOf, type Trace } from "./replay.js";
import type { Payload } from "./wire.js";
import type { Rect } from "./level.js";

export type Lives = ReturnType<typeof columns>;
export const lives = kept((t: Trace): Lives => {
  const found = columns(t);
  uses(t, found);
  caches(t, found);
  return found;
});

/** One entry per life, in order of birth; a pooled storage has several. */
function columns(t: Trace) {
  const { p, x } = t;
  const { storage, born, freed } = x.life;
  const at = new Int32Array(storage.length).fill(-1); // by life of the index
  const kept: number[] = [];
  const ends: number[] = [];
  for (let i = 0; i < storage.length; i++) {
    if (p.storage.origin[storage[i]] === p.from.weights || !p.storage.capacity[storage[i]]) continue;
    // a storage that died in steps that are not loaded was gone before the next one
    const end = Math.min(p.steps, freed[i] + (freedBy(p, storage[i], freed[i]) ? 1 : 0));
    if (end <= Math.max(0, born[i])) continue;
    at[i] = kept.length;
    kept.push(i);
    ends.push(end);
  }
  const n = kept.length;
  const column = (value: (life: number, k: number) => number) => Int32Array.from(kept, value);
  const from = column((i) => Math.max(0, born[i]));
  return {
    n, from, // first step that it is alive at
    storage: column((i) => storage[i]),
    to: Int32Array.from(ends), // step behind the last one: that which frees it counts
    given: Uint8Array.from(kept, (i) => (born[i] < 0 ? 1 : 0)), // 1 = it was there before its first step here
    freed: Uint8Array.from(kept, (i) => (freed[i] < p.steps ? 1 : 0)), // 1 = it dies at `to`, else the recording ends or leaves out what comes next
    bytes: Float64Array.from(kept, (i, k) => capacity(t, storage[i], ends[k] - 1)), // the most that it has
    used: new Int32Array(n).fill(-1), // last step that read or wrote it, -1 = none
    asked: new Uint8Array(n), // 1 = it holds an output of a run: the caller asked for it
    cache: new Int32Array(n).fill(-1), // position in caches, -1 = none
    maker: column((i) => { // the out entry that it was born with, -1 = none
      const first = idsOf(x.outs, storage[i]).find((o) => x.outStep[o] >= born[i]) ?? -1;
      return born[i] >= 0 && x.outStep[first] === born[i] ? first : -1;
    }),
    /** The life of a storage at a step, -1 = none. */
    at: (s: number, step: number): number => at[idsOf(x.lives, s).find((i) => at[i] >= 0 && from[at[i]] <= step && ends[at[i]] > step) ?? -1] ?? -1,
  };
}

/** The life of a storage that holds the cursor, else its first one; -1 = it has none. */
export function lifeOf(t: Trace, s: number, cursor: number): number {
  const l = lives(t);
  const now = l.at(s, Math.max(0, Math.min(cursor, t.p.steps - 1)));
  return now >= 0 ? now : l.storage.indexOf(s);
}

const freedBy = (p: Payload, s: number, step: number) => step >= 0 && step < p.steps && within(p.step.free, step).some((k) => p.free.storage[k] === s);

/** Last uses: by the reads and writes of ops. Outer values that a body reads are used by its own steps. */
function uses(t: Trace, l: Lives): void {
  const { p, x } = t;
  const passed = p.codes.how.indexOf("passed");
  const entered = new Map<string, number>();
  for (let f = 0; f < p.frames; f++) {
    const key = `${p.frame.parent[f]}:${p.frame.node[f]}`;
    if (p.frame.parent[f] >= 0) entered.set(key, Math.min(entered.get(key) ?? p.steps, x.first[f]));
  }
  const use = (s: number, step: number, when = step) => {
    const k = l.at(s, Math.min(step, when));
    if (k >= 0) l.used[k] = Math.max(l.used[k], when);
  };
  for (let i = 0; i < p.steps; i++) {
    const f = p.step.frame[i];
    const node = p.step.node[i];
    // a control node reads its own inputs when it is entered
    const when = p.step.flags[i] & p.flag.control ? Math.min(i, entered.get(`${f}:${node}`) ?? i) : i;
    for (const v of p.graphs[p.frame.graph[f]].nodes[node][3]) {
      const place = placeOf(t, f, v, i - 1);
      if (place) use(place.storage, i, when);
    }
    for (let o = p.step.out[i]; o < p.step.out[i + 1]; o++) {
      if (p.out.how[o] !== passed) use(p.out.storage[o], i);
      if (p.frame.parent[f] >= 0 || !x.graphs[p.frame.graph[f]].output[p.out.value[o]]) continue;
      const k = l.at(p.out.storage[o], i);
      if (k >= 0) l.asked[k] = 1;
    }
  }
}

/** The cache in each storage: as given to runs, and as left by them. */
function caches({ p, x }: Trace, l: Lives): void {
  const input = p.caches.map((c) => c.input);
  for (let b = 0; b < p.bind.value.length; b++) {
    const f = x.bindFrame[b];
    if (p.frame.parent[f] >= 0 || p.bind.value[b] < 0) continue;
    const cache = input.indexOf(p.graphs[p.frame.graph[f]].values[p.bind.value[b]]);
    const k = cache < 0 ? -1 : l.at(p.bind.storage[b], Math.min(x.first[f], p.steps - 1));
    if (k >= 0) l.cache[k] = cache;
  }
  p.caches.forEach((c, cache) => c.storage.forEach((s, run) => {
    const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
    const k = s < 0 || s >= p.storages || last <= first ? -1 : l.at(s, Math.min(last, p.steps) - 1);
    if (k >= 0) l.cache[k] = cache;
  }));
}

/**
 * The step from which a life is held past its last use; -1: it is not, or this is not known, since the caller asked for it or
 * the trace is unfinished.
 */
export function heldFrom({ p }: Trace, l: Lives, k: number): number {
  const from = Math.max(l.used[k], l.from[k] - 1) + 1;
  return from >= l.to[k] || l.asked[k] || (!l.freed[k] && p.live) ? -1 : from;
}

/** Steps that overwrote the contents of a life, ascending. */
export function notches({ p, x }: Trace, l: Lives, k: number): number[] {
  const s = l.storage[k];
  const found: number[] = [];
  const ids = idsOf(x.outs, s);
  const steps = Array.from(ids, (o) => x.outStep[o]);
  for (let i = upper(steps, l.from[k]); i < ids.length && steps[i] < l.to[k]; i++) {
    const before = i ? p.out.gen[ids[i - 1]] : 0;
    if (p.out.gen[ids[i]] > before && found[found.length - 1] !== steps[i]) found.push(steps[i]);
  }
  return found;
}

export const ORDERS = ["lifetime", "bytes", "birth"] as const;
/** The first in this order is at the bottom. */
export type Order = (typeof ORDERS)[number];

const CHUNKS = 512; // of time: a life is looked for in those that it goes through
const MOST = 3000; // at once: beyond that what comes stands on top of all, gaps are not looked for

export function age(l: Lives, k: number): number { return l.to[k] - l.freed[k] - l.from[k]; }

export function inOrder(l: Lives, order: Order, among: ArrayLike<number>): Int32Array {
  const by = {
    lifetime: (a: number, b: number) => age(l, b) - age(l, a) || l.bytes[b] - l.bytes[a] || a - b,
    bytes: (a: number, b: number) => l.bytes[b] - l.bytes[a] || age(l, b) - age(l, a) || a - b,
    birth: (a: number, b: number) => l.from[a] - l.from[b] || a - b,
  };
  return Int32Array.from(among).sort(by[order]);
}

/** First fit: put every life at the lowest address that is free for all of it. Fills `base`; returns the height. */
export function stack(l: Lives, sorted: Iterable<number>, steps: number, base: Float64Array): number {
  const chunk = Math.max(1, Math.ceil(steps / CHUNKS));
  const within: number[][] = Array.from({ length: Math.ceil(steps / chunk) + 1 }, () => []); // by address
  const seen = new Int32Array(l.n).fill(-1);
  let top = 0;
  for (const k of sorted) {
    const from = l.from[k];
    const to = l.to[k];
    const early = Math.floor(from / chunk);
    const late = Math.floor((to - 1) / chunk);
    let others = within[early];
    if (late > early) {
      others = [];
      for (let c = early; c <= late; c++) {
        for (const o of within[c]) {
          if (seen[o] === k || l.from[o] >= to || l.to[o] <= from) continue;
          seen[o] = k;
          others.push(o);
        }
      }
      if (others.length <= MOST) others.sort((a, b) => base[a] - base[b]);
    }
    let at = 0;
    if (others.length > MOST) {
      for (const o of others) at = Math.max(at, base[o] + l.bytes[o]);
    } else {
      for (const o of others) {
        if (l.from[o] >= to || l.to[o] <= from) continue;
        if (base[o] - at >= l.bytes[k]) break;
        at = Math.max(at, base[o] + l.bytes[o]);
      }
    }
    base[k] = at;
    for (let c = early; c <= late; c++) within[c].splice(upper(base, at, 0, within[c].length, within[c]), 0, k);
    top = Math.max(top, at + l.bytes[k]);
  }
  return top;
}

export type Sort = Order | "address";
/** `top`: height in bytes. `addressed`: lives are at their addresses in the arena. */
interface Band { space: string; arena: string; top: number; addressed: boolean }
/** The band of each life, and its lower end there in bytes. */
export type Layout = ReturnType<typeof lay>;

const laid = kept((_: Trace) => new Map<Sort, Layout>());

export function addressed({ p }: Trace): boolean { return p.storage.address.some((a) => a >= 0); }

export function layout(t: Trace, sort: Sort): Layout { return ensure(laid(t), sort, () => lay(t, sort)); }

function lay(t: Trace, sort: Sort) {
  const { p } = t;
  const l = lives(t);
  const { space, arena, address } = p.storage;
  const bands: Band[] = [];
  const known = new Map<string, number>();
  const band = new Uint16Array(l.n);
  const base = new Float64Array(l.n);
  for (let k = 0; k < l.n; k++) {
    const s = l.storage[k];
    const names = space.length ? [p.strings[space[s]], p.strings[arena[s]]] : ["", ""];
    // lives without addresses get a band of their own
    const fixed = sort === "address" && address.length > 0 && address[s] >= 0;
    const key = `${names.join("\0")}\0${fixed}`;
    band[k] = ensure(known, key, () => bands.push({ space: names[0], arena: names[1], top: 0, addressed: fixed }) - 1);
    if (fixed) base[k] = address[s];
  }
  const sorted: number[][] = bands.map(() => []);
  for (const k of inOrder(l, sort === "address" ? "lifetime" : sort, Array.from({ length: l.n }, (_, k) => k))) sorted[band[k]].push(k);
  bands.forEach((b, i) => {
    if (!b.addressed) b.top = stack(l, sorted[i], p.steps, base);
    else for (const k of sorted[i]) b.top = Math.max(b.top, base[k] + l.bytes[k]);
  });
  return { l, bands, band, base };
}

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
