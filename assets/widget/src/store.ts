// The state that all panes share: the trace, the cursor, the selection, the breakpoints, a note for the status line.
// Panes read it and are told once a frame what changed; whoever changes it says whether a person or the model did.
import { buildIndex } from "./index.js";
import { reveal, type Reveal } from "./dom.js";
import { clamp, type Breakpoint } from "./debug.js";
import type { StateWords } from "./drawing.js";
import { frameAt, frontier, frontierFrame, nodeStates, runAt, stepsOf, type State, type Trace } from "./replay.js";
import type { Scale } from "./pair.js";
import { light, same, type Lit, type Selection } from "./select.js";
import type { Choice, Payload } from "./wire.js";

export interface Change { payload: boolean; cursor: boolean; selection: boolean; breakpoints: boolean; note: boolean; look: boolean }
/** `slow` panes may lag behind by some frames while the cursor is being dragged. */
export interface View { readonly slow?: boolean; update(change: Change): void; destroy?(): void }
export type Source = "person" | "model";

/** What follows from trace, cursor and selection; computed once per change for all panes. */
export interface Now {
  run: number;
  frame: number; // shown
  graph: number; // of that frame
  states: State[]; // by node of that graph
  steps: Int32Array; // by node of that graph: the step that ran it in this frame, maybe later; -1 = not recorded
  next: number; // frame of the frontier, -1 = all has run
  choices: (Choice & { step: number })[];
  lit: Lit;
  captions?: string[];
  words?: StateWords;
  hint?: string; // over the frontier
}

const NONE: Change = { payload: false, cursor: false, selection: false, breakpoints: false, note: false, look: false };
const LAG = [150, 400]; // ms, least and most
const ALL: Change = { payload: true, cursor: true, selection: true, breakpoints: true, note: true, look: true };

function merge(into: Change, what: Partial<Change>): void {
  for (const key of Object.keys(what) as (keyof Change)[]) into[key] ||= what[key]!;
}

/** Of the debugger; a planner derives its own. */
function present({ t, cursor, selection }: Store): Now {
  const frame = frameAt(t, cursor);
  const known = frame < t.p.frames;
  return {
    run: runAt(t, cursor),
    frame,
    graph: t.p.frame.graph[frame] ?? 0,
    states: known ? nodeStates(t, frame, cursor) : [],
    steps: known ? stepsOf(t, frame) : new Int32Array(),
    next: frontierFrame(t, cursor),
    choices: frontier(t, cursor),
    lit: light(t, selection, frame, cursor),
  };
}

export class Store {
  t: Trace;
  cursor = -1;
  selection: Selection | null = null;
  breakpoints: Breakpoint[] = [];
  note = "";
  follow = true;
  scale: Scale | null = null; // of the timeline, where another recording shares it
  now: Now;
  /** Told at once (not per frame) when a person changed something that other pages and Python should know. */
  onPerson: (what: "cursor" | "selection" | "breakpoints", drag: boolean) => void = () => {};

  #views: View[] = [];
  #wishes: Reveal[] = [];
  #scrolls: (() => void)[] = [];
  #slow: Change | null = null; // what the slow panes have not been told yet
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
    this.cursor = clamp(this.t, cursor);
    this.now = derive(this);
  }

  add(view: View): void {
    this.#views.push(view);
    view.update(ALL);
  }

  destroy(): void {
    clearTimeout(this.#slowTimer);
    for (const view of this.#views) view.destroy?.();
    this.#views = [];
  }

  replace(p: Payload): void {
    this.t = { p, x: buildIndex(p) };
    this.cursor = clamp(this.t, this.cursor);
    this.#changed({ payload: true, cursor: true, selection: true });
  }

  /** Go to a step; `drag`: one of many positions on the way to another, so slow panes may skip it. */
  seek(cursor: number, source: Source = "person", drag = false): void {
    const to = clamp(this.t, cursor);
    if (to === this.cursor) return;
    this.#drag = drag;
    this.cursor = to;
    this.#changed({ cursor: true, note: this.note !== "" });
    this.note = "";
    if (source === "person") this.onPerson("cursor", drag);
  }

  select(selection: Selection | null, source: Source = "person"): void {
    if (same(selection, this.selection)) return;
    this.selection = selection;
    this.#changed({ selection: true });
    if (source === "person") this.onPerson("selection", false);
  }

  setBreakpoints(list: Breakpoint[], source: Source = "person"): void {
    this.breakpoints = list;
    this.#changed({ breakpoints: true });
    if (source === "person") this.onPerson("breakpoints", false);
  }

  tell(note: string): void {
    this.note = note;
    this.#changed({ note: true });
  }

  relook(): void {
    this.#changed({ look: true });
  }

  get run(): number { return runAt(this.t, this.cursor); }

  #changed(what: Partial<Change>): void {
    if (this.#pending) return merge(this.#pending, what);
    this.#pending = { ...NONE, ...what };
    this.later(() => this.flush());
  }

  /** Bring the panes up to date now; normally called once per animation frame. */
  flush(): void {
    const change = this.#pending;
    if (!change) return;
    this.#pending = null;
    if (change.payload || change.cursor || change.selection) this.now = this.derive(this);
    this.#updating = true;
    for (const view of this.#views) if (!view.slow) view.update(change);
    if (this.#slow) merge(this.#slow, change);
    else this.#slow = { ...change };
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
    // on a slow machine the slow panes, which also have to be laid out and painted, get one frame in about ten
    this.#lag = Math.max(LAG[0], Math.min(LAG[1], 12 * (this.#slowAt - began)));
  }

  #settle(): void {
    this.#updating = false;
    reveal(this.#wishes.splice(0));
    for (const scroll of this.#scrolls.splice(0)) scroll();
  }

  /** Setting a scroll position forces a layout, so it is done when all is drawn. */
  scroll(run: () => void): void {
    this.#scrolls.push(run);
    this.#soon();
  }

  /** Scroll a node into view once all panes have been brought up to date. */
  reveal(box: HTMLElement, node: Element, middle = false): void {
    this.#wishes.push({ box, node, middle });
    this.#soon();
  }

  #soon(): void {
    if (!this.#updating) this.later(() => this.#settle());
  }
}
