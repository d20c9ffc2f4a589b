// What buttons and keys do: a move on recorded steps when there is one, else a question to the kernel at the live edge.
import * as debug from "./debug.js";
import { atEdge, stepsOf } from "./replay.js";
import { describe, type Selection } from "./select.js";
import type { Store } from "./store.js";

export interface Message { do: string; [key: string]: unknown }
/** false: there is nobody to ask; `able` tells so beforehand. */
export interface Ask { (message: Message): boolean; able(): boolean }

export const NEEDS_KERNEL = "recorded: needs a running kernel";

export class Commands {
  #timer: ReturnType<typeof setInterval> | undefined;
  constructor(readonly store: Store, private ask: Ask, private flushTraits: () => void) {}

  next(): void { this.#go(debug.over(this.store.t, this.store.cursor), { do: "over" }); }
  into(): void { this.#go(debug.into(this.store.t, this.store.cursor), { do: "into" }); }
  out(): void { this.#go(debug.out(this.store.t, this.store.cursor), { do: "out" }); }
  back(): void { this.store.seek(debug.back(this.store.t, this.store.cursor)); }
  nextRun(): void { this.#go(debug.nextRun(this.store.t, this.store.cursor), { do: "next_decode" }); }
  previousRun(): void { this.store.seek(debug.previousRun(this.store.t, this.store.cursor)); }
  first(): void { this.store.seek(-1); }
  last(): void { this.store.seek(this.store.t.p.steps - 1); }
  toRun(run: number, drag = false): void {
    const to = debug.inRun(this.store.t, this.store.cursor, run);
    if (to !== null) this.store.seek(to, "person", drag);
  }

  continue(): void {
    const { store } = this;
    // a condition is Python, so only the kernel can look for it
    if (store.breakpoints.some((b) => b.enabled && b.kind === "condition")) {
      this.flushTraits();
      if (this.ask({ do: "continue", cursor: store.cursor })) return store.tell("asked the kernel to continue …");
    }
    const stop = debug.run(store.t, store.cursor, 1, store.breakpoints);
    if (!stop.by && store.t.p.live) return this.#go(null, { do: "continue" });
    this.#stopped(stop, "nothing stops here: end of the recording");
  }

  reverse(): void {
    this.#stopped(debug.run(this.store.t, this.store.cursor, -1, this.store.breakpoints), "back at the beginning");
  }

  #stopped(stop: debug.Stop, otherwise: string): void {
    this.store.seek(stop.cursor);
    this.store.tell(stop.by ? `stopped at breakpoint: ${label(stop.by)}` : otherwise);
  }

  #go(to: number | null, message: Message): void {
    const { store } = this;
    if (to !== null) return store.seek(to);
    store.seek(store.t.p.steps - 1);
    if (!store.t.p.live) return store.tell("end of the recording: everything has run");
    this.flushTraits();
    store.tell(this.ask(message) ? "asked the kernel …" : NEEDS_KERNEL);
  }

  /** Run this node next; a person may only choose where nothing has been recorded yet. */
  choose(node: number): void {
    const { store } = this;
    const { next, choices } = store.now;
    if (!choices.some((c) => c.node === node)) return store.tell("this op cannot run next: an input of it is missing, or it has run");
    if (!atEdge(store.t, store.cursor)) {
      const step = choices.find((c) => c.node === node)!.step;
      store.tell(`recorded: this op ran as step ${step}; another order can be chosen at the live end or with kvviz.debug`);
      return;
    }
    this.flushTraits();
    store.tell(this.ask({ do: "choose", node, frame: next }) ? "asked the kernel …" : NEEDS_KERNEL);
  }

  /** Explain the decision at the selected node, or at the cursor, in the status line. */
  why(): void {
    const { store } = this;
    const { p } = store.t;
    const chosen = store.selection?.kind === "node" && (store.selection.graph ?? store.now.graph) === store.now.graph;
    const step = chosen ? stepsOf(store.t, store.now.frame)[store.selection!.id] : store.cursor;
    if (step === undefined || step < 0) return store.tell("it has not run here, so nothing was decided yet");
    const rule = p.strings[p.step.rule[step]];
    store.tell(`step ${step}: ${p.strings[p.step.sentence[step]]}${rule ? ` Rule: ${rule}.` : ""}`);
  }

  /** Add a breakpoint, or take it away when there is one just like it. */
  toggle(kind: debug.Kind, value: string | number): void {
    const list = this.store.breakpoints;
    const rest = list.filter((b) => b.kind !== kind || String(b.value) !== String(value));
    this.store.setBreakpoints(rest.length < list.length ? rest : [...list, { kind, value, enabled: true }]);
  }

  toggleSelected(): void {
    const wanted = breakpointFor(this.store);
    if (!wanted) return this.store.tell("select a node or a buffer first");
    this.toggle(wanted.kind, wanted.value);
  }

  play(): void {
    if (this.#timer !== undefined) return this.pause();
    this.#timer = setInterval(() => {
      const to = debug.over(this.store.t, this.store.cursor);
      if (to === null) this.pause();
      else this.store.seek(to);
    }, 220);
    this.store.tell("playing; Space stops");
  }

  pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

export function label(b: debug.Breakpoint): string {
  if (b.kind === "buffer") return `buffer B${debug.storageId(b.value)}`;
  if (b.kind === "decision") return `decision ${b.value}`;
  return `${b.kind} ${b.value}`;
}

/** The breakpoint that the selection (or else the op at the cursor) asks for. */
export function breakpointFor(store: Store): { kind: debug.Kind; value: string | number; text: string } | null {
  const { p } = store.t;
  const s: Selection | null = store.selection;
  if (s?.kind === "storage" || s?.kind === "cache") {
    const id = s.kind === "cache" ? p.caches[s.id]?.storage[store.now.run] ?? -1 : s.id;
    return id < 0 ? null : { kind: "buffer", value: id, text: `B${id}` };
  }
  if (s?.kind === "node") {
    const name = describe(store.t, s);
    return { kind: "node", value: name, text: name };
  }
  if (store.cursor < 0) return null;
  const node = p.graphs[p.frame.graph[p.step.frame[store.cursor]]].nodes[p.step.node[store.cursor]];
  return { kind: "node", value: node[0], text: node[0] };
}
