// The module of the lists that are not visible at opening: the buffers at the cursor, one bar per storage, its length its bytes, coloured by
// owner, all weights one bar; and the totals of a run.
import { NEEDS_KERNEL, type Ask } from "./actions.js";
import { button, Delay, el, mark, name, NUMBER, on, onHit, place, say, set, td } from "./dom.js";
import { bytes, count, figure, opLabel, plural, shortValue, signed, valueName, visible } from "./format.js";
import type { MakePane } from "./lazypane.js";
import { alive, bare, bornAt, capacity, generation, lastOut, numberOf, opAt, placeOf, rowsBefore, runAt, stack, valuesIn, type Trace } from "./replay.js";
import { Rows, sorted, sortHeads, type Sorted } from "./rows.js";
import type { Change, Now, Store, View } from "./store.js";
import { ensure, kept, within } from "./arrays.js";
import { touched } from "./select.js";

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
/** Caches of one role in several layers, shown as one row unless `open`. */
interface Family { role: string; members: Bar[]; bytes: number; open: boolean }

const WEIGHTS = -1; // stands for the storages of all weights
export const MOST = 200;
/** Order of the bars from top to bottom; other origins are sorted like those of the run. */
const ORDER: Record<string, number> = { donated: 0, caller: 1, weights: 3 };
const RUN = 2;

const scales = kept((_: Trace) => new Map<number, number>());
/** The largest storage that a run touches, without weights: the length of a full bar, constant within a run. */
export function scale(t: Trace, run: number): number {
  const { p, x } = t;
  return ensure(scales(t), run, () => {
    let most = 1;
    const see = (s: number) => { if (p.storage.origin[s] !== p.from.weights) most = Math.max(most, p.storage.capacity[s]); };
    const { first = 0, last = p.steps } = p.runs[run] ?? {};
    for (let o = p.step.out[first]; o < p.step.out[Math.min(last, p.steps)]; o++) see(p.out.storage[o]);
    for (let b = 0; b < p.bind.value.length; b++) if (p.frame.run[x.bindFrame[b]] === run) see(p.bind.storage[b]);
    return most;
  });
}

interface CacheRow { cache: number; before: number; valid: number; capacity: number; again: boolean }
/** The cache in each storage now, and its valid rows. `main`: the main frame of the run. */
function cachesNow(t: Trace, main: number, run: number, cursor: number): Map<number, CacheRow> {
  const { p, x } = t;
  const rows = new Map<number, CacheRow>();
  const values = p.graphs[p.frame.graph[main]]?.values ?? []; // where nothing has run, there is no frame
  p.caches.forEach((c, cache) => {
    const s = c.storage[run];
    const [before, had] = rowsBefore(t, cache, run);
    // where the run before left its caches may not be recorded; what this run was given is
    const past = placeOf(t, main, values.indexOf(c.input), -1)?.storage;
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
    const { from, entry } = h.place;
    const [offset, length] = [p[from].offset[entry], p[from].bytes[entry]];
    if (length < all && !parts.some(([a, b]) => a === offset / all && b === length / all)) parts.push([offset / all, length / all]);
  }
  const label = names.length > 1 ? `${names[0]} +${names.length - 1}` : names[0] ?? shortValue(p.strings[p.storage.name[s]]);
  return { label, parts };
}

const MANY = 4; // layers from which on caches of one role are one row

/** Fold caches that differ only in their layer into one row; those that the step touches, or that are lit, keep a row. */
export function families({ p }: Trace, bars: Bar[], open: Set<string>, keep: Set<number>): (Bar | Family)[] {
  const of = new Map<string, Bar[]>();
  const roleOf = (b: Bar) => (b.cache < 0 || b.state === "freed" || p.caches[b.cache].layer < 0 ? "" : p.caches[b.cache].role);
  for (const bar of bars) if (roleOf(bar)) ensure(of, roleOf(bar), () => []).push(bar);
  const seen = new Set<string>();
  return bars.flatMap((bar): (Bar | Family)[] => {
    const role = roleOf(bar);
    const members = of.get(role) ?? [];
    if (members.length < MANY) return [bar];
    const family = seen.has(role) ? [] : [{ role, members, bytes: members.reduce((n, b) => n + b.capacity, 0), open: open.has(role) }];
    seen.add(role);
    return open.has(role) || bar.use || keep.has(bar.id) ? [...family, bar] : family;
  });
}

export function memory(t: Trace, now: Now, cursor: number, unfold: boolean, keep: Set<number>) {
  const { p, x } = t;
  const frames = stack(t, now.frame);
  const caches = cachesNow(t, frames[0], now.run, cursor);
  const use = new Map<number, "read" | "written">();
  const freed = new Set<number>();
  if (cursor >= 0) {
    const { reads, writes } = touched(t, cursor);
    for (const s of reads) use.set(s, "read");
    for (const s of writes) use.set(s, "written");
    for (const k of within(p.step.free, cursor)) freed.add(p.free.storage[k]);
  }
  const full = scale(t, now.run);
  const held = { weights: x.weights, caller: 0, caches: 0, run: 0 };
  const [small, more] = [{ count: 0, bytes: 0 }, { count: 0, bytes: 0 }]; // folded, and cut off
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

function weightsBar({ x }: Trace): Bar[] {
  return x.weights ? [{ id: WEIGHTS, gen: 0, capacity: x.weights, origin: "weights", cache: -1, state: "", use: "", label: "all weights", note: "", parts: [], valid: null, again: false }] : [];
}

/** The tooltip of a bar, computed on demand. */
export function title(t: Trace, b: Bar, cursor: number): string {
  const { p, x } = t;
  if (b.id === WEIGHTS) return `weights, ${bytes(b.capacity)}${b.capacity > scale(t, runAt(t, cursor)) ? "; the bar is cut off" : ""}`;
  const out = lastOut(t, b.id, cursor);
  const step = out < 0 ? -1 : x.outStep[out];
  const by = step < 0 ? null : opAt(t, step);
  const maker = by ? `\nwritten last in step ${numberOf(t, step)} by ${opLabel(by.g, by.node)}` : "";
  const owner = p.codes.owner[p.storage.origin[b.id]];
  const rows = b.valid ? ` rows valid of those reserved${b.again ? "; the older ones were copied in this run" : ""}` : "";
  return `B${b.id}${b.gen ? `.${b.gen}` : ""} · ${bytes(b.capacity)} · ${owner}${b.gen ? ` · overwritten ${b.gen}×` : ""}\n${b.label} ${b.note}${rows}${maker}`;
}

const SIGN = { "": "", in_place: "", missed: "⚠\uFE0E", new: "+", freed: "" };
const PARTS = ["weights", "caches", "caller", "run"] as const;

const idOf = (b: Bar) => (b.id === WEIGHTS ? "W" : b.gen > 0 ? `B${b.id}.${b.gen}` : `B${b.id}`);

class MemoryPane implements View {
  readonly slow = true;
  #total = el("span.kv-hint");
  #stack = el("div.kv-stack", { "aria-hidden": "true" });
  #legend = el("div.kv-legend");
  #list = el("div.kv-mem", { role: "list", tabindex: 0, "aria-label": "Buffers" });
  #small = el("button", { class: "kv-fold", "data-kv": "memory-fold" });
  #smallItem = el("div", { role: "listitem" }, this.#small);
  #more = el("p.kv-none", { role: "listitem" });
  #rows = new Map<string, { bar: Bar; root: HTMLElement }>(); // those that show the same as before stay
  #unfold = false;
  #open = new Set<string>(); // roles of caches whose layers are listed one by one
  #families = new Map<string, HTMLElement>();

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    host.append(el("div.kv-searchline", {}, this.#total), this.#stack, this.#legend, this.#list);
    for (const key of PARTS) {
      this.#stack.append(el("i", { "data-part": key }));
      this.#legend.append(el("span", { "data-part": key }, el("i", {}), `${key} `, el("b", {})));
    }
    on(this.#small, "click", () => {
      this.#unfold = !this.#unfold;
      this.#draw();
    }, signal);
    onHit(this.#list, "cache-family", (row) => {
      if (!this.#open.delete(row.dataset.id!)) this.#open.add(row.dataset.id!);
      this.#draw();
    }, signal);
    onHit(this.#list, "storage-bar", (row) => {
      const bar = [...this.#rows.values()].find(({ root }) => root === row)?.bar;
      if (bar) row.title = title(store.t, bar, store.cursor);
    }, signal, "pointerover");
    onHit(this.#list, "storage-bar", (row) => {
      const { selection } = store;
      const id = Number(row.dataset.id);
      if (Number.isNaN(id)) return; // of the weights there is one bar for many storages
      store.select(selection?.kind === "storage" && selection.id === id ? null : { kind: "storage", id });
    }, signal);
  }

  update(change: Change): void {
    if (change.payload) this.#rows.clear();
    if (change.cursor || change.payload || change.selection) this.#draw();
  }

  #draw(): void {
    const { store } = this;
    const { now, t, cursor } = store;
    const m = memory(t, now, cursor, this.#unfold, now.lit.storages);
    const full = scale(t, now.run);
    const total = m.held.weights + m.held.caches + m.held.caller + m.held.run;
    const { name, about } = figure(t.p, "held");
    say(this.#total, cursor < 0 ? `${bytes(total)} held before the first step` : `${bytes(total)} ${name} this step`, about);
    PARTS.forEach((key, i) => {
      (this.#stack.children[i] as HTMLElement).style.flexGrow = String(m.held[key]);
      say(this.#legend.children[i].lastElementChild!, bytes(m.held[key]));
      (this.#legend.children[i] as HTMLElement).hidden = m.held[key] === 0;
    });
    const nodes: HTMLElement[] = [];
    let active: HTMLElement | null = null;
    const stay = new Map<string, { bar: Bar; root: HTMLElement }>();
    for (const bar of [...weightsBar(t), ...families(t, m.bars, this.#open, now.lit.storages)]) {
      if ("members" in bar) {
        nodes.push(this.#family(bar));
        continue;
      }
      const lit = now.lit.storages.has(bar.id);
      const key = JSON.stringify([bar, full, lit]);
      const row = this.#rows.get(key) ?? { bar, root: barRow(bar, full, lit) };
      if (bar.use === "written" && bar.state !== "freed") active = row.root;
      nodes.push(row.root);
      stay.set(key, row);
    }
    this.#rows = stay;
    if (m.small.count || this.#unfold) {
      say(this.#small, this.#unfold ? "▾ fold small buffers" : `▸ ${count(m.small.count)} small buffers, ${bytes(m.small.bytes)}`);
      nodes.push(this.#smallItem);
    }
    if (m.more.count) {
      say(this.#more, `${count(m.more.count)} more, ${bytes(m.more.bytes)}`);
      nodes.push(this.#more);
    }
    place(this.#list, nodes);
    // a button inside is a tab stop already
    this.#list.tabIndex = nodes.some((node) => node.firstElementChild instanceof HTMLButtonElement) ? -1 : 0;
    // as wide as the longest id, so that no bar moves while stepping
    const width = Math.max(3, ...m.bars.map((b) => idOf(b).length));
    set(this.#list, "--kv-digits", String(Math.max(width, 5)));
    if (active) store.reveal(this.#list, active);
  }

  #family({ role, members, bytes: sum, open }: Family): HTMLElement {
    const row = ensure(this.#families, role, () => {
      const made = el("button", { class: "kv-fold", "data-kv": "cache-family", "data-id": role });
      el("div", { role: "listitem" }, made);
      return made;
    });
    const notes = new Set(members.map((b) => b.note));
    mark(row, "aria-expanded", String(open));
    say(row, `${open ? "▾" : "▸"} ${role} × ${count(members.length)} layers${notes.size === 1 && members[0].note ? `, ${members[0].note} rows each` : ""}, ${bytes(sum)}`);
    return row.parentElement!;
  }
}

function barRow(b: Bar, full: number, lit: boolean): HTMLElement {
  const part = (kind: string, from: number, length: number) => el("i", { "data-part": kind, style: `left: ${from * 100}%; width: ${length * 100}%` });
  const inner = b.valid ? [part(b.again ? "again" : "valid", 0, b.valid[0]), part("fresh", b.valid[0], b.valid[1] - b.valid[0])] : b.parts.slice(0, 8).map(([from, length]) => part("view", from, length));
  const cut = b.capacity > full; // such a bar says so instead of shrinking all others
  const fill = el("i.kv-fill", { "data-cut": cut ? 1 : null, style: `width: ${cut ? "100%" : `max(3px, ${((b.capacity / full) * 100).toFixed(2)}%)`}` }, ...inner);
  const text = el("span.kv-text", {}, el("span.kv-label", {}, name(b.label, "")), el("span.kv-note", {}, `${SIGN[b.state]} ${b.note}`.trim()));
  return el("div.kv-mem-row", { role: "listitem", "data-kv": "storage-bar", "data-id": b.id === WEIGHTS ? "W" : b.id, "data-origin": b.cache >= 0 ? "cache" : b.origin, "data-state": b.state || null, "data-use": b.use || null, "data-lit": lit ? 1 : null },
    el("span.kv-id", {}, idOf(b)), el("span.kv-track", {}, fill), text, el("span.kv-num", {}, bytes(b.capacity)));
}

const WAIT = 250; // ms: who only passes by asks for nothing
const FIGURES = ["peak", "allocated", "written", "copied"] as const;

class TotalsPane implements View {
  #timer: Delay;
  #run = -1;
  #about = el("div.kv-about");
  #rows: Rows;
  #sorted: Sorted | null = null;
  #order: number[] = []; // runs by place

  constructor(host: HTMLElement, private store: Store, private ask: Ask, private signal: AbortSignal) {
    this.#rows = new Rows("Runs", "kv-runlist", ["run", "token", "steps#", "peak#", "allocated#", "written#", "copied#"], store, (run) => this.#row(run), signal);
    const show = sortHeads(this.#rows.table, (now) => {
      this.#sorted = now;
      show(now);
      this.#rows.clear();
      this.#show(this.#run, false);
    }, signal);
    host.append(this.#about, this.#rows.root);
    onHit(this.#rows.root, "run-row", (row) => store.toRun(Number(row.dataset.id)), signal);
    this.#timer = new Delay(signal);
  }

  update(change: Change): void {
    if (!change.cursor && !change.payload) return;
    const { bare: run, t: { p } } = this.store;
    if (change.payload) this.#rows.clear();
    if (run === this.#run && !change.payload) return;
    this.#run = run;
    this.#timer.stop();
    if (run < 0) return;
    const recorded = p.runs[run].steps > 0;
    const able = recorded && this.ask.able();
    if (able) this.#timer.start(WAIT, () => {
      if (this.store.bare === run && this.ask({ do: "detail", run })) this.store.tell("asked the kernel for the steps of this run …");
    });
    this.#about.replaceChildren(...this.#tell(run, recorded, able));
    this.#show(run);
  }

  #show(run: number, follow = true): void {
    const { runs } = this.store.t.p;
    const key = (head: string, at: number) => (head === "run" ? at : head === "token" ? runs[at].text.trim() : runs[at][head as "steps"]);
    this.#order = this.#sorted ? sorted(runs.length, this.#sorted, key) : runs.map((_, at) => at);
    const at = this.#order.indexOf(run);
    this.#rows.show(runs.length, at, follow ? at : null);
  }

  #row(place: number): HTMLElement {
    const { p } = this.store.t;
    const run = this.#order[place];
    const r = p.runs[run];
    const here = !bare(p, run);
    return el("tr", { "data-kv": "run-row", "data-id": run }, td(r.label), td(visible(r.text).trim(), "kv-soft"),
      td(here ? count(r.steps) : r.steps ? "not here" : "not recorded", here ? NUMBER : "kv-num kv-soft"), ...FIGURES.map((key) => td(bytes(r[key]), NUMBER, { "data-zero": r[key] ? null : 1 })));
  }

  #tell(run: number, recorded: boolean, able: boolean): Node[] {
    const { p } = this.store.t;
    const r = p.runs[run];
    const before = p.runs[run - 1];
    const why = !recorded ? "Its steps were not recorded."
      : able ? `Its ${plural(r.steps, "step")} are in the kernel; they load when you select this run.`
      : `Its ${plural(r.steps, "step")} are not in this page; showing them ${NEEDS_KERNEL.replace("recorded: ", "")}.`;
    const here = p.runs.map((_, n) => n).filter((n) => !bare(p, n));
    const near = [...here.filter((n) => n < run).slice(-1), ...here.filter((n) => n > run).slice(0, 1)];
    return [
      el("h3", {}, "Totals only"),
      el("p.kv-big", {}, r.label, el("span.kv-name", {}, visible(r.text).trim())),
      el("p.kv-soft", { "data-kv": "totals-why" }, why, ...(recorded ? [] : [" To keep them, decode again with ", el("code", {}, `detail=[${run}]`), "."])),
      el("dl.kv-facts", {}, ...FIGURES.map((key) => el("div", { "data-kv": "total", "data-id": key }, el("dt", {}, key), el("dd", {}, bytes(r[key])),
        el("dd.kv-soft", {}, before && r[key] !== before[key] ? signed(r[key] - before[key]) : "")))),
      el("p.kv-soft", {}, before ? "With a sign: more or less than in the run before." : ""),
      el("p", {}, ...(near.length ? [el("span.kv-soft", {}, "Steps are here of "), ...near.map((n) => button(p.runs[n].label, "Go to this run", "near-run", () => this.store.toRun(n), this.signal))] : [])),
    ];
  }
}

const panes: Record<string, MakePane> = {
  buffers: (host, { store }, signal) => new MemoryPane(host, store, signal),
  totals: (host, { store, ask }, signal) => new TotalsPane(host, store, ask, signal),
};
export default panes;
