// The menu behind Fork: what could be changed at this step, or in the run as a whole. Each makes a lane.
import { el, hit, on } from "./dom.js";
import { ours } from "./hostkeys.js";
import { bytes, count, opName, shortName } from "./format.js";
import type { LaneState } from "./lanestate.js";
import type { Context } from "./lazypane.js";
import type { Offers } from "./pair.js";
import { Popover } from "./popover.js";
import type { Change, View } from "./store.js";

const READY = 12;

export class ForkMenu implements View {
  #body = el("div.kv-forkbody");
  #popover: Popover;

  constructor(app: HTMLElement, private context: Context, private state: LaneState, private signal: AbortSignal) {
    const root = el("div.kv-pop.kv-menu.kv-forks", { role: "dialog", "aria-label": "Fork", "data-kv": "fork-menu" }, el("h4", {}, "Fork: the same inputs, with a change"), this.#body);
    this.#popover = new Popover(app, root);
    on(root, "click", (event) => {
      const item = hit(event, "fork-item");
      if (!item) return;
      this.#popover.close();
      context.commands.fork(JSON.parse(item.dataset.change!) as Record<string, unknown>);
    }, signal);
    // keys of the page do not move the cursor while one writes here
    on(root, "keydown", (event) => { if (ours(event)) event.stopPropagation(); }, signal);
    state.listen(() => this.#draw());
  }

  toggle(button: HTMLElement): void {
    this.context.reports.want();
    this.#draw();
    this.#popover.toggle(button);
  }

  update(change: Change): void {
    if (this.#popover.open && (change.payload || change.cursor || change.report)) this.#draw();
  }

  #item(text: string, change: object, title: string): HTMLElement {
    return el("button", { "data-kv": "fork-item", "data-change": JSON.stringify(change), title }, text);
  }

  #draw(): void {
    const { store } = this.context;
    const { p } = store.t;
    const offers = (this.state.source.get("offers") ?? {}) as Offers;
    const parts: HTMLElement[] = [];
    const part = (title: string, items: HTMLElement[]) => items.length && parts.push(el("section", {}, el("h5", {}, title), el("div.kv-rowline", {}, ...items)));
    part("The whole run under policy", (offers.policies ?? []).map((name) => this.#item(name, { policy: name }, `Run again by the rules of ${name}, from the first step on; the steps before this one keep their order`)));
    const { now } = store;
    const graph = p.graphs[p.frame.graph[now.next] ?? 0];
    const first = Math.min(...now.choices.map((c) => (c.step < 0 ? Infinity : c.step)));
    const others = now.choices.filter((c) => c.step < 0 || c.step !== first).slice(0, READY);
    part(`Run another ready op as step ${count(store.number + 1)}`, others.map((c) => this.#item(`${opName(graph.nodes[c.node][1])} ${shortName(graph, c.node)}`.trim(), { run: { node: c.node } }, graph.nodes[c.node][0])));
    part("The whole list in the order of a back end's rule", (offers.orders ?? []).map((name) => this.#item(name, { order: name }, `Run all nodes again in the order that the rule "${name}" gives`)));
    const rows = offers.kv_capacity;
    if (rows) {
      const input = el("input", { type: "number", min: 1, value: rows, "aria-label": "Rows", "data-kv": "fork-rows" });
      const go = this.#item("Reserve", {}, "Reserve rows in the growing caches of the decode");
      const write = () => { go.dataset.change = JSON.stringify({ kv_capacity: Math.max(1, Math.round(input.valueAsNumber || rows)) }); };
      on(input, "input", write, this.signal);
      write();
      part("Reserve rows in the caches", [input, go]);
    }
    part("Let the run overwrite an input", (offers.donate ?? []).map((name) => this.#item(`donate ${name}`, { donate: name }, name)));
    const fixes = (store.report?.missed ?? []).slice(0, 4).flatMap((m) => m.fixes.slice(0, 1).map((fix, i) => {
      const blocker = m.reasons.findIndex((r) => r.fix === i);
      return this.#item(`${fix.label}${fix.saves > 0 ? ` (${bytes(fix.saves)} at this step)` : ""}`, { fix: { step: m.step, blocker } }, fix.sentence);
    }));
    const caches = (store.report?.caches ?? []).flatMap((f, cache) => (f.fix ? [this.#item(f.fix.label, { fix: { cache } }, f.fix.sentence)] : []));
    part("Apply a fix", [...caches, ...fixes]);
    if (!this.context.ask.able()) parts.unshift(el("p.kv-soft", {}, "A fork runs the model again: it needs a running kernel."));
    this.#body.replaceChildren(...(parts.length ? parts : [el("p.kv-none", {}, "Nothing can be changed here.")]));
  }
}
