// What buttons and keys do: move over recorded steps if possible, else ask the kernel.
import * as debug from "./debug.js";
import { atEdge, bare, bareRuns, numberOf, opAt, runAt, stepsOf } from "./replay.js";
import { describe, type Selection } from "./select.js";
import type { Store } from "./store.js";

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

export function label(b: debug.Breakpoint): string {
  if (b.kind === "buffer") return `buffer B${debug.storageId(b.value)}`;
  if (b.kind === "decision") return `decision ${b.value}`;
  return `${b.kind} ${b.value}`;
}

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
