// What the list of buffers shows at a cursor: one bar per storage, sorted by who owns it; pure, so that tests need no page.
import { bytes, opName, shortName, shortValue, valueName } from "./format.js";
import { alive, bornAt, capacity, generation, lastOut, rowsBefore, stack, valuesIn, type Trace } from "./replay.js";
import { numberOf } from "./steps.js";
import { touched } from "./select.js";
import type { Now } from "./store.js";

export interface Bar {
  id: number;
  gen: number;
  capacity: number;
  origin: string;
  cache: number; // position in caches, -1 = none
  state: "" | "in_place" | "missed" | "new" | "freed";
  use: "" | "read" | "written"; // by this step
  label: string;
  note: string;
  parts: [number, number][]; // views: offset and length as fractions of the capacity, when not the whole
  valid: [number, number] | null; // rows valid before this run and now, as fractions
  again: boolean; // the rows of before were copied here in this run
}
export interface Fold { count: number; bytes: number }
/** Caches of one role in many layers, told as one row where `open` does not have it; `bar` is one of them. */
export interface Family { role: string; members: Bar[]; bytes: number; open: boolean }
export interface Memory {
  bars: Bar[];
  small: Fold;
  more: Fold;
  held: Record<"weights" | "caller" | "caches" | "run", number>;
}

export const MOST = 200;
/** Bars from top to bottom; those of other origins stand where those of the run do. */
const ORDER: Record<string, number> = { donated: 0, caller: 1, weights: 3 };
const RUN = 2;

const scales = new WeakMap<Trace, Map<number, number>>();
/** Largest storage (weights aside) that a run touches: the length of a full bar, so that bars keep still within a run. */
export function scale(t: Trace, run: number): number {
  const { p, x } = t;
  let known = scales.get(t);
  if (!known) scales.set(t, (known = new Map()));
  let most = known.get(run);
  if (most === undefined) {
    most = 1;
    const see = (s: number) => { if (p.storage.origin[s] !== p.from.weights) most = Math.max(most!, p.storage.capacity[s]); };
    const { first = 0, last = p.steps } = p.runs[run] ?? {};
    for (let o = p.step.out[first]; o < p.step.out[Math.min(last, p.steps)]; o++) see(p.out.storage[o]);
    for (let b = 0; b < p.bind.value.length; b++) if (p.frame.run[x.bindFrame[b]] === run) see(p.bind.storage[b]);
    known.set(run, most);
  }
  return most;
}

interface CacheRow { cache: number; before: number; valid: number; capacity: number; again: boolean }
/** By storage: which cache lies in it now, and how many rows of it hold tokens. `main`: the frame of the whole run. */
function cachesNow(t: Trace, main: number, run: number, cursor: number): Map<number, CacheRow> {
  const { p, x } = t;
  const rows = new Map<number, CacheRow>();
  const given = new Map<string, number>(); // the run before may not tell where it left its caches: this run knows what it got
  for (let b = p.frame.bind[main]; b < p.frame.bind[main + 1]; b++) given.set(p.graphs[p.frame.graph[main]].values[p.bind.value[b]], p.bind.storage[b]);
  p.caches.forEach((c, cache) => {
    const s = c.storage[run];
    const [before, had] = rowsBefore(t, cache, run);
    const past = given.get(c.input);
    if (past !== undefined) rows.set(past, { cache, before, valid: before, capacity: past === s ? c.capacity[run] : had, again: false });
    const out = s === undefined || s < 0 ? -1 : lastOut(t, s, cursor);
    if (out >= 0 && x.outStep[out] >= p.runs[run].first) {
      rows.set(s, { cache, before, valid: c.valid[run], capacity: c.capacity[run], again: before > 0 && c.copied[run] > 0 });
    }
  });
  return rows;
}

function describe(t: Trace, s: number, cursor: number, frames: number[]): { label: string; parts: Bar["parts"] } {
  const { p } = t;
  const held = valuesIn(t, s, cursor, frames);
  const live = held.filter((h) => h.readers > 0 || h.output);
  const shown = live.length ? live : held;
  const names = [...new Set(shown.map((h) => valueName(p.graphs[p.frame.graph[h.frame]], h.value)))];
  const all = capacity(t, s, cursor) || 1;
  const parts: Bar["parts"] = [];
  for (const h of shown) {
    const [offset, length] = h.place.from === "bind" ? [p.bind.offset[h.place.entry], p.bind.bytes[h.place.entry]] : [p.out.offset[h.place.entry], p.out.bytes[h.place.entry]];
    if (length < all && !parts.some(([a, b]) => a === offset / all && b === length / all)) parts.push([offset / all, length / all]);
  }
  const label = names.length > 1 ? `${names[0]} +${names.length - 1}` : names[0] ?? shortValue(p.strings[p.storage.name[s]]);
  return { label, parts };
}

const MANY = 4; // layers from which on caches of one role are one row

/** Caches that are alike but for their layer as one row; what the step touches, or what is lit, keeps its own. */
export function families({ p }: Trace, bars: Bar[], open: Set<string>, keep: Set<number>): (Bar | Family)[] {
  const of = new Map<string, Bar[]>();
  const roleOf = (b: Bar) => (b.cache < 0 || b.state === "freed" || p.caches[b.cache].layer < 0 ? "" : p.caches[b.cache].role);
  for (const bar of bars) if (roleOf(bar)) of.set(roleOf(bar), [...(of.get(roleOf(bar)) ?? []), bar]);
  const told = new Set<string>();
  return bars.flatMap((bar): (Bar | Family)[] => {
    const role = roleOf(bar);
    const members = of.get(role) ?? [];
    if (members.length < MANY) return [bar];
    const family = told.has(role) ? [] : [{ role, members, bytes: members.reduce((n, b) => n + b.capacity, 0), open: open.has(role) }];
    told.add(role);
    return open.has(role) || bar.use || keep.has(bar.id) ? [...family, bar] : family;
  });
}

export function memory(t: Trace, now: Now, cursor: number, unfold: boolean, keep: Set<number>): Memory {
  const { p, x } = t;
  const frames = stack(t, now.frame);
  const caches = cachesNow(t, frames[0], now.run, cursor);
  const use = new Map<number, "read" | "written">();
  const freed = new Set<number>();
  if (cursor >= 0) {
    const { reads, writes } = touched(t, cursor);
    for (const s of reads) use.set(s, "read");
    for (const s of writes) use.set(s, "written");
    for (let k = p.step.free[cursor]; k < p.step.free[cursor + 1]; k++) freed.add(p.free.storage[k]);
  }
  const full = scale(t, now.run);
  const held = { weights: x.weights, caller: 0, caches: 0, run: 0 };
  const small: Fold = { count: 0, bytes: 0 };
  const more: Fold = { count: 0, bytes: 0 };
  const rank = (s: number) => (caches.has(s) ? -1 : ORDER[p.codes.origin[p.storage.origin[s]]] ?? RUN);
  const there = alive(t, cursor).filter((s) => p.storage.origin[s] !== p.from.weights);
  for (const s of there) {
    const of = caches.has(s) ? "caches" : p.storage.origin[s] === p.from.caller || p.storage.origin[s] === p.from.donated ? "caller" : "run";
    held[of] += capacity(t, s, cursor);
  }
  const tiny = (s: number) => rank(s) > 0 && capacity(t, s, cursor) < full * 0.02 && !use.has(s) && !keep.has(s);
  const folds = !unfold && there.filter(tiny).length >= 6;
  const all = [...there, ...[...freed].filter((s) => !there.includes(s))].sort((a, b) => rank(a) - rank(b) || a - b);
  const bars: Bar[] = [];
  for (const s of all) {
    const size = capacity(t, s, cursor);
    const skip = freed.has(s) ? null : folds && tiny(s) ? small : bars.length >= MOST && !use.has(s) && !keep.has(s) ? more : null;
    if (skip) {
      skip.count++;
      skip.bytes += size;
      continue;
    }
    const gen = generation(t, s, cursor);
    const row = caches.get(s);
    const { label, parts } = row ? { label: p.caches[row.cache].name, parts: [] } : describe(t, s, cursor, frames);
    const written = use.get(s) === "written";
    const flags = written ? p.step.flags[cursor] : 0;
    const fresh = written && bornAt(t, s, cursor) === cursor;
    const state: Bar["state"] = freed.has(s) ? "freed" : flags & p.flag.inPlace && !fresh ? "in_place" : flags & p.flag.missed ? "missed" : fresh ? "new" : "";
    const rows = row?.capacity ? `${row.valid !== row.before && row.before > 0 ? `${row.before}→` : ""}${row.valid}\u2009/\u2009${row.capacity}` : "";
    const note = state === "freed" ? "freed" : row ? rows : state === "missed" ? "missed" : state === "new" ? "new" : gen > 0 ? `↺ ${gen}×` : "";
    bars.push({
      id: s, gen, capacity: size, origin: p.codes.origin[p.storage.origin[s]], cache: row?.cache ?? -1, state, use: use.get(s) ?? "",
      label, note, parts,
      again: row?.again ?? false,
      valid: row && row.capacity > 0 ? [Math.min(row.before, row.valid) / row.capacity, row.valid / row.capacity] : null,
    });
  }
  return { bars, small, more, held };
}

/** All there is to tell of a bar; asked for only when somebody points at it. */
export function title(t: Trace, b: Bar, cursor: number): string {
  const { p, x } = t;
  const out = lastOut(t, b.id, cursor);
  const step = out < 0 ? -1 : x.outStep[out];
  const g = step < 0 ? null : p.graphs[p.frame.graph[p.step.frame[step]]];
  const maker = g ? `\nwritten last in step ${numberOf(t, step)} by ${opName(g.nodes[p.step.node[step]][1])} ${shortName(g, p.step.node[step])}` : "";
  const owner = p.codes.owner[p.storage.origin[b.id]];
  const rows = b.valid ? ` rows valid of those reserved${b.again ? "; the older ones were copied in this run" : ""}` : "";
  return `B${b.id}${b.gen ? `.${b.gen}` : ""} · ${bytes(b.capacity)} · ${owner}${b.gen ? ` · overwritten ${b.gen}×` : ""}\n${b.label} ${b.note}${rows}${maker}`;
}
