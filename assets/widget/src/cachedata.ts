// What the rows of the caches hold after every run, as kvviz/view/page_data/payload_cache_rows.py encodes it, spans of equal rows; and how
// they are drawn: axis, states, and owning sequences, each with its own fill, pattern and border, since colour alone carries no meaning.
import { upper } from "./arrays.js";
import { filled, label, outline, type Inks, type Pattern } from "./canvas.js";
import { el, td } from "./dom.js";
import { bytes, capital, count, plural, round } from "./format.js";
import { open, type Floats, type Ints, type Kinds } from "./wire.js";

/** `sums`: the meter adds up over runs; `bad`: a value above 0 is a loss. */
export interface Meter { name: string; label: string; about: string; sums: boolean; bad: boolean }
/** `run`: the first of the `runs` in which it happened. */
interface Warning { cache: number; run: number; runs: number; kind: string; text: string }
/** `unit`: bytes of a row, 0 = not known; `streams`: one for each batch entry. */
interface CacheRows { heads: number; unit: number; streams: number[]; given: [valid: number, capacity: number] }
/** `mark`: a pattern over the hue, since colour alone carries no meaning. */
interface OwnerState { name: string; about: string; mark: Pattern; dashed: boolean }
/** `table`: sequences, and the state of rows that disagree with their cells. */
interface Owners { table: [sequences: number[], state: string][]; hues: [light: string[], dark: string[]]; states: OwnerState[] }
interface Header { owners?: Owners; notes?: string[]; format: number; columns: Kinds; states: string[]; meters: Meter[]; runs: string[]; caches: CacheRows[]; warnings: Warning[] }

export type CacheData = ReturnType<typeof unpackCaches>;
export function unpackCaches(raw: ArrayBuffer) {
  const { header, column } = open<Header>(raw);
  const { states, meters, runs, caches, warnings } = header;
  const ints = (name: string) => column(name) as Ints;
  const d = {
    states, meters, runs, caches, warnings,
    // by cell; fresh: this run wrote it; token: position of that in the first row, -1 = none
    at: ints("cell.at"), start: ints("cell.start"), stop: ints("cell.stop"), state: ints("cell.state"), fresh: ints("cell.fresh"), token: ints("cell.token"),
    // by name of a meter: by cache and run
    measured: Object.fromEntries(meters.map(({ name }) => [name, column(`meter.${name}`) as Floats])),
    // which rows a run stores at which step of the trace, by cache and run; notes and owners of rows, in the order of cells
    stores: header.columns["store.at"] ? { at: ints("store.at"), step: ints("store.step"), start: ints("store.start"), stop: ints("store.stop") } : null,
    notes: header.notes ? { at: ints("note.at"), start: ints("note.start"), stop: ints("note.stop"), text: ints("note.text"), table: header.notes } : null,
    owners: header.owners ? { at: ints("owner.at"), start: ints("owner.start"), stop: ints("owner.stop"), of: ints("owner.of"), ...header.owners } : null,
    fed: new Int32Array(0) as Ints, // by stream and run: tokens that were seen until then
  };
  const n = runs.length;
  d.fed = new Int32Array((d.at.length / (n + 1)) * n);
  for (let i = 0; i < d.fed.length; i++) {
    const [from, to] = cellsOf(d, Math.floor(i / n), i % n);
    let most = i % n ? d.fed[i - 1] : 0;
    for (let c = from; c < to; c++) if (d.token[c] >= 0) most = Math.max(most, d.token[c] + d.stop[c] - d.start[c]);
    d.fed[i] = most;
  }
  return d;
}

/** The range of cells of a stream after a run. */
export function cellsOf(d: { at: Ints; runs: string[] }, stream: number, run: number): [number, number] {
  const i = stream * (d.runs.length + 1) + run;
  return [d.at[i] ?? 0, d.at[i + 1] ?? 0];
}

/** The cell of a row after a run; -1 if there is no such row. */
export function cellAt(d: Pick<CacheData, "at" | "start" | "stop" | "runs">, stream: number, run: number, row: number): number {
  const [from, to] = cellsOf(d, stream, run);
  const cell = upper(d.start, row, from, to) - 1;
  return cell >= from && row < d.stop[cell] ? cell : -1;
}

/** The token in a row after a run: its position, and the run that wrote it. */
export function tokenAt(d: CacheData, stream: number, run: number, row: number): { position: number; run: number } | null {
  const cell = cellAt(d, stream, run, row);
  if (cell < 0 || d.token[cell] < 0) return null;
  const position = d.token[cell] + row - d.start[cell];
  const n = d.runs.length;
  return { position, run: upper(d.fed, position, stream * n, stream * n + run + 1) - stream * n };
}

/** The producer's note on a row after a run, or "". */
export function noteAt(d: CacheData, stream: number, run: number, row: number): string {
  const { notes, runs } = d;
  return notes?.table[notes.text[cellAt({ ...notes, runs }, stream, run, row)]] ?? "";
}

/** The range of owner spans after a run. */
export function ownedOf(d: CacheData, stream: number, run: number): [number, number] {
  return d.owners ? cellsOf({ at: d.owners.at, runs: d.runs }, stream, run) : [0, 0];
}

/** Rows of each sequence, and of each state, after a run; a row of two sequences counts for both. */
export function ownerCounts(d: CacheData, stream: number, run: number): { sequences: Map<number, number>; states: Map<string, number> } {
  const found = { sequences: new Map<number, number>(), states: new Map<string, number>() };
  const [from, to] = ownedOf(d, stream, run);
  for (let i = from; i < to; i++) {
    const [sequences, state] = d.owners!.table[d.owners!.of[i]];
    const rows = d.owners!.stop[i] - d.owners!.start[i];
    for (const one of sequences) found.sequences.set(one, (found.sequences.get(one) ?? 0) + rows);
    if (state) found.states.set(state, (found.states.get(state) ?? 0) + rows);
  }
  return found;
}

export function counts(d: CacheData, stream: number, run: number): number[] {
  const found = d.states.map(() => 0);
  const [from, to] = cellsOf(d, stream, run);
  for (let c = from; c < to; c++) found[d.state[c]] += d.stop[c] - d.start[c];
  return found;
}

export function meter(d: CacheData, name: string, cache: number, run: number): number {
  if (!d.measured[name]) throw new Error(`the payload has no meter ${name}`);
  return d.measured[name][cache * d.runs.length + run] ?? 0;
}

/** What a run did to a cache, in one sentence. */
export function cost(d: CacheData, cache: number, run: number, protocol: string): string {
  const of = (name: string, at = run) => meter(d, name, cache, at);
  const label = capital(d.runs[run] ?? "");
  if (!label) return "";
  const [rows, copied, moved, unit] = [of("rows_written"), of("bytes_copied"), of("bytes_moved_outside"), d.caches[cache]?.unit ?? 0];
  if (protocol === "state") return `${label} wrote ${bytes(of("bytes_written"))}${copied ? ` and copied ${bytes(copied)} of them` : ""}: a state is written anew by every run.`;
  const amount = unit > 0 && copied % unit === 0 ? `${plural(copied / unit, "row")} (${bytes(copied)})` : bytes(copied);
  const [before, had] = run > 0 ? [of("valid", run - 1), of("capacity", run - 1)] : d.caches[cache]?.given ?? [0, 0];
  const found = before ? `${count(before)} of ${plural(had, "row")} were valid before` : "no row was valid before";
  return `${label} wrote ${rows ? plural(rows, "row") : "no row"} and copied ${copied ? amount : "none"}: ${found}.${moved ? ` After it the caller moved ${bytes(moved)} to make room.` : ""}`;
}

/** The runs in which past rows were moved, by the graph or by the caller. */
export function moves(d: CacheData, cache: number): { run: number; bytes: number }[] {
  return d.runs.map((_, run) => ({ run, bytes: meter(d, "bytes_copied", cache, run) + meter(d, "bytes_moved_outside", cache, run) })).filter((one) => one.bytes > 0);
}

/** The largest number of rows after any run: the length of the axis. */
export function most(d: CacheData, cache: number): number { return Math.max(0, ...d.runs.map((_, run) => meter(d, "capacity", cache, run))); }

/** The first row that a run wrote; if it wrote none, the last with a token, or 0. */
export function newest(d: CacheData, stream: number, run: number): number {
  const [from, to] = cellsOf(d, stream, run);
  let row = 0;
  for (let c = from; c < to; c++) {
    if (d.fresh[c]) return d.start[c];
    if (d.token[c] >= 0) row = d.stop[c] - 1;
  }
  return row;
}

/** The state of empty rows that a later step of the run writes. */
export const PENDING = "pending";

/** What a run stores in a cache, in order; empty if its steps were not kept. */
export function storesOf({ stores, runs }: CacheData, cache: number, run: number): { step: number; start: number; stop: number }[] {
  if (!stores) return [];
  const i = cache * (runs.length + 1) + run;
  const [from, to] = [stores.at[i] ?? 0, stores.at[i + 1] ?? 0];
  return Array.from({ length: Math.max(0, to - from) }, (_, k) => ({ step: stores.step[from + k], start: stores.start[from + k], stop: stores.stop[from + k] }));
}

/** How far a run has come with a cache after a step: rows stored, and rows to come; whether this step stores some; the next step that stores rows, else the last; -1: unknown. */
export function progress(d: CacheData, cache: number, run: number, step: number) {
  const found = { done: 0, todo: 0, now: false, step: -1 };
  for (const one of storesOf(d, cache, run)) {
    const rows = one.stop - one.start;
    if (one.step > step && !found.todo) found.step = one.step;
    if (one.step > step) found.todo += rows;
    else [found.done, found.step] = [found.done + rows, one.step];
    found.now ||= one.step === step;
  }
  return found;
}

type Cell = [start: number, stop: number, state: number, fresh: number, token: number];

/** The same data with the cells of one stream and run as they are after a step: rows to come hold what they held before. */
export function atStep(d: CacheData, cache: number, stream: number, run: number, step: number): CacheData {
  const waits = storesOf(d, cache, run).filter((one) => one.step > step);
  const [from, to] = cellsOf(d, stream, run);
  if (!waits.length || from === to) return d;
  const states = [...d.states, PENDING];
  const found: Cell[] = [];
  const [first, last] = run ? cellsOf(d, stream, run - 1) : [0, 0];
  const cuts = [...waits.flatMap((one) => [one.start, one.stop]), ...d.start.subarray(first, last), ...d.stop.subarray(first, last)];
  for (let c = from; c < to; c++) {
    const inside = d.fresh[c] ? cuts.filter((cut) => cut > d.start[c] && cut < d.stop[c]) : [];
    const all = [...new Set([d.start[c], ...inside, d.stop[c]])].sort((a, b) => a - b);
    for (let i = 0; i + 1 < all.length; i++) {
      const [start, stop] = [all[i], all[i + 1]];
      const token = (cell: number) => (d.token[cell] < 0 ? -1 : d.token[cell] + start - d.start[cell]);
      if (!d.fresh[c] || !waits.some((one) => one.start <= start && start < one.stop)) {
        found.push([start, stop, d.state[c], d.fresh[c], token(c)]);
        continue;
      }
      const before = run ? cellAt(d, stream, run - 1, start) : -1;
      const was = before < 0 ? "reserved" : d.states[d.state[before]];
      // no longer new
      const state = was === "reserved" ? PENDING : was === "written" ? "valid" : was;
      found.push([start, stop, states.indexOf(state), 0, was === "reserved" ? -1 : token(before)]);
    }
  }
  const put = (column: ArrayLike<number>, part: number) => Int32Array.from([...Array.from(column).slice(0, from), ...found.map((cell) => cell[part]), ...Array.from(column).slice(to)]);
  const by = found.length - (to - from);
  const at = Int32Array.from(d.at, (n, i) => (i > stream * (d.runs.length + 1) + run ? n + by : n));
  return { ...d, states, at, start: put(d.start, 0), stop: put(d.stop, 1), state: put(d.state, 2), fresh: put(d.fresh, 3), token: put(d.token, 4) };
}

export interface Look { about: string; fill: string; mark: Pattern; ink: string; dash: number[]; line: number }

/** By the name that the payload has for a state, from what may be covered to what must be seen. */
const LOOKS: Record<string, Look> = {
  reserved: { about: "reserved, never written", fill: "line", mark: "", ink: "edge", dash: [1, 2], line: 1 },
  pending: { about: "empty: a later op of this run writes it", fill: "accent-pale", mark: "", ink: "accent", dash: [3, 2], line: 1.5 },
  valid: { about: "holds a token", fill: "view-mid", mark: "", ink: "view", dash: [], line: 1 },
  wrapped: { about: "holds a token of a later round", fill: "view-pale", mark: "dots", ink: "view", dash: [], line: 2 },
  outside: { about: "holds a token that attention no longer sees", fill: "done", mark: "cross", ink: "soft", dash: [3, 2], line: 1 },
  stale: { about: "stale: holds something, but no live token", fill: "missed-pale", mark: "hatch", ink: "missed", dash: [5, 2], line: 1.5 },
  written: { about: "written by this run", fill: "accent", mark: "", ink: "ink", dash: [], line: 2 },
};
const NAMES = Object.keys(LOOKS);

/** The look of a state; an unknown one is plain. */
export function lookOf(state: string): Look { return LOOKS[state] ?? { about: state, fill: "pane", mark: "", ink: "ink", dash: [], line: 1 }; }

/** Sort key of drawing: unknown states first. */
export function above(a: string, b: string): number { return NAMES.indexOf(a) - NAMES.indexOf(b); }

/** A box with the fill and pattern of a state. */
export function box(context: CanvasRenderingContext2D, inks: Inks, state: string, x: number, y: number, w: number, h: number, border = true): void {
  const look = lookOf(state);
  filled(context, inks.colour(look.fill), x, y, w, h);
  const pattern = look.mark ? inks.pattern(look.mark, look.ink) : null;
  if (pattern) filled(context, pattern, x, y, w, h);
  if (border) outline(context, inks.colour(look.ink), look.line, look.dash, x, y, w, h);
}

export const LEFT = 46; // px for the names of heads and runs
const GAP = 8; // px between numbers
export const CLOSE = 64; // rows of a close-up

export const MARGIN = 96; // px right of the rows, for what is said of a run

/** `margin`: px right of the rows. */
export interface Axis { first: number; rows: number; width: number; margin?: number }

/** The width of a picture of these rows, names and margin included. */
export function wideOf(a: Axis): number { return LEFT + a.width + (a.margin ?? 0) + 2; }

/** All rows, or `CLOSE` rows around one. */
export function axisOf(most: number, width: number, around: number | null, margin = 0): Axis {
  const rows = around === null ? most : Math.min(CLOSE, most);
  const first = around === null ? 0 : Math.max(0, Math.min(around - (rows >> 1), most - rows));
  return { first, rows: Math.max(1, rows), width: Math.max(1, width - LEFT - margin - 2), margin };
}

export function xOf(a: Axis, row: number): number {
  return LEFT + (Math.max(0, Math.min(row - a.first, a.rows)) / a.rows) * a.width;
}

/** The row under a pixel, or -1. */
export function rowAt(a: Axis, x: number): number {
  const row = Math.floor(((x - LEFT) / a.width) * a.rows);
  return row < 0 || row >= a.rows ? -1 : a.first + row;
}

/** Rows to label, so that their numbers do not touch. */
export function ticks(a: Axis): number[] {
  const wide = 10 + 7 * String(a.first + a.rows).length;
  const step = Math.max(1, round((wide * a.rows) / a.width));
  const found = [];
  for (let row = Math.ceil(a.first / step) * step; row < a.first + a.rows; row += step) found.push(row);
  return found;
}

/** Draw the labels. The last one is moved inside; a label that would touch another is left out. */
export function drawAxis(context: CanvasRenderingContext2D, inks: Inks, a: Axis, y: number): void {
  context.font = `10.5px ${inks.family}`;
  const half = a.width / a.rows / 2;
  let end = -Infinity;
  for (const row of ticks(a)) {
    const text = String(row);
    const wide = context.measureText(text).width;
    const x = Math.max(LEFT, Math.min(xOf(a, row) + (half > 4 ? half - wide / 2 : -wide / 2 + half), LEFT + a.width - wide));
    if (x < end + GAP) continue;
    label(context, inks, text, x, y, { size: 10.5, base: "top" });
    end = x + wide;
  }
}

const LETTERS = 13; // px that a number needs

/** The hue of a sequence in the present theme; hues repeat. */
export function hueOf(d: CacheData, sequence: number, inks: Inks): string {
  const hues = d.owners!.hues[inks.dark ? 1 : 0];
  return hues[sequence % hues.length];
}

/** A box of rows: a band for each sequence, the mark of the state, and a border, dashed if cell and row disagree. */
export function ownerBox(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, sequences: number[], state: string, x: number, y: number, w: number, h: number, border = true): void {
  const how = d.owners!.states.find((one) => one.name === state);
  filled(context, inks.colour("pane"), x, y, w, h);
  // cells ahead of their keys are pale
  context.globalAlpha = how?.mark === "dots" ? 0.16 : 0.5;
  sequences.forEach((one, i) => {
    filled(context, hueOf(d, one, inks), x, y + (h * i) / sequences.length, w, h / sequences.length);
  });
  context.globalAlpha = 1;
  if (how?.mark) {
    context.globalAlpha = 0.65;
    filled(context, inks.pattern(how.mark, sequences.length ? "ink" : "soft") ?? "transparent", x, y, w, h);
    context.globalAlpha = 1;
  }
  if (border) outline(context, sequences.length ? hueOf(d, sequences[0], inks) : inks.colour("soft"), 1.5, how?.dashed ? [3, 2] : [], x, y, w, h);
}

/** Draw all rows with owners after a run, with the numbers of sequences if there is room. */
export function drawOwners(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, stream: number, run: number, axis: Axis, y: number, h: number): void {
  const [from, to] = ownedOf(d, stream, run);
  const one = axis.width / axis.rows;
  for (let i = from; i < to; i++) {
    const { start, stop, of, table } = d.owners!;
    const first = Math.max(start[i], axis.first);
    const last = Math.min(stop[i], axis.first + axis.rows);
    if (first >= last) continue;
    const [sequences, state] = table[of[i]];
    const apart = one >= 6 && h >= 6;
    for (let row = first; row < last; row += apart ? 1 : last - first) {
      const x = xOf(axis, row);
      const wide = Math.max(xOf(axis, apart ? row + 1 : last) - x - (apart ? 1 : 0), 1.5);
      ownerBox(context, inks, d, sequences, state, x, y, wide, h, apart);
      if (!sequences.length || wide < LETTERS || h < LETTERS) continue;
      const text = sequences.join(",");
      context.font = `10.5px ${inks.family}`;
      const room = context.measureText(text).width;
      if (room > wide - 2) continue;
      if (state) filled(context, inks.colour("pane"), x + wide / 2 - room / 2 - 2, y + h / 2 - 6, room + 4, 12);
      label(context, inks, text, x + wide / 2, y + h / 2 + 0.5, { size: 10.5, ink: "ink", align: "center" });
    }
  }
}

/** What a run did to a cache, what is wrong, and the meters. */
export function beside(d: CacheData, cache: number, run: number, protocol: string): HTMLElement[] {
  const head = ["", "this run", "all runs"].map((text) => el("th", { scope: "col" }, text));
  const meters = d.meters.map(({ name, label, about, sums, bad }) => {
    const write = name.startsWith("bytes") ? bytes : count;
    const value = meter(d, name, cache, run);
    const sum = d.runs.reduce((total, _, r) => total + meter(d, name, cache, r), 0);
    return el("tr", { "data-kv": "meter", "data-id": name, "data-bad": bad && value > 0 ? 1 : null, "data-zero": value ? null : 1 },
      el("th", { scope: "row", title: about }, label), td(write(value), "kv-num"), td(sums ? write(sum) : "", "kv-num"));
  });
  const mine = d.warnings.filter((w) => w.cache === cache);
  const others = d.warnings.length - mine.length;
  return [
    el("p.kv-cache-cost", { "data-kv": "cache-cost" }, cost(d, cache, run, protocol)),
    el("ul.kv-cache-warnings", { "data-kv": "cache-warnings" },
      ...mine.map((w) => el("li", { "data-kv": "cache-warning", "data-id": w.kind }, el("div", {}, el("b", {}, `⚠\uFE0E ${w.kind}`),
        el("button", { "data-kv": "cache-run", "data-run": w.run, title: "Go to the first of these runs" }, `${d.runs[w.run] ?? ""}${w.runs > 1 ? ` and ${plural(w.runs - 1, "run")} more` : ""}`)), el("p", {}, w.text))),
      mine.length ? "" : el("li.kv-soft", {}, "Nothing is wrong with this cache."),
      others ? el("li.kv-soft", {}, `${plural(others, "warning")} about other caches, marked ⚠\uFE0E in the list.`) : ""),
    el("table.kv-cache-meters", { "aria-label": "Meters of this cache" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...meters)),
  ];
}
