// The graph pane: the shown frame's graph on a canvas; the block under the cursor opens by itself.
import { alone, arrange, blockFacts, cardsOf, sketchOf, step as walk, type Card, type Level, type Place, type Row, type Scene, type Sketch } from "./level.js";
import { Crumbs, Framed, graphLegend, GraphList, hitNodes } from "./grapharound.js";
import { button, el, mark, on, onKey, say, toggle } from "./dom.js";
import { plural } from "./format.js";
import type { Painted } from "./graphpaint.js";
import { redAt, redEdges, type RedEdge } from "./rededges.js";
import { Stage, type Owner, type Target } from "./stage.js";
import { copyButton, type MakePane } from "./lazypane.js";
import { wayOf } from "./select.js";
import { numberOf } from "./replay.js";
import type { Change, Store, View } from "./store.js";

const OPEN_ALL = 60; // graphs with no more nodes than this start unfolded

/** What the reader opened, folded and chose in a graph, and the scroll position. */
interface Deck { cards: Card[]; open: Map<number, boolean>; shown: Map<number, number | "all" | null>; x: number; y: number }

export class GraphPane implements View, Owner {
  readonly slow = true;
  #decks = new Map<number, Deck>();
  #deck!: Deck;
  #graph = -1;
  #here = -1; // block of the op to keep in view
  #signature = "";
  #stage: Stage;
  #list: GraphList;
  #crumbs: Crumbs;
  #follow: HTMLButtonElement;
  #root = el("div.kv-stage", { role: "listbox", tabindex: 0, "data-kv": "graph-stage" });
  #said = el("p.kv-unseen", { "aria-live": "polite", "data-kv": "graph-said" });
  #framed: Framed;
  #buffers = false; // show the way of the chosen buffer
  #focus: Place | null = null; // where keys have come to
  #walking = false;
  #red: RedEdge[] = []; // as they were painted

  constructor(host: HTMLElement, private store: Store, private choose: (node: number) => void, signal: AbortSignal) {
    this.#follow = button("Follow", "Open the block under the cursor and keep it in view", "follow", () => {
      store.follow = !store.follow;
      this.#sync(true);
    }, signal);
    this.#crumbs = new Crumbs(store, signal);
    this.#framed = new Framed(store, this.#root, () => this.#sync(true), signal);
    this.#list = new GraphList(store);
    const tools = el("div.kv-tools", { role: "toolbar", "aria-label": "Graph" });
    host.append(el("header", {}, this.#crumbs.root, this.#framed.button, tools), this.#root, this.#said);
    this.#stage = new Stage(this.#root, store, this, signal);
    this.#root.append(this.#list.root);
    const way = toggle("Buffers", "Where the chosen buffer goes, or that of the op under the cursor", "buffer-way", (on) => {
      this.#buffers = on;
      this.#stage.soon();
    }, signal);
    tools.append(this.#follow, way,
      button("Unfold", "Unfold all blocks, layers side by side", "unfold", () => this.#all(true), signal),
      button("Fold", "Fold all blocks", "fold", () => this.#all(false), signal), ...this.#stage.tools);
    onKey(this.#root, (key) => this.#key(key), signal);
    on(this.#root, "pointerdown", () => {
      this.#walking = false;
      this.#at(null); // Enter is for what is clicked, not for where keys were
    }, signal);
    on(this.#root, "focus", () => { this.#walking = this.#root.matches(":focus-visible"); }, signal);
    on(this.#root, "blur", () => this.#at(null), signal);
  }

  update(change: Change): void {
    const { graphs, drawings } = this.store.t.p;
    if (change.payload) {
      // keep the folds of a trace that only grew
      const signature = JSON.stringify([graphs, drawings]);
      if (signature !== this.#signature) {
        this.#signature = signature;
        this.#decks.clear();
        this.#list.clear();
        this.#graph = -1;
      }
    }
    if (change.look) this.#stage.look();
    if (change.payload || change.cursor || change.evidence) this.#sync(change.payload);
    else if ((change.look || change.hits) && this.#graph >= 0) this.#list.sync(this.#graph, this.#scene);
    if (change.hits) this.#stage.soon();
    if (change.selection || change.payload) this.#light();
  }

  get #scene(): Scene { return { ...this.store.now, cursor: this.store.cursor }; }

  // -- what is open ------------------------------------------------------------------------------------------------

  #start(graph: number): Deck {
    const { graphs } = this.store.t.p;
    const g = graphs[graph];
    const deck: Deck = { cards: cardsOf(g), open: new Map(), shown: new Map(), x: 0, y: 0 };
    if (graphs.reduce((n, each) => n + each.order.length, 0) <= OPEN_ALL) this.#unfold(deck, g.blocks.length);
    return deck;
  }

  #unfold(deck: Deck, blocks: number): void {
    for (let b = 0; b < blocks; b++) deck.open.set(b, true);
    deck.cards.forEach((_, i) => deck.shown.set(i, "all"));
  }

  #cardOf(block: number): [number, number] {
    for (const [i, card] of this.#deck.cards.entries()) {
      const m = card.members.findIndex((each) => each.blocks.includes(block));
      if (m >= 0) return [i, m];
    }
    return [-1, -1];
  }

  #open(block: number): boolean { return this.#deck.open.get(block) ?? (this.store.follow && block === this.#here); }

  #member(card: number): number | "all" | null {
    const chosen = this.#deck.shown.get(card);
    if (chosen !== undefined) return chosen;
    const [mine, member] = this.store.follow && this.#here >= 0 ? this.#cardOf(this.#here) : [-1, -1];
    return mine === card ? member : null;
  }

  cells(row: Row): number { return this.#deck.cards[row.card].members.length; }

  line(x: number, y: number): Target {
    const edge = redAt(this.#red, x, y);
    return edge ? { kind: "pair", pairs: edge.pairs, text: edge.text } : null;
  }

  fits(): Row | null {
    const open = this.#stage.level.rows.filter((r) => r.open && r.block >= 0);
    return open.length === 1 ? open[0] : open.length < 4 ? open.find((r) => r.block === this.#here) ?? null : null;
  }

  lay(zoom: number, room: number): Level {
    if (!this.#deck) return { rows: [], w: 0, h: 0 };
    const { around } = this.#framed;
    if (around) return alone(around, around.block, this.#cardOf(around.block), zoom, this.#stage.port);
    const { graphs, drawings } = this.store.t.p;
    return arrange(this.#deck.cards, graphs[this.#graph], drawings, { open: (b) => this.#open(b), shown: (i) => this.#member(i) }, zoom, room);
  }

  #relay(): void {
    this.#stage.relay();
    this.#list.show(this.#graph, this.#stage.level.rows, (row) => this.#name(row), (row) => (this.#framed.around ?? this.store.t.p.graphs[this.#graph].blocks[row.block]).nodes);
    this.#list.sync(this.#graph, this.#scene);
  }

  #sync(fresh: boolean): void {
    const { store } = this;
    const { now, t } = store;
    if (now.frame >= t.p.frames) return;
    let changed = fresh;
    if (now.graph !== this.#graph) {
      if (this.#deck) Object.assign(this.#deck, { x: this.#stage.port.x, y: this.#stage.port.y });
      this.#graph = now.graph;
      const known = this.#decks.get(now.graph) ?? this.#start(now.graph);
      this.#decks.set(now.graph, (this.#deck = known));
      this.#here = -1;
      this.#focus = null;
      Object.assign(this.#stage.port, { x: known.x, y: known.y });
      this.#stage.level = { rows: [], w: 0, h: 0 };
      this.#list.show(now.graph, [], () => "", () => []); // its rows are of the other graph
      mark(this.#root, "aria-label", `Graph ${t.p.graphs[now.graph].name}: arrow keys go from op to op, Enter goes to the step of an op`);
      changed = true;
    }
    const node = this.#focusNode();
    const here = t.x.graphs[now.graph].block[node] ?? -1;
    if (here !== this.#here) {
      this.#here = here;
      // manual folds hold until the cursor comes back
      if (store.follow && here >= 0) {
        const [card] = this.#cardOf(here);
        if (!this.#deck.open.get(here)) this.#deck.open.delete(here);
        if (this.#deck.shown.get(card) !== "all") this.#deck.shown.delete(card);
      }
      changed = true;
    }
    if (this.#framed.follow(this.#stage)) changed = true;
    mark(this.#follow, "aria-pressed", String(store.follow));
    const block = t.p.graphs[now.graph].blocks[here];
    this.#crumbs.show(block?.path ? block.title : "");
    if (changed) this.#relay();
    else this.#list.sync(this.#graph, this.#scene);
    if (store.follow) this.#reveal(node);
    this.#stage.draw();
  }

  /** The node to keep in view: the one that just ran, else the first of the frontier. */
  #focusNode(): number {
    const { now } = this.store;
    const ran = now.states.indexOf("running");
    if (ran >= 0) return ran;
    return now.next === now.frame ? now.choices[0]?.node ?? -1 : -1;
  }

  #rowOf(block: number): Row | undefined {
    const { rows } = this.#stage.level;
    if (this.#framed.around) return rows[0];
    const [card] = this.#cardOf(block);
    return rows.find((r) => r.block === block) ?? rows.find((r) => r.block < 0 && r.card === card);
  }

  #reveal(node: number): void {
    const row = this.#rowOf(this.store.t.x.graphs[this.#graph].block[node] ?? -1);
    if (row) this.#stage.reveal(this.#stage.rect(row, node));
  }

  #light(): void {
    const { selection: s, t } = this.store;
    if (s?.kind === "node" && (s.graph ?? this.#graph) === this.#graph) {
      const block = t.x.graphs[this.#graph].block[s.id] ?? -1;
      if (block >= 0 && !this.#framed.around && !this.#stage.level.rows.some((r) => r.block === block && r.open)) {
        const [card, member] = this.#cardOf(block);
        this.#deck.open.set(block, true);
        if (this.#member(card) !== "all") this.#deck.shown.set(card, member);
        this.#relay();
      }
      this.#reveal(s.id);
    }
    this.#list.sync(this.#graph, this.#scene);
    this.#stage.draw();
  }

  #all(open: boolean): void {
    this.#framed.unfold();
    this.#deck.open.clear();
    this.#deck.shown.clear();
    if (open) this.#unfold(this.#deck, this.store.t.p.graphs[this.#graph].blocks.length);
    else this.store.follow = false;
    mark(this.#follow, "aria-pressed", String(this.store.follow));
    this.#relay();
    if (open && this.store.follow) this.#reveal(this.#focusNode());
  }

  // -- what is shown -----------------------------------------------------------------------------------------------

  #nodes(row: Row): number[] {
    const { blocks } = this.store.t.p.graphs[this.#graph];
    return row.block >= 0 ? blocks[row.block].nodes : this.#deck.cards[row.card].members.flatMap((m) => m.blocks.flatMap((b) => blocks[b].nodes));
  }

  sketch(row: Row): Sketch {
    const { p } = this.store;
    return this.#framed.around ?? sketchOf(p, p.graphs[this.#graph], p.graphs[this.#graph].blocks[row.block]);
  }

  #facts(row: Row): { about: string; missed: string } {
    const { blocks } = this.store.t.p.graphs[this.#graph];
    const card = this.#deck.cards[row.card];
    const { drawing } = blocks[row.block];
    const alike = card.stack ? card.members.flatMap((m) => m.blocks.filter((b) => blocks[b].drawing === drawing)) : [];
    return blockFacts(this.store.t, this.#graph, row.block, alike, card.stack);
  }

  #cardFacts(row: Row): string {
    const card = this.#deck.cards[row.card];
    const shown = this.#member(row.card);
    return typeof shown === "number" && card.stack ? `shown: ${card.stack} ${card.members[shown].label}` : plural(this.#nodes(row).length, "op");
  }

  #name(row: Row): string {
    if (row.block < 0) return `${this.#deck.cards[row.card].title}, ${this.#cardFacts(row)}`;
    const { about, missed } = this.#facts(row);
    return [this.store.t.p.graphs[this.#graph].blocks[row.block].title || "graph", about, missed].filter(Boolean).join(", ");
  }

  paint(level: Level): Omit<Painted, "level" | "port" | "zoom"> | null {
    if (!this.#deck) return null; // nothing has run
    const s = this.store.selection;
    const way = this.#buffers ? wayOf(this.store.t, s, this.store.now, this.store.cursor, this.#focusNode()) : null;
    mark(this.#root, "data-way", way && [...way.storages].join() || null);
    const red = this.#red = redEdges(this.store, this.#graph, level, (block) => this.#rowOf(block), (row, node) => this.#stage.rect(row, node));
    mark(this.#root, "data-red", red.map((edge) => edge.text).join("; ") || null);
    return {
      red, way, sketch: (row) => this.sketch(row), nodes: (row) => this.#nodes(row), cards: this.#deck.cards, graph: this.#graph, scene: this.#scene, hits: hitNodes(this.store, this.#graph), focus: this.#focus,
      chosen: s?.kind === "value" && (s.graph ?? this.#graph) === this.#graph ? s.id : -1,
      facts: { block: (row) => this.#facts(row), card: (row) => this.#cardFacts(row) },
    };
  }

  title(target: Target): string {
    const { p } = this.store;
    const g = p.graphs[this.#graph];
    if (target?.kind === "value") return g.values[target.value];
    if (target?.kind === "exit") return "Go to where this edge leads";
    if (target?.kind === "pair") return [target.text, p.strings[p.pair.sentence[target.pairs[0]]]].join("\n");
    if (target?.kind === "node") {
      const step = this.store.now.steps[target.node];
      const infos = step >= 0 ? Array.from(p.out.info.subarray(p.step.out[step], p.step.out[step + 1]), (i) => p.strings[i]) : [];
      return [`${g.nodes[target.node][1]}  ${g.nodes[target.node][0]}`, ...infos].join("\n");
    }
    if (target?.kind === "cell") return `Show ${this.#deck.cards[target.row.card].stack || "block"} ${this.#deck.cards[target.row.card].members[target.cell].label}`;
    return target?.kind === "head" ? this.#name(target.row) : "";
  }

  settled(): void {
    const { port } = this.#stage;
    if (!this.#deck) return;
    if (this.#framed.outgrown()) return this.#sync(true);
    this.#list.place((row, node) => {
      const r = this.#stage.rect(row, node);
      const rect = { x: r.x - port.x, y: r.y - port.y, w: r.w, h: r.h };
      return rect.x + rect.w > 0 && rect.y + rect.h > 0 && rect.x < port.w && rect.y < port.h ? rect : null;
    });
  }

  // -- clicks and keys ---------------------------------------------------------------------------------------------

  double(target: Target): void { if (target?.kind === "node") this.#run(target.node); }

  click(target: Target): void {
    const { store } = this;
    if (target?.kind === "exit") return;
    if (target?.kind === "head") return this.#framed.around ? this.#framed.unfold() : this.#toggle(target.row);
    if (target?.kind === "cell") return this.#pick(target.row.card, target.cell);
    // repeated clicks cycle through the pairs of a line
    if (target?.kind === "pair") return store.choosePair(target.pairs[(target.pairs.indexOf(store.pair) + 1) % target.pairs.length]);
    store.select(target && { kind: target.kind, id: target.kind === "node" ? target.node : target.value, graph: this.#graph });
  }

  #run(node: number): void {
    const { now, t } = this.store;
    if (now.steps[node] >= 0) this.store.go(numberOf(t, now.steps[node]));
    else this.choose(node);
  }

  #toggle(row: Row): void {
    const { open, shown } = this.#deck;
    if (row.block >= 0) open.set(row.block, !row.open);
    else shown.set(row.card, row.open ? null : 0);
    this.#relay();
  }

  /** Show another member of a card, with the same parts open. */
  #pick(card: number, member: number): void {
    const { cards, open, shown } = this.#deck;
    const before = this.#member(card);
    if (typeof before === "number") {
      const parts = cards[card].members[before].blocks.map((b) => this.#open(b));
      cards[card].members[member].blocks.forEach((b, i) => open.set(b, parts[i] ?? false));
    }
    shown.set(card, member);
    this.#relay();
  }

  #key(key: string): boolean | void {
    const zooms: Record<string, () => void> = { "+": () => this.#stage.zoomTo(this.#stage.zoom * 1.25), "-": () => this.#stage.zoomTo(this.#stage.zoom / 1.25), 0: () => this.#stage.zoomTo(1) };
    const at = this.#focus;
    // after a click, left and right still move the cursor
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    if (zooms[key]) zooms[key]();
    else if (key === "ArrowUp" || key === "ArrowDown" || (sideways && this.#walking)) {
      this.#walking = true;
      const from = at ?? this.#first();
      const row = from && this.#rowOf(from.block);
      if (sideways && at && at.node < 0 && at.block < 0) {
        const [now, n] = [this.#member(at.card), this.#deck.cards[at.card].members.length];
        this.#pick(at.card, ((typeof now === "number" ? now : -1) + (key === "ArrowRight" ? 1 : n - 1 + (typeof now === "number" ? 0 : 1))) % n);
      } else this.#at(at || !row ? walk(this.#stage.level.rows, (r) => this.sketch(r), from, key) : from);
    } else if (key === "Enter" && at) {
      if (at.node >= 0) this.#run(at.node);
      else this.#toggle(this.#stage.level.rows.find((r) => r.block === at.block && r.card === at.card)!);
    } else return false;
  }

  /** Where walking by keys starts: at the selection, else at the cursor. */
  #first(): Place | null {
    const { selection: s, t } = this.store;
    const rowOf = (node: number) => this.#rowOf(t.x.graphs[this.#graph].block[node] ?? -1);
    const chosen = s?.kind === "node" && (s.graph ?? this.#graph) === this.#graph && (rowOf(s.id)?.block ?? -1) >= 0;
    const node = chosen ? s.id : this.#focusNode();
    const row = rowOf(node) ?? this.#stage.level.rows[0];
    return row ? { card: row.card, block: row.block, node: row.open && row.block >= 0 ? node : -1 } : null;
  }

  #at(place: Place | null): void {
    this.#focus = place;
    const item = place && this.#list.item(place.block, place.card, place.node);
    mark(this.#root, "aria-activedescendant", item?.id ?? null);
    if (place && item) {
      say(this.#said, item.getAttribute("aria-label") ?? "");
      const row = this.#stage.level.rows.find((r) => r.block === place.block && r.card === place.card);
      if (row) this.#stage.reveal(this.#stage.rect(row, place.node));
      if (place.node >= 0) this.store.select({ kind: "node", id: place.node, graph: this.#graph });
    }
    this.#stage.soon();
  }
}

export default ((host, { store, commands, share }, signal) => {
  const pane = new GraphPane(host, store, (node) => commands.choose(node, store.now.graph), signal);
  host.querySelector(".kv-tools")!.append(copyButton(host, "graph", share, signal));
  host.append(graphLegend(store.t.p.codes));
  return pane;
}) satisfies MakePane;
