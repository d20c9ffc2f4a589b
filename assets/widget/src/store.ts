// The state of all panes: trace, cursor, selection, breakpoints, and a note for the status line.
// Panes are notified once a frame of what changed. Changes are by a person or by the model.
import { clamp, inRun, type Breakpoint } from "./debug.js";
import { reveal } from "./dom.js";
import { bare, buildIndex, findStep, frameAt, frontier, frontierFrame, nodeStates, numberOf, runAt, stepsOf, type StateWords, type Trace } from "./replay.js";
import type { Scale, Versus } from "./pair.js";
import { stepsOfFinding } from "./evidence.js";
import { executed, light, same, type Selection } from "./select.js";
import type { ValueData } from "./valuedata.js";
import type { Payload, Report } from "./wire.js";

/** What is framed: the places of a finding's steps, the widest first, and which of them is shown. */
export interface Evidence { finding: number; at: number; steps: Int32Array }
/** What is shown besides step and selection: the finding and which of its steps, and the open table of the drawer. */
export interface Place { finding?: [finding: number, at: number]; list?: string }
/** `report`: the findings, or summaries of values; `look`: theme, size or style. */
const CHANGES = ["payload", "cursor", "selection", "breakpoints", "note", "look", "report", "hits", "evidence"] as const;
export type Change = Record<(typeof CHANGES)[number], boolean>;
/** `slow` panes may skip frames while the cursor is dragged. */
export interface View { readonly slow?: boolean; update(change: Change): void }
type Source = "person" | "model";

const LAG = [150, 400]; // ms, least and most
const every = (on: boolean) => Object.fromEntries(CHANGES.map((name) => [name, on])) as Change;
export const ALL = every(true);

function merge(into: Change, what: Partial<Change>): Change {
  for (const key of CHANGES) into[key] ||= !!what[key];
  return into;
}

/** The first of the recorded steps of some ops; -1 = none. */
export const firstStep = (choices: { step: number }[]) => choices.reduce((least, { step }) => (step >= 0 && (least < 0 || step < least) ? step : least), -1);

/** Derived from trace, cursor and selection, once per change. `run`: also a bare one. */
function present({ t, cursor, run, selection }: { t: Trace; cursor: number; run: number; selection: Selection | null }) {
  const frame = frameAt(t, cursor);
  const known = frame < t.p.frames;
  const choices = frontier(t, cursor);
  return {
    run, frame, choices,
    graph: t.p.frame.graph[frame] ?? 0,
    states: known ? nodeStates(t, frame, cursor) : [], // by node of that graph
    steps: known ? stepsOf(t, frame) : new Int32Array(), // by node of that graph: the step that ran it in this frame, maybe later; -1 = not recorded
    next: frontierFrame(t, cursor), // frame of the frontier, -1 = all has run
    ran: firstStep(choices), // -1 = none has run
    lit: light(t, selection, frame, cursor),
  };
}
/** `hint`: over the frontier. */
export type Now = ReturnType<typeof present> & { captions?: string[]; words?: StateWords; hint?: string };

export class Store {
  t: Trace;
  cursor = -1; // place of a step; before a bare run while that is shown
  bare = -1; // the run that is shown without its steps
  selection: Selection | null = null;
  pair = -1; // a hidden pair that is looked at, until something else is chosen
  weigh = -1; // the cache of which somebody asked to see what attention weighed, until it is shown
  breakpoints: Breakpoint[] = [];
  note = "";
  report: Report | null = null; // the findings, where they are here; of a run that goes on maybe older ones
  evidence: Evidence | null = null; // the finding that is looked at
  left: Evidence | null = null; // the one that was left by stepping freely
  list = ""; // the open table of the drawer
  query = ""; // what is asked for; see hits.ts
  found: Int32Array | null = null; // places of the steps that it finds, in its order; null: nothing is asked
  hits: Int32Array | null = null; // the same, ascending
  wrong = ""; // what is wrong with the query
  follow = true;
  window: [number, number] | null = null; // steps that are looked at more closely, as places; the last is not included
  scale: Scale | null = null; // of the timeline, where another recording shares it
  versus: Versus | null = null; // while two lanes are compared
  now: Now;
  /** Called at once, not per frame, when a person changed something that other pages and Python need. */
  onPerson: (what: "cursor" | "selection" | "breakpoints" | "place", drag: boolean) => void = () => {};

  #framing = false; // a move belongs to what is framed
  #anchor = -1; // the step that was shown last: it says which op is meant while bare runs are passed
  #wanted: [number, Source] | null = null; // a step that is not here yet, by its number, and who wants to see it
  #views: View[] = [];
  #wishes: (() => (() => void)[])[] = [];
  #slow: Change | null = null; // what the slow panes have not heard yet
  #slowTimer: ReturnType<typeof setTimeout> | undefined;
  #slowAt = -LAG[1];
  #lag = LAG[0];
  #updating = false;
  #drag = false;
  #pending: Change | null = null;

  constructor(
    p: Payload, cursor = -1, private later: (run: () => void) => void = (run) => requestAnimationFrame(run),
    private derive: (store: Store) => Now = present,
  ) {
    this.t = { p, x: buildIndex(p) };
    this.report = p.report ?? null;
    const { run, step } = findStep(this.t, cursor);
    this.cursor = this.#anchor = clamp(this.t, step);
    if (step < 0 && run >= 0) [this.bare, this.cursor] = [run, p.runs[run].first - 1];
    this.now = derive(this);
  }

  add(view: View): void {
    this.#views.push(view);
    view.update(ALL);
  }

  destroy(): void {
    clearTimeout(this.#slowTimer);
    this.#views = [];
  }

  replace(p: Payload): void {
    const { bare: run, number: at, report, evidence } = this;
    const old = report && numberOf(this.t, report.steps - 1);
    const anchor = numberOf(this.t, this.#anchor);
    const wanted = this.#wanted;
    this.t = { p, x: buildIndex(p), values: this.t.values };
    // places of older findings hold while the run only goes on
    this.report = p.report ?? (p.live && report && numberOf(this.t, report.steps - 1) === old ? report : null);
    [this.left, this.evidence] = [evidence ?? this.left, null];
    this.found = this.hits = null;
    if (this.window && this.window[1] > p.steps) this.window = null;
    this.bare = this.pair = -1;
    this.cursor = Math.max(-1, findStep(this.t, anchor).step);
    this.#changed({ payload: true, cursor: true, selection: true, report: true, hits: true, evidence: true });
    // the requested steps may have come
    if (wanted) this.go(...wanted);
    else if (run >= 0) this.toRun(run, "person");
    else this.go(at, "model");
  }

  /** Summaries of values have come, or changed. */
  know(values: ValueData | null): void {
    this.t.values = values;
    this.#changed({ report: true });
  }

  /** Go to a step by its place; `drag`: slow panes may skip it. */
  seek(cursor: number, source: Source = "person", drag = false): void { this.#move(clamp(this.t, cursor), -1, source, drag); }

  /** Go to a step by its number, or to its run if it is not loaded. */
  go(number: number, source: Source = "person", drag = false): void {
    const { run, step } = findStep(this.t, Math.round(number));
    if (step >= 0 || run < 0) return this.seek(step, source, drag);
    this.visit(run, source, drag);
    this.#wanted = [number, source];
  }

  /** Go to the same op in a run, or to the run if its steps are not loaded. */
  toRun(run: number, source: Source = "person", drag = false): void {
    if (bare(this.t.p, run)) return this.visit(run, source, drag);
    const to = inRun(this.t, this.#anchor, run);
    if (to !== null) this.seek(to, source, drag);
  }

  /** Show a run without steps. */
  visit(run: number, source: Source = "person", drag = false): void {
    const anchor = this.#anchor;
    this.#move(this.t.p.runs[run].first - 1, run, source, drag);
    this.#anchor = anchor;
  }

  #move(cursor: number, run: number, source: Source, drag: boolean): void {
    this.#wanted = null;
    if (cursor === this.cursor && run === this.bare) return;
    if (!this.#framing) this.unframe(source);
    this.#drag = drag;
    this.cursor = this.#anchor = cursor;
    this.bare = run;
    this.#changed({ cursor: true, note: this.note !== "" });
    this.note = "";
    if (source === "person") this.onPerson("cursor", drag);
  }

  select(selection: Selection | null, source: Source = "person"): void {
    if (same(selection, this.selection) && this.pair < 0) return;
    if (!this.#framing && selection?.kind === "node") this.unframe(source);
    this.selection = selection;
    this.pair = -1;
    this.#changed({ selection: true });
    if (source === "person") this.onPerson("selection", false);
  }

  /** Show a finding at one of its steps, by its place among them, and select its op. */
  frame(finding: number, at = 0): void {
    const found = this.report?.findings[finding];
    if (!found) return;
    const steps = stepsOfFinding(this.t, found);
    this.evidence = { finding, at: Math.max(0, Math.min(at, steps.length - 1)), steps };
    this.left = null;
    this.#framing = true;
    const step = steps[this.evidence.at];
    const about = found.selection;
    if (step !== undefined) this.seek(step);
    else if (found.step !== null) this.go(found.step);
    else if (found.run !== undefined) this.toRun(found.run);
    this.select(about && about.kind !== "node" ? about : step === undefined ? about ?? null : executed(this.t, step));
    this.#framing = false;
    this.#changed({ evidence: true });
    this.onPerson("place", false);
  }

  get place(): Place {
    const { evidence, list } = this;
    return { ...(evidence && { finding: [evidence.finding, evidence.at] }), ...(list && { list }) };
  }

  openList(list: string): void {
    if (list === this.list) return;
    this.list = list;
    this.#changed({ look: true });
    this.onPerson("place", false);
  }

  /**
   * Frame the first finding that asks for something; of a page that opens at a place, the one that the place belongs to.
   * `wanted`: a finding and which of its steps, where the place names them.
   */
  open(placed: boolean, wanted?: Place["finding"]): void {
    const { report, t, cursor, selection } = this;
    const all = report?.findings ?? [];
    if (!placed) return this.frame(all.findIndex((one) => !one.calm));
    // the list may be another one than the place was written for
    const steps = wanted && all[wanted[0]] ? stepsOfFinding(t, all[wanted[0]]) : null;
    if (wanted && steps && (!steps.length || steps[wanted[1]] === cursor)) return this.frame(...wanted);
    const op = selection?.kind === "node" && cursor >= 0 && executed(t, cursor).id === selection.id;
    for (let i = 0; op && i < all.length && !this.evidence; i++) {
      const at = all[i].calm ? -1 : stepsOfFinding(t, all[i]).indexOf(cursor);
      if (at >= 0) this.frame(i, at);
    }
  }

  /** Leave the finding that is framed; `left` keeps it. */
  unframe(source: Source = "person"): void {
    if (!this.evidence) return;
    [this.left, this.evidence] = [this.evidence, null];
    if (this.selection?.kind === "node") this.select(null, source); // what it selected
    this.#changed({ evidence: true });
    this.onPerson("place", false);
  }

  /** Select a hidden pair and its later op. */
  choosePair(pair: number): void {
    const step = this.t.p.pair.second[pair];
    if (step === undefined) return this.select(null);
    this.#framing = true; // the pairs of a step are one finding
    this.select(executed(this.t, step));
    this.#framing = false;
    this.pair = pair;
    this.#changed({ selection: true });
  }

  setBreakpoints(list: Breakpoint[], source: Source = "person"): void {
    this.breakpoints = list;
    this.#changed({ breakpoints: true });
    if (source === "person") this.onPerson("breakpoints", false);
  }

  setReport(report: Report): void {
    this.report = report;
    this.#changed({ report: true });
  }

  /** `quiet`: panes are about to be updated anyway. */
  setHits(query: string, found: Int32Array | null, wrong: string, quiet = false): void {
    [this.query, this.found, this.wrong] = [query, found, wrong];
    this.hits = found?.slice().sort() ?? null;
    if (!quiet) this.#changed({ hits: true });
  }

  tell(note: string): void {
    this.note = note;
    this.#changed({ note: true });
  }

  setWindow(window: [number, number] | null): void {
    this.window = window;
    this.relook();
  }

  relook(): void { this.#changed({ look: true }); }

  get p(): Payload { return this.t.p; }
  get x(): Trace["x"] { return this.t.x; }
  get run(): number { return this.bare < 0 ? runAt(this.t, this.cursor) : this.bare; }

  get anchor(): number { return this.#anchor; }

  /** The number of the shown step; the last one of a run without steps. */
  get number(): number {
    const run = this.t.p.runs[this.bare];
    return run ? run.from + run.steps - 1 : numberOf(this.t, this.cursor);
  }

  #changed(what: Partial<Change>): void {
    const waits = this.#pending;
    this.#pending = merge(waits ?? every(false), what);
    if (!waits) this.later(() => this.flush());
  }

  /** Update the panes; normally once per animation frame. */
  flush(): void {
    const change = this.#pending;
    if (!change) return;
    this.#pending = null;
    if (change.payload || change.cursor || change.selection) this.now = this.derive(this);
    this.#updating = true;
    for (const view of this.#views) if (!view.slow) view.update(change);
    this.#slow = merge(this.#slow ?? every(false), change);
    const wait = this.#drag ? this.#lag - (performance.now() - this.#slowAt) : 0;
    this.#drag = false;
    if (wait <= 0 || change.payload) this.#tellSlow();
    else {
      this.#slowTimer ??= setTimeout(() => this.#tellSlow(), wait);
      this.#settle();
    }
  }

  #tellSlow(): void {
    clearTimeout(this.#slowTimer);
    this.#slowTimer = undefined;
    const change = this.#slow;
    if (!change) return;
    const began = performance.now();
    this.#slow = null;
    this.#updating = true;
    for (const view of this.#views) if (view.slow) view.update(change);
    this.#settle();
    this.#slowAt = performance.now();
    // on a slow machine, slow panes get about one frame in ten
    this.#lag = Math.max(LAG[0], Math.min(LAG[1], 12 * (this.#slowAt - began)));
  }

  #settle(): void {
    this.#updating = false;
    // everything is measured first, which costs a single layout
    for (const move of this.#wishes.splice(0).flatMap((measure) => measure())) move();
  }

  /** Set a scroll position after all updates, since it forces a layout; `measure` says how. */
  scroll(move: () => void, measure = () => [move]): void {
    this.#wishes.push(measure);
    if (!this.#updating) this.later(() => this.#settle());
  }

  /** Scroll a node into view after all updates. */
  reveal(box: HTMLElement, node: Element): void { this.scroll(() => {}, () => reveal(box, node)); }
}
