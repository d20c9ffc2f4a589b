// One cache at a time: rows after the present run, rows over all runs, meters, and what is wrong.
import { atStep, axisOf, beside, box, cellAt, counts, lookOf, MARGIN, meter, most, moves, newest, noteAt, ownerBox, ownerCounts, progress, storesOf, tokenAt, unpackCaches, type Axis, type CacheData } from "./cachedata.js";
import { Inks, sized } from "./canvas.js";
import { DRY, NEEDS_KERNEL, type Ask } from "./actions.js";
import { button, Delay, el, mark, name, on, onHit, onResize, say, toggle } from "./dom.js";
import { count, plural, visible } from "./format.js";
import { HeatMap, mean, Occupancy, type Place } from "./heat.js";
import { numberOf } from "./replay.js";
import { ALL, type Change, type Store } from "./store.js";
import { weightsOf } from "./valuedata.js";
import { word } from "./popover.js";
import type { MakePane } from "./lazypane.js";

/** The kernel's answer to `attention`: weights by query head and row. */
export interface Weights { id: string; error?: string; attention?: { heads: number[][] } }

const OCCUPANCY = [56, 420]; // px of the runs, at least and at most: they get what the pane has left
const SETTLE = 120; // ms before attention is asked for
const BELOW = 26; // px for the axis under the runs, and the pane's own edge

export class View {
  #d: CacheData;
  #list = el("div.kv-cache-list", { role: "listbox", "aria-label": "Caches" });
  #choice = el("select", { "aria-label": "Cache", "data-kv": "cache-choice" });
  #entry = el("select", { "aria-label": "Batch entry", "data-kv": "cache-entry" });
  #title = el("h3");
  #stored: HTMLButtonElement;
  #about = el("span.kv-hint");
  #close: HTMLButtonElement;
  #weigh: HTMLButtonElement;
  #large: HTMLButtonElement;
  #query = el("input", { type: "number", min: 0, step: 1, "aria-label": "Query of this run", title: "Which query of this run: 0 is its first token, -1 its last", value: -1, "data-kv": "weights-query" });
  #tip = el("p.kv-cache-tip", { "aria-live": "polite", "data-kv": "cache-tip" });
  #legend = el("ul.kv-cache-legend");
  #middle = el("div.kv-cache-main", { tabindex: -1 });
  #side = el("div.kv-cache-side");
  #heat: HeatMap;
  #occupancy: Occupancy;
  #none = el("p.kv-none");
  #at: Place | null = null; // chosen, or moved to by keys
  #focused = false;
  #hover: Place | null = null;
  #past: [number, number] | null = null; // run and row under the pointer
  #weights = new Map<string, Weights["attention"] | string>();
  #turned = false; // a person has switched the weights on or off
  #timer: Delay;
  #inks: Inks | null = null;
  #chosen = 0;
  #between: { of: CacheData; key: string; d: CacheData } | null = null;
  #room = 0; // px for the runs, 0 = to be measured

  constructor(private host: HTMLElement, private kit: Store, private ask: Ask, raw: ArrayBuffer, signal: AbortSignal) {
    this.#d = unpackCaches(raw);
    this.#heat = new HeatMap((at, chosen) => {
      this.#hover = at;
      if (chosen && at) this.#at = at;
      this.#draw();
    }, (rows, heads) => this.#move(rows, heads), (on) => {
      this.#focused = on;
      this.#draw();
    }, signal);
    this.#occupancy = new Occupancy((run, drag) => kit.toRun(run, "person", drag), (run, row) => {
      this.#past = row < 0 ? null : [run, row];
      this.#tell();
    }, signal);
    this.#stored = button("", "Go to the op that writes the row of this run", "cache-step", () => {
      const { step } = progress(this.#d, this.#chosen, this.#run, this.#step);
      if (step >= 0) kit.go(step);
    }, signal);
    this.#stored.className = "kv-link";
    this.#close = toggle("Close-up", "Show 64 rows around the newest, or around the focus", "close-up", this.#toggled, signal);
    this.#weigh = toggle("Attention", "Show the attention weights of a query of this run, if the model computes them as a value", "attention", () => {
      this.#turned = true;
      this.#toggled();
    }, signal);
    this.#large = toggle("Large", "Show the caches in the space of graph and buffers", "cache-large", this.#toggled, signal);
    on(this.#query, "change", this.#toggled, signal);
    on(this.#choice, "change", () => kit.select({ kind: "cache", id: Number(this.#choice.value) }), signal);
    on(this.#entry, "change", this.#toggled, signal);
    onHit(this.#list, "cache-row", (row) => kit.select({ kind: "cache", id: Number(row.dataset.id) }), signal);
    const head = el("header.kv-tools", {}, this.#choice, this.#title, this.#about, this.#stored, el("span.kv-group", {}, this.#entry, this.#query, this.#weigh, this.#close, this.#large));
    this.#middle.append(head, this.#heat.root, this.#tip, this.#legend, this.#occupancy.root, this.#none);
    onHit(this.#side, "cache-run", (link) => kit.toRun(Number(link.dataset.run)), signal);
    host.append(el("div.kv-cacheview", { "data-kv": "cache-view" }, this.#list, this.#middle, this.#side));
    onResize(this.#middle, () => {
      this.#room = 0;
      this.#draw();
    }, signal);
    this.#timer = new Delay(signal);
    this.#fill();
  }

  take(raw: ArrayBuffer): void {
    this.#d = unpackCaches(raw);
    this.#fill();
    this.#all();
  }

  hear(answer: Weights): void {
    const [, cache, run, query] = answer.id.split(":");
    this.#weights.set(`${cache}:${run}:${query}`, answer.attention ?? answer.error ?? "");
    this.#draw();
  }

  update(change: Change): void {
    if (change.look) this.#inks = null;
    if (change.payload) this.#fill();
    if (change.cursor || change.payload || change.selection || change.look || change.report) this.#all();
  }

  // -- what is chosen ---------------------------------------------------------------------------------------------

  /** The last finished run up to the cursor: caches of an unfinished run are not known. */
  get #run(): number { return Math.max(0, Math.min(this.kit.now.run, this.#d.runs.length - 1)); }

  /** The number of the step after which caches are shown; the end of a run without steps. */
  get #step(): number { return this.kit.bare >= 0 || this.kit.now.run > this.#run ? Infinity : numberOf(this.kit.t, this.kit.cursor); }

  get #present(): CacheData {
    const waits = storesOf(this.#d, this.#chosen, this.#run).filter((one) => one.step > this.#step).length;
    const key = `${this.#chosen} ${this.#stream} ${this.#run} ${waits}`;
    if (this.#between?.of !== this.#d || this.#between.key !== key) this.#between = { of: this.#d, key, d: atStep(this.#d, this.#chosen, this.#stream, this.#run, this.#step) };
    return this.#between.d;
  }

  get #stream(): number {
    const streams = this.#d.caches[this.#chosen]?.streams ?? [];
    return streams[Math.min(Number(this.#entry.value) || 0, streams.length - 1)] ?? -1;
  }

  /** The shown query of the run; -1: its last. */
  get #number(): number { return this.#query.hidden ? -1 : Number(this.#query.value || -1); }

  /** The key of the shown query in the map of answers. */
  get #asked(): string { return `${this.#chosen}:${this.#run}:${this.#number}`; }

  /** The weights of the shown query, recorded or from the kernel; a text says why there are none. */
  get #weighed(): Weights["attention"] | string | undefined {
    const heads = this.#number === -1 ? weightsOf(this.kit.t.values, this.#chosen, this.#run) : null;
    return heads ? { heads } : this.#weights.get(this.#asked);
  }

  get #weighs(): boolean { return this.#weigh.ariaPressed === "true"; }

  /** The shown weights by cache head: the mean over the query heads that share one; null: none are shown. */
  get #byHead(): number[][] | null {
    const weighed = this.#weighs ? this.#weighed : null;
    if (typeof weighed !== "object" || !weighed) return null;
    const { heads } = this.#d.caches[this.#chosen];
    const share = Math.max(1, Math.round(weighed.heads.length / heads));
    return share === 1 ? weighed.heads : Array.from({ length: heads }, (_, head) => mean(weighed.heads.slice(head * share, (head + 1) * share)));
  }

  /** The row of the querying token: the last one written by this run, or the chosen query. */
  get #asks(): number {
    const first = newest(this.#d, this.#stream, this.#run);
    const queries = Math.max(1, meter(this.#d, "rows_written", this.#chosen, this.#run));
    return first + (this.#number < 0 ? queries : 0) + this.#number;
  }

  #words({ first, rows }: Axis): string[] {
    const { story } = this.kit.t.p;
    if (!story.length || Number(this.#entry.value || 0) !== 0 || rows > 256) return [];
    const d = this.#present;
    return Array.from({ length: rows }, (_, i) => {
      const token = tokenAt(d, this.#stream, this.#run, first + i);
      return token ? visible(story[token.position]?.text ?? "") : "";
    });
  }

  get #place(): Place | null { return this.#hover ?? (this.#focused ? this.#at : null); }

  #toggled = (): void => {
    this.host.closest(".kv-app")?.toggleAttribute("data-large", this.#large.ariaPressed === "true");
    this.#room = 0;
    this.#all();
  };

  #move(rows: number, heads: number): void {
    const last = most(this.#d, this.#chosen) - 1;
    const { row, head } = this.#at ?? { row: newest(this.#d, this.#stream, this.#run), head: 0 };
    const clamp = (n: number, top: number) => Math.max(0, Math.min(n, top));
    this.#at = { row: clamp(row + rows, last), head: clamp(head + heads, (this.#d.caches[this.#chosen]?.heads ?? 1) - 1) };
    this.#draw();
  }

  // -- what is shown ----------------------------------------------------------------------------------------------

  #fill(): void {
    const { caches } = this.kit.t.p;
    // a gap between layers
    const layer = (i: number) => caches[i]?.name.replace(/\.?[^.]*$/, "");
    this.#room = 0;
    this.#choice.replaceChildren(...caches.map((c, i) => el("option", { value: i }, c.name)));
    this.#list.replaceChildren(...caches.map((c, i) => el("button", { role: "option", "data-kv": "cache-row", "data-id": i, title: `${c.input} → ${c.output}`, "data-first": i && layer(i) !== layer(i - 1) ? 1 : null },
      el("span", {}, name(c.name, "")), el("i.kv-meter"), el("span.kv-num"))));
  }

  #all(): void {
    const { selection, t: { p } } = this.kit;
    if (selection?.kind === "cache" && this.#d.caches[selection.id] && selection.id !== this.#chosen) {
      this.#chosen = selection.id;
      this.#room = 0;
      this.kit.reveal(this.#list, this.#list.children[this.#chosen]);
    }
    if (selection?.kind === "cache" && selection.id === this.kit.weigh) {
      this.kit.weigh = -1;
      mark(this.#weigh, "aria-pressed", "true");
    }
    // recorded weights are shown unless the reader switched them off
    if (!this.#turned && this.kit.t.values?.attention.size) mark(this.#weigh, "aria-pressed", "true");
    const c = p.caches[this.#chosen];
    const entries = this.#d.caches[this.#chosen]?.streams.length ?? 0;
    if (this.#entry.childElementCount !== entries) this.#entry.replaceChildren(...Array.from({ length: entries }, (_, i) => el("option", { value: i }, `entry ${i}`)));
    this.#entry.hidden = entries < 2;
    this.#choice.value = String(this.#chosen);
    say(this.#title, c?.name ?? "");
    const stored = progress(this.#d, this.#chosen, this.#run, this.#step);
    const label = this.#d.runs[this.#run] ?? "";
    const when = stored.todo ? `in ${label}: ${plural(stored.todo, "row")} not written yet, next by`
      : stored.step < 0 ? `after ${label}` : `in ${label}: written by ${stored.now ? "this step" : ""}`;
    say(this.#about, c ? `${c.protocol} · ${when}` : "", c ? `${c.input} → ${c.output}${c.axis === null ? "" : `, rows on axis ${c.axis}`}` : "");
    this.#stored.hidden = stored.step < 0 || (stored.now && !stored.todo);
    say(this.#stored, `step ${count(stored.step)}`);
    this.#rows();
    this.#side.replaceChildren(...beside(this.#d, this.#chosen, this.#run, c?.protocol ?? ""));
    this.#want();
    this.#draw();
  }

  /** The list of caches after the step: rows stored, rows to come, and rows written by this step. */
  #rows(): void {
    const d = this.#d;
    const run = this.#run;
    const step = this.#step;
    for (const [i, row] of [...this.#list.children].entries()) {
      const stored = progress(d, i, run, step);
      // until its first row is stored, a cache is as the previous run left it
      const at = stored.todo && !stored.done ? run - 1 : run;
      const [capacity, valid, written] = at < 0 ? [0, 0, 0] : [meter(d, "capacity", i, at), Math.max(0, meter(d, "valid", i, at) - (stored.done ? stored.todo : 0)), at < run ? 0 : stored.todo ? stored.done : meter(d, "rows_written", i, run)];
      mark(row, "data-stored", stored.step < 0 ? null : stored.todo ? (stored.done ? "part" : "no") : "yes");
      mark(row, "data-now", stored.now ? 1 : null);
      row.setAttribute("title", `${count(valid)} of ${count(capacity)} reserved rows hold a token; ${this.kit.t.p.caches[i].input} → ${this.kit.t.p.caches[i].output}${stored.step < 0 ? "" : stored.todo ? `: ${plural(stored.todo, "row")} to come, step ${count(stored.step)} writes next` : `: ${plural(stored.done, "row")} of this run written, by step ${count(stored.step)}`}`);
      mark(row, "aria-selected", String(i === this.#chosen));
      mark(row, "data-warned", d.warnings.some((w) => w.cache === i) ? 1 : null);
      say(row.lastElementChild!, `${count(valid)} / ${count(capacity)}`);
      const bar = row.children[1] as HTMLElement;
      bar.style.setProperty("--kv-before", String(capacity ? Math.max(0, valid - written) / capacity : 0));
      bar.style.setProperty("--kv-valid", String(capacity ? valid / capacity : 0));
    }
  }

  #draw(): void {
    const d = this.#present;
    const width = Math.floor(this.#middle.clientWidth) - 24;
    if (width < 60) return; // its tab is hidden
    const rows = most(d, this.#chosen);
    const there = rows > 0 && this.#stream >= 0 && this.kit.t.p.caches[this.#chosen]?.axis !== null;
    for (const part of [this.#heat.root, this.#occupancy.root, this.#legend, this.#tip]) part.hidden = !there;
    for (const tool of [this.#close, this.#weigh]) tool.hidden = !there;
    this.#none.hidden = there;
    if (!there) return say(this.#none, this.kit.t.p.caches.length ? "A state has no rows: every run overwrites all of it. Its meters are beside it." : "This model keeps no cache.");
    const run = this.#run;
    const stream = this.#stream;
    this.#inks ??= new Inks(this.host);
    const near = this.#close.ariaPressed === "true";
    // only a growing cache moves its rows
    const growing = this.kit.t.p.caches[this.#chosen]?.protocol === "growing";
    const moved = growing ? moves(this.#d, this.#chosen) : [];
    const axis = axisOf(rows, width, near ? this.#at?.row ?? newest(d, stream, run) : null, moved.length ? MARGIN : 0);
    const { heads } = d.caches[this.#chosen];
    const weights = this.#byHead;
    this.#heat.draw({ d, stream, run, heads, axis, weights, at: this.#place, words: this.#words(axis), now: weights ? this.#asks : -1 }, this.#inks);
    const each = counts(d, stream, run);
    this.#legends(each);
    this.#room ||= this.#left();
    this.#occupancy.draw({ d, stream, run, axis, room: this.#room, moved }, this.#inks);
    mark(this.#heat.root, "aria-label", `Rows of ${this.kit.t.p.caches[this.#chosen].name} after ${d.runs[run]}: ${d.states.map((s, i) => `${count(each[i])} ${s}`).join(", ")}`);
    this.#tell();
  }

  /** Height left for the runs; measured when the pane changes, not while pointing. */
  #left(): number {
    const { top } = this.#middle.getBoundingClientRect();
    const above = this.#occupancy.root.getBoundingClientRect().top - top + this.#middle.scrollTop;
    return Math.max(OCCUPANCY[0], Math.min(OCCUPANCY[1], Math.floor(this.#middle.clientHeight - above) - BELOW));
  }

  /** The legend of states; if sequences own rows, of sequences and of states that disagree. */
  #legends(each: number[]): void {
    const { owners, states } = this.#present;
    const inks = this.#inks!;
    const item = (kv: string, id: string | number, text: string, about: string, rows: number, paint: (context: CanvasRenderingContext2D) => void) => {
      const swatch = el("canvas", { style: "width: 24px" });
      const context = sized(swatch, 24, 12, inks.ratio);
      if (context) paint(context);
      return el("li", { "data-kv": kv, "data-id": id, title: about, "data-zero": rows ? null : 1 }, swatch, el("span", {}, text), el("b", {}, count(rows)));
    };
    const about = el("li", {}, word("rows"), ":");
    if (!owners) return this.#legend.replaceChildren(about, ...states.map((state, i) => item("cache-state", state, state, lookOf(state).about, each[i], (context) => box(context, inks, state, 0, 0, 24, 12))));
    const rows = ownerCounts(this.#d, this.#stream, this.#run);
    const all = [...new Set(owners.table.flatMap(([own]) => own))].sort((a, b) => a - b);
    const wrong = owners.states.filter(({ name }) => owners.table.some(([, state]) => state === name));
    const owned = (own: number[], state: string) => (context: CanvasRenderingContext2D) => ownerBox(context, inks, this.#d, own, state, 0, 0, 24, 12);
    this.#legend.replaceChildren(about,
      ...all.map((one) => item("cache-sequence", one, `sequence ${one}`, `rows that hold tokens of sequence ${one}; rows of several have a band for each`, rows.sequences.get(one) ?? 0, owned([one], ""))),
      ...wrong.map(({ name, about }) => item("cache-cell", name, name, about, rows.states.get(name) ?? 0, owned([], name))));
  }

  /** One line on the cell under the pointer or the focus. */
  #tell(): void {
    const [run, row] = this.#past ?? [this.#run, this.#place?.row ?? -1];
    const place = this.#past ? null : this.#place;
    if (row < 0) return say(this.#tip, this.#hint());
    const d = this.#present;
    const cell = cellAt(d, this.#stream, run, row);
    const where = `position ${count(row)}${place && d.caches[this.#chosen].heads > 1 ? `, head ${place.head}` : ""}`;
    if (cell < 0) return say(this.#tip, `${where}: no room yet${this.#past ? ` after ${d.runs[run]}` : ""}`);
    const state = d.states[d.state[cell]];
    const token = tokenAt(d, this.#stream, run, row);
    const said = token && Number(this.#entry.value || 0) === 0 ? this.kit.t.p.story[token.position] : undefined;
    const weights = place && this.#byHead;
    // The writer follows from the order of tokens, which holds for a cache of one text; a producer's note is exact.
    const note = noteAt(d, this.#stream, run, row);
    const writer = note ? visible(note) : token && !d.fresh[cell] ? `written in ${d.runs[token.run] ?? `run ${token.run}`}` : "";
    say(this.#tip, [
      `${where}${this.#past ? ` after ${d.runs[run]}` : ""}: ${lookOf(state).about}`,
      d.fresh[cell] && state !== "written" ? "written by this run" : "",
      writer,
      token ? `token ${said ? `“${visible(said.text)}” ` : ""}at ${count(token.position)}` : "",
      weights ? `weight ${(weights[place.head]?.[row] ?? 0).toPrecision(2)}` : "",
    ].filter(Boolean).join(" · "));
  }

  #hint(): string {
    if (!this.#weighs) return "Point at a row, or move over rows with the arrow keys.";
    const weighed = this.#weighed;
    if (typeof weighed === "string") return weighed;
    if (this.kit.t.p.policy.dry) return `Weights were ${DRY}.`;
    if (weighed) return `Arcs and bars: the attention weights of ${this.#query.hidden ? "this run's query" : `query ${this.#query.value} of this run`}; above, the mean of ${plural(weighed.heads.length, "head")}.`;
    return this.ask.able() ? "asking the kernel for the weights …" : "Weights are not in the recording; computing them needs a running kernel.";
  }

  /** Ask for the weights of this run's query, once the cursor rests. */
  #want(): void {
    const on = this.#weighs;
    const weighed = this.#weighed;
    const queries = meter(this.#d, "rows_written", this.#chosen, this.#run);
    this.#query.hidden = !on || queries < 2;
    this.#query.max = String(queries - 1);
    this.#query.min = String(-queries);
    this.#timer.stop();
    if (!on || weighed !== undefined || !this.ask.able() || this.kit.t.p.policy.dry) return;
    const asked = this.#asked;
    const [cache, run, query] = asked.split(":").map(Number);
    this.#timer.start(SETTLE, () => this.ask({ do: "attention", id: `attention:${asked}`, cache, run, query }));
  }
}

export default ((host, { store, ask, caches }, signal) => {
  const note = el("p.kv-none");
  let view: View | null = null;
  let turn = 0;
  /** Why there is nothing to show. */
  const tell = () => {
    const known = store.p.caches.length;
    mark(note, "data-kv", known ? "cache-note" : "no-cache");
    say(note, known ? `Rows of caches are not ${NEEDS_KERNEL}. Run this cell to have them.` : store.report?.findings.find(({ kind }) => kind === "cache")?.title ?? "This model keeps no cache.");
  };
  const load = async () => {
    const mine = ++turn;
    const raw = await caches?.data();
    if (mine !== turn || signal.aborted) return; // newer data are on their way
    if (!raw) return tell();
    if (view) return view.take(raw);
    view = new View(host, store, ask, raw, signal);
    note.remove();
    view.update(ALL);
  };
  host.append(note);
  caches?.changed(() => void load());
  void load();
  return {
    hear: (answer) => view?.hear(answer as Weights),
    update: (change) => {
      if (view) view.update(change);
      else if (change.report || change.payload) tell();
    },
  };
}) satisfies MakePane;
