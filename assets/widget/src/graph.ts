// The graph pane: block cards of the shown frame's graph, stacked; the block under the cursor opens itself.
import { Card } from "./card.js";
import { button, el, hit, mark, on, onHit, onResize, say } from "./dom.js";
import { Ruler, type Scene } from "./drawing.js";
import { stack, stepsOf } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";

const OPEN_ALL = 60; // graphs with no more nodes than this start unfolded

export class GraphPane implements View {
  readonly slow = true;
  #cards: Card[] = [];
  #decks = new Map<number, Card[]>(); // by graph, so that entering and leaving a body costs nothing
  #kept = new Map<string, boolean>(); // blocks that a person opened or folded
  #shut = ""; // a block that a person folded although the cursor is in it
  #graph = -1;
  #frame = -1;
  #signature = "";
  #list = el("div.kv-cards");
  #crumbs = el("nav.kv-crumbs", { "aria-label": "call stack" });
  #follow: HTMLButtonElement;
  #ruler: Ruler;

  constructor(host: HTMLElement, private store: Store, choose: (node: number) => void, signal: AbortSignal) {
    this.#ruler = new Ruler(getComputedStyle(host).fontFamily || "sans-serif");
    this.#follow = button("Follow", "Open the block under the cursor and keep it in view", "follow", () => {
      store.follow = !store.follow;
      this.#sync(true);
    }, signal);
    const tools = el("div.kv-tools", {}, this.#follow,
      button("Unfold", "Unfold all blocks", "unfold", () => this.#all(true), signal),
      button("Fold", "Fold all blocks", "fold", () => this.#all(false), signal),
      button("100 %", "Fit the width, or true size (f)", "zoom", () => this.zoom(), signal, "f"));
    host.append(el("header", {}, this.#crumbs, tools), this.#list);
    onResize(this.#list, () => this.#keep(), signal);

    on(this.#list, "click", (event) => {
      const head = hit(event, "block");
      if (head) return this.#toggle(Number(head.dataset.id));
      const node = hit(event, "graph-node");
      if (node) return store.select({ kind: "node", id: Number(node.dataset.node), graph: this.#graph });
      const stub = (event.target as Element).closest<HTMLElement>(".kv-stub");
      if (stub) store.select({ kind: "value", id: Number(stub.dataset.value), graph: this.#graph });
      else store.select(null);
    }, signal);
    onHit(this.#list, "graph-node", (node) => choose(Number(node.dataset.node)), signal, "dblclick");
    // the step of the control node is where the outer frame goes on
    onHit(this.#crumbs, "crumb", (crumb) => store.seek(Number(crumb.dataset.step)), signal);
  }

  update(change: Change): void {
    const { store } = this;
    const { graphs, drawings } = store.t.p;
    if (change.payload) {
      // a trace that only grew keeps its cards: what they show is read from the store
      const signature = JSON.stringify([graphs, drawings]);
      if (signature !== this.#signature) {
        this.#signature = signature;
        this.#kept.clear();
        this.#decks.clear();
        this.#graph = -1;
        const few = graphs.reduce((n, g) => n + g.order.length, 0) <= OPEN_ALL;
        if (few) graphs.forEach((g, i) => g.blocks.forEach((_, b) => this.#kept.set(`${i}:${b}`, true)));
      }
    }
    if (change.payload || change.cursor || change.look) this.#sync(change.payload || change.look);
    if (change.selection || change.payload) this.#light();
  }

  #scene(newFrame: boolean): Scene {
    const { now, cursor } = this.store;
    return { ...now, cursor, newFrame };
  }

  #sync(fresh: boolean): void {
    const { store } = this;
    const { now, t } = store;
    if (now.frame >= t.p.frames) return;
    let changed = fresh || now.frame !== this.#frame;
    if (now.graph !== this.#graph) {
      this.#graph = now.graph;
      this.#cards = this.#decks.get(now.graph) ?? t.p.graphs[now.graph].blocks.map((_, i) => new Card(store, now.graph, i, this.#ruler));
      this.#decks.set(now.graph, this.#cards);
      this.#list.replaceChildren(...this.#cards.map((c) => c.root));
      this.#list.scrollTop = 0;
      changed = true;
      this.#light();
    }
    this.#frame = now.frame;
    const scene = this.#scene(changed);
    const node = this.#focusNode();
    const here = t.x.graphs[now.graph].block[node] ?? -1;
    if (`${now.graph}:${here}` !== this.#shut) this.#shut = "";
    for (const card of this.#cards) {
      const key = `${now.graph}:${card.index}`;
      const open = (store.follow && card.index === here && key !== this.#shut) || (this.#kept.get(key) ?? false);
      card.setOpen(open, scene);
      card.sync(scene);
    }
    mark(this.#follow, "aria-pressed", String(store.follow));
    if (changed) this.#path();
    this.#keep();
  }

  /** Keep the block under the cursor in view, also when the pane gets another size. */
  #keep(): void {
    const { now, t, follow } = this.store;
    const node = this.#focusNode();
    const card = this.#cards[t.x.graphs[now.graph]?.block[node] ?? -1];
    if (follow && card) this.store.reveal(this.#list, card.box(node) ?? card.head, true);
  }

  /** The node to keep in view: the one that just ran, else the first that can. */
  #focusNode(): number {
    const { now } = this.store;
    const ran = now.states.indexOf("running");
    if (ran >= 0) return ran;
    return now.next === now.frame ? now.choices[0]?.node ?? -1 : -1;
  }

  #light(): void {
    for (const card of this.#cards) card.light(this.store.now.lit);
    const s = this.store.selection;
    if (s?.kind !== "node" || (s.graph ?? this.#graph) !== this.#graph) return;
    const card = this.#cards[this.store.t.x.graphs[this.#graph].block[s.id]];
    if (card) this.store.reveal(this.#list, card.box(s.id) ?? card.head, true);
  }

  #path(): void {
    const { t, now } = this.store;
    const { p } = t;
    const frames = stack(t, now.frame);
    const parts: Node[] = [];
    frames.forEach((f, i) => {
      const text = i === 0 ? p.graphs[p.frame.graph[f]].name || "main" : p.strings[p.frame.label[f]];
      if (i > 0) parts.push(el("span.kv-sep", { "aria-hidden": "true" }, "›"));
      const inner = frames[i + 1];
      const back = inner === undefined ? -1 : stepsOf(t, f)[p.frame.node[inner]];
      parts.push(back >= 0
        ? el("button", { "data-kv": "crumb", "data-step": back, title: `Go to step ${numberOf(t, back)}, where ${text} goes on` }, text)
        : el("span", { class: inner === undefined ? "kv-here" : "", title: text }, text));
    });
    this.#crumbs.replaceChildren(...parts);
  }

  #toggle(index: number): void {
    const card = this.#cards[index];
    const key = `${this.#graph}:${index}`;
    const open = !card.open;
    this.#kept.set(key, open);
    this.#shut = open ? "" : key;
    card.setOpen(open, this.#scene(false));
  }

  #all(open: boolean): void {
    for (const card of this.#cards) {
      this.#kept.set(`${this.#graph}:${card.index}`, open);
      card.setOpen(open, this.#scene(false));
    }
    if (!open) this.store.follow = false;
    mark(this.#follow, "aria-pressed", String(this.store.follow));
  }

  zoom(): void {
    const full = this.#list.dataset.zoom !== "full";
    if (full) this.#list.dataset.zoom = "full";
    else delete this.#list.dataset.zoom;
    const zoom = this.#list.parentElement!.querySelector('[data-kv="zoom"]')!;
    say(zoom, full ? "Fit" : "100 %");
  }
}
