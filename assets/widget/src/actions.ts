// What buttons and keys do, moves over recorded steps if possible, else requests to the kernel; and all commands with their titles and keys, once:
// toolbar, keys, palette and help panel read this list.
import { el } from "./dom.js";
import { atEdge, bare, bareRuns, letter, numberOf, opAt, runAt, stepsOf, type State } from "./replay.js";
import type { Codes, QueryTable } from "./wire.js";
import { describe, type Selection } from "./select.js";
import type { Store } from "./store.js";
import * as debug from "./debug.js";

export interface Message { do: string; [key: string]: unknown }
/** False if there is no kernel to ask; `able` tells this beforehand. */
export interface Ask { (message: Message): boolean; able(): boolean }

export const NEEDS_KERNEL = "recorded: needs a running kernel";
export const DRY = "not recorded: a dry run works out layouts and no numbers";

/** Moves on by itself; `next` returns false at the end. */
export class Player {
  #timer: ReturnType<typeof setInterval> | undefined;
  constructor(private store: Store, private next: () => boolean) {}

  toggle(): void {
    if (this.#timer !== undefined) return this.pause();
    this.#timer = setInterval(() => { if (!this.next()) this.pause(); }, 220);
    this.store.tell("playing; Space stops");
  }

  pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

export class Commands {
  readonly player: Player;
  constructor(readonly store: Store, private ask: Ask, private flushTraits: () => void) {
    this.player = new Player(store, () => {
      const to = debug.over(store.t, store.cursor);
      if (to !== null) this.#pass(to, 1);
      return to !== null;
    });
  }

  next(): void { this.#go(debug.over(this.store.t, this.store.cursor), { do: "over" }); }
  into(): void { this.#go(debug.into(this.store.t, this.store.cursor), { do: "into" }); }
  out(): void { this.#go(debug.out(this.store.t, this.store.cursor), { do: "out" }); }
  back(): void {
    const { bare, t, cursor } = this.store;
    // the cursor of a bare run is at the step before it
    this.#pass(bare < 0 ? debug.back(t, cursor) : cursor, -1);
  }
  nextRun(): void {
    const { store } = this;
    const next = store.cursor < 0 && store.bare < 0 ? 0 : store.run + 1;
    if (bare(store.t.p, next)) store.visit(next);
    else this.#go(debug.inRun(store.t, store.anchor, next), { do: "next_decode" });
  }
  previousRun(): void {
    const { store } = this;
    if (store.run > 0) store.toRun(store.run - 1);
    else store.seek(-1);
  }
  play(): void { this.player.toggle(); }

  /** Go to a step, but stop at a bare run that lies between here and there. */
  #pass(to: number, by: 1 | -1): void {
    const { store } = this;
    const next = store.run + by;
    const first = store.cursor < 0 && store.bare < 0;
    const other = to < 0 ? -1 : runAt(store.t, to);
    if (!first && other !== store.run && other !== next && bare(store.t.p, next)) store.visit(next);
    else store.seek(to);
  }

  continue(): void {
    const { store } = this;
    if (store.breakpoints.some((b) => b.enabled && !b.error && !debug.predicate(store.t, b))) {
      this.flushTraits();
      if (this.ask({ do: "continue", cursor: store.cursor })) return store.tell("asked the kernel to continue …");
    }
    const stop = debug.run(store.t, store.cursor, 1, store.breakpoints);
    if (!stop.by && store.t.p.live) return this.#go(null, { do: "continue" });
    const here = bareRuns(store.t.p) ? "in the runs whose steps are here" : "end of the recording";
    this.#stopped(stop, `nothing stops here: ${here}`);
  }

  reverse(): void { this.#stopped(debug.run(this.store.t, this.store.cursor, -1, this.store.breakpoints), "back at the beginning"); }

  #stopped(stop: debug.Stop, otherwise: string): void {
    this.store.seek(stop.cursor);
    this.store.tell(stop.by ? `stopped at breakpoint: ${label(stop.by)}` : otherwise);
  }

  #go(to: number | null, message: Message): void {
    const { store } = this;
    if (to !== null) return this.#pass(to, 1);
    if (bare(store.t.p, store.run + 1)) return store.visit(store.run + 1);
    if (store.bare < 0) store.seek(store.t.p.steps - 1);
    if (!store.t.p.live) return store.tell("end of the recording: everything has run");
    this.send(message, "asked the kernel …");
  }

  /** Run this node next; where another op was recorded, in a fork. */
  choose(node: number, graph?: number): void {
    const { store } = this;
    const { next, choices } = store.now;
    // node numbers differ between graphs
    if ((graph ?? store.t.p.frame.graph[next]) !== store.t.p.frame.graph[next] || !choices.some((c) => c.node === node)) return store.tell("this op cannot run next: an input of it is missing, or it has run");
    if (!atEdge(store.t, store.cursor)) {
      const step = choices.find((c) => c.node === node)!.step;
      // the recorded choice needs no fork
      return step >= 0 && step === store.now.ran ? store.seek(step) : this.fork({ run: { node } });
    }
    this.send({ do: "choose", node, frame: next }, "asked the kernel …");
  }

  /** Run again with a change in a lane of its own, from the beginning or, to run another op, from the next step. */
  fork(change: Record<string, unknown>): void {
    this.send({ do: "fork", step: "run" in change ? this.store.number + 1 : 0, change }, "asked the kernel to run again with this change …");
  }

  send(message: Message, note: string): void {
    this.flushTraits();
    this.store.tell(this.ask({ ...message, at: this.store.number }) ? note : NEEDS_KERNEL);
  }

  /** Explain the decision at the selected node, or at the cursor, in the status line. */
  why(): void {
    const { store } = this;
    const { p } = store.t;
    const chosen = store.selection?.kind === "node" && (store.selection.graph ?? store.now.graph) === store.now.graph;
    const step = chosen ? stepsOf(store.t, store.now.frame)[store.selection!.id] : store.cursor;
    if (step === undefined || step < 0) return store.tell("it has not run here, so nothing was decided yet");
    const rule = p.strings[p.step.rule[step]];
    store.tell(`step ${numberOf(store.t, step)}: ${p.strings[p.step.sentence[step]]}${rule ? ` Rule: ${rule}.` : ""}`);
  }

  /** Add a breakpoint, or remove an equal one. */
  toggle(kind: string, value: string | number): void {
    const list = this.store.breakpoints;
    const rest = list.filter((b) => b.kind !== kind || String(b.value) !== String(value));
    this.store.setBreakpoints(rest.length < list.length ? rest : [...list, { kind, value, enabled: true }]);
  }

  toggleSelected(): void {
    const wanted = breakpointFor(this.store);
    if (!wanted) return this.store.tell("select a node or a buffer first");
    this.toggle(wanted.kind, wanted.value);
  }
}

export function label(b: debug.Breakpoint): string { return b.kind === "buffer" ? `buffer B${debug.storageId(b.value)}` : `${b.kind} ${b.value}`; }

/** The breakpoint for the selection, else for the op at the cursor. */
export function breakpointFor(store: Store): { kind: string; value: string | number; text: string } | null {
  const { p } = store.t;
  const s: Selection | null = store.selection;
  if (s?.kind === "storage" || s?.kind === "cache") {
    const id = s.kind === "cache" ? p.caches[s.id]?.storage[store.now.run] ?? -1 : s.id;
    return id < 0 ? null : { kind: "buffer", value: id, text: `B${id}` };
  }
  const name = s?.kind === "node" ? describe(store.t, s) : store.cursor < 0 ? null : opAt(store.t, store.cursor).op[0];
  return name === null ? null : { kind: "node", value: name, text: name };
}

/** `keys`: as `KeyboardEvent.key` has them, `Shift+` in front of function keys; the first one is shown. */
export interface Action { id: string; title: string; keys: string[]; run(): void }

/** Commands on parts of the page rather than on the trace. */
export type Places = Record<"search" | "help" | "breakpoints" | "palette" | "goto" | "fit" | "full" | "wasBack" | "wasForward" | "close" | "choose", () => void> & Record<"nextHit" | "walk", (by: 1 | -1) => void>;

export function action(id: string, title: string, keys: string, run: () => void): Action {
  return { id, title, keys: keys ? keys.split(" ").map((key) => KEYS[key] ?? key) : [], run };
}

export function actions(commands: Commands, places: Places): Action[] {
  const list: Action[] = [];
  const { store } = commands;
  const add = (...given: Parameters<typeof action>) => list.push(action(...given));
  add("next", "Next op; a body counts as one", "ArrowRight n F10", () => commands.next());
  add("back", "Previous op", "ArrowLeft p Shift+F10", () => commands.back());
  add("into", "Into the If, Loop or function that comes next, or run one op", "i F11", () => commands.into());
  add("out", "Out: run to the end of this body or block", "o Shift+F11", () => commands.out());
  add("continue", "Continue to the next breakpoint", "c", () => commands.continue());
  add("reverse", "Continue backwards", "C", () => commands.reverse());
  add("next-token", "The same op, one decode step on", ".", () => commands.nextRun());
  add("previous-token", "The same op, one decode step earlier", ",", () => commands.previousRun());
  add("first", "First step", "Home", () => store.seek(-1));
  add("last", "Last step", "End", () => store.go(store.t.p.total - 1));
  add("go", "Go to a step by its number", "g", places.goto);
  add("breakpoint", "Breakpoint on the selection", "b", () => commands.toggleSelected());
  add("breakpoints", "Breakpoints: what Continue stops at", "", places.breakpoints);
  add("breakpoint-query", "Breakpoint where the query finds a step", "", () => (store.query && !store.wrong ? commands.toggle("query", store.query) : store.tell("write a query first")));
  add("why", "Why? Explain the decision", "w", () => commands.why());
  add("choose", "Run the selected op of the frontier next", "Enter", places.choose);
  add("play", "Play, pause", "Space", () => commands.play());
  add("search", "Search and filter by a query", "/", places.search);
  add("next-hit", "Next step that the query finds", "", () => places.nextHit(1));
  add("previous-hit", "Previous step that the query finds", "", () => places.nextHit(-1));
  add("next-evidence", "Next step of the finding, or back to the finding", "]", () => places.walk(1));
  add("previous-evidence", "Previous step of the finding", "[", () => places.walk(-1));
  add("was-back", "Back to where one was", "u", places.wasBack);
  add("was-forward", "Forward again", "U", places.wasForward);
  add("fit", "Fit the graph, or true size", "f", places.fit);
  add("full", "Full screen", "F", places.full);
  add("palette", "All commands", "Ctrl+k :", places.palette);
  add("help", "Keys and signs", "?", places.help);
  add("close", "Clear, close", "Escape", places.close);
  return list;
}

const KEYS: Record<string, string> = { Space: " " };
const SHOWN: Record<string, string> = { ArrowRight: "→", ArrowLeft: "←", " ": "Space", Escape: "Esc", "Ctrl+k": "Ctrl-K" };

export function shown(key: string): string { return SHOWN[key] ?? key; }

/** The keys of an action as text, without the function keys of other debuggers. */
export function keysOf({ keys }: Action): string {
  return keys.filter((key) => !/F\d/.test(key)).map(shown).join(" or ");
}

/** What each key runs; Enter is handled in keys.ts. */
export function movesOf(list: Action[]): Record<string, () => void> {
  return Object.fromEntries(list.flatMap((action) => action.keys.filter((key) => key !== "Enter").map((key) => [key, () => action.run()])));
}

const CACHE = "a cache: dark valid rows, bright written in this run, pale reserved";
/** Added to what the payload says about owners. */
const OWNED: Record<string, string> = { weights: ", all in one bar W", donated: ": the run may overwrite it", caller: ": read only" };
const NOTES = [
  "B12 is a buffer; B12.3 is the same buffer after its contents were overwritten three times.",
  "The graph shows the frame of the op that just ran. Recorded steps need no kernel; past the end the kernel runs more.",
];

function language({ fields, kinds, examples }: QueryTable): Node[] {
  const about = new Map(kinds.map((kind) => [kind.name, `${kind.about} (${kind.signs.join(" ")})`]));
  return [
    el("h4", {}, "Queries"),
    el("p.kv-soft", {}, "A word finds names, decisions, reasons, decoded words and buffers. A field has a sign and a value. a b: both; a or b: at least one; -a: not a; quotes: exactly this text; a:x|y: x or y; a:2..5: from 2 to 5; sort:-copied; limit:10. For example ", ...examples.flatMap((text, i) => [i ? ", " : "", el("code", {}, text)]), "."),
    el("dl", {}, ...fields.flatMap(({ name, aliases, kind, about: text }) => [el("dt", {}, el("kbd", { title: about.get(kind) }, [name, ...aliases.filter((a) => !a.includes(" "))].slice(0, 3).join(", "))), el("dd", {}, text)])),
  ];
}

export function help(codes: Codes, query: QueryTable, actions: Action[]): HTMLElement {
  const { origin, owner, state } = codes;
  const owners = origin.map((name, i) => [name, `${owner[i]}${OWNED[name] ?? ""}`]);
  const bars = [...owners, ["cache", CACHE]].map(([origin, text]) => el("li.kv-mem-row", { "data-origin": origin }, el("span.kv-track", {}, el("i.kv-fill")), text));
  const box = panel(codes, actions, state.map(([name, , about]) => [name, about]), [el("h4", {}, "Buffers"), el("ul", {}, ...bars), el("h4", {}, "Bytes"), el("dl", {}, ...Object.values(codes.figure ?? {}).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))], NOTES);
  box.append(el("div.kv-language", {}, ...language(query)));
  return box;
}

/** The help panel: keys on the left; states of ops, `more` and notes on the right. */
export function panel(codes: Codes, actions: Action[], words: [string, string][], more: Node[], notes: string[]): HTMLElement {
  const states = words.map(([s, text]) => el("li", {}, el("span.kv-sample", { "data-state": s }, letter(codes, s as State) || "\u00A0"), text));
  return el("div.kv-pop.kv-help", { role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...actions.filter(({ keys }) => keys.length).flatMap((one) => [el("dt", {}, el("kbd", {}, keysOf(one))), el("dd", {}, one.title)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), ...more, ...notes.map((n) => el("p.kv-soft", {}, n))));
}
