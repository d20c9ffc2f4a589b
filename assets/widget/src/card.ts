// A block card of the graph pane: a header that folds, progress, bytes, and the drawing when open.
import { el, mark, say, set } from "./dom.js";
import { DrawingView, plainList, type Ruler, type Scene } from "./drawing.js";
import { bytes, plural } from "./format.js";
import type { Lit } from "./select.js";
import type { Store } from "./store.js";

export class Card {
  readonly root: HTMLElement;
  readonly nodes: number[];
  #head: HTMLButtonElement;
  #count = el("span.kv-count");
  #cost = el("span.kv-cost");
  #bad = el("span.kv-bad");
  #bar = el("i.kv-progress");
  #body = el("div.kv-card-body");
  #view: DrawingView | null = null;
  #open = false;
  #shown = "";

  constructor(private store: Store, private graph: number, readonly index: number, private ruler: Ruler) {
    const block = store.t.p.graphs[graph].blocks[index];
    this.nodes = block.nodes;
    const alike = block.alike > 1 ? el("span.kv-alike", { title: `${plural(block.alike, "block")} with this drawing` }, `×${block.alike} alike`) : "";
    this.#head = el("button", { class: "kv-card-head", "data-kv": "block", "data-id": index, "aria-expanded": "false", title: block.path },
      el("span.kv-caret", { "aria-hidden": "true" }), el("span.kv-title", {}, block.title || "graph"), alike, this.#bad, this.#cost, this.#count, this.#bar);
    this.root = el("section.kv-card", { "data-block": index }, this.#head, this.#body);
    const drawing = store.t.p.drawings[block.drawing];
    if (drawing) this.root.style.setProperty("--kv-h", `${drawing.h}px`);
  }

  get open(): boolean { return this.#open; }

  /** Opens or folds; the drawing is made when it is first wanted. */
  setOpen(open: boolean, scene: Scene): void {
    if (open === this.#open) return;
    this.#open = open;
    mark(this.root, "data-open", open ? "1" : null);
    mark(this.#head, "aria-expanded", String(open));
    if (!open) return this.#body.replaceChildren();
    const block = this.store.t.p.graphs[this.graph].blocks[this.index];
    const drawing = this.store.t.p.drawings[block.drawing];
    if (!drawing) return this.#body.append(plainList(this.nodes.length));
    this.#view ??= new DrawingView(this.store, this.graph, block, drawing, this.ruler);
    this.#view.sync({ ...scene, newFrame: true });
    this.#view.light(scene.lit.nodes, scene.lit.values);
    this.#body.append(this.#view.root);
  }

  sync(scene: Scene): void {
    const { flag, step } = this.store.t.p;
    let done = 0, cost = 0, bad = 0, ready = false, here = false;
    for (const n of this.nodes) {
      const s = scene.steps[n];
      if (scene.states[n] === "frontier") ready = true;
      if (scene.states[n] === "running") here = true;
      if (s < 0 || s > scene.cursor) continue;
      done++;
      cost += step.alloc[s] ?? 0; // while planning nothing is allocated
      if (step.flags[s] & flag.missed) bad++;
    }
    const shown = `${done} ${cost} ${bad} ${here} ${ready}`;
    if (this.#open) this.#view?.sync(scene);
    if (shown === this.#shown) return;
    this.#shown = shown;
    say(this.#count, `${done}/${this.nodes.length}`);
    say(this.#cost, cost ? `+${bytes(cost)}` : "");
    say(this.#bad, bad ? `⚠\uFE0E ${bad}` : "");
    set(this.#bar, "--kv-done", String(done / Math.max(1, this.nodes.length)));
    mark(this.root, "data-state", here ? "running" : ready ? "frontier" : done === this.nodes.length ? "done" : "waiting");
  }

  light(lit: Lit): void {
    mark(this.root, "data-lit", this.nodes.some((n) => lit.nodes.has(n)) ? "1" : null);
    if (this.#open) this.#view?.light(lit.nodes, lit.values);
  }

  box(node: number): Element | null {
    return this.#open ? this.#view?.box(node) ?? null : null;
  }

  get head(): HTMLElement { return this.#head; }
}
