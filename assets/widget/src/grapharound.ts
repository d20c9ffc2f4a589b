// What stands around the graph's canvas: the way to the shown frame, the switch of a framed finding, the legend, and the content as invisible
// elements for screen readers, tests and keys.
import { ensure, kept } from "./arrays.js";
import { button, el, mark, on, onHit, place, say } from "./dom.js";
import { ended, type Rect, type Row, type Scene } from "./level.js";
import { badgeOf } from "./pair.js";
import { letter, numberOf, stack, stepsOf, type State, type Trace } from "./replay.js";
import type { Store } from "./store.js";
import type { Codes } from "./wire.js";
import { plural } from "./format.js";
import { around, type Around } from "./participants.js";
import { LEGIBLE, type Stage } from "./stage.js";

interface Item { head: HTMLElement; of: number[]; nodes: HTMLElement[]; states: string[] }
let ids = 0;

export class GraphList {
  readonly root = el("div.kv-nodes", { role: "presentation" });
  #known = new Map<string, Item>();
  #shown: { item: Item; row: Row }[] = [];
  #placed: HTMLElement[] = [];

  constructor(private store: Store) {}

  clear(): void { this.#known.clear(); }

  show(graph: number, rows: Row[], title: (row: Row) => string, nodes: (row: Row) => number[]): void {
    this.#shown = rows.map((row) => {
      const key = row.block < 0 ? `${graph} card ${row.card}` : `${graph}:${row.block}`;
      const item = ensure(this.#known, key, () => ({ head: this.#option(row.block < 0 ? "card" : "block", { "data-id": row.block < 0 ? row.card : row.block }), of: [], nodes: [], states: [] }));
      mark(item.head, "aria-label", title(row));
      if (row.open && row.block >= 0 && item.of !== nodes(row)) {
        item.of = nodes(row);
        item.states = [];
        item.nodes = item.of.map((n) => this.#option("graph-node", { "data-node": n, "data-graph": graph }));
      }
      return { item, row };
    });
    place(this.root, this.#shown.flatMap(({ item, row }) => (row.open && row.block >= 0 ? [item.head, ...item.nodes] : [item.head])));
  }

  #option(kv: string, attributes: Record<string, string | number>): HTMLElement {
    return el("span", { role: "option", "aria-selected": "false", "data-kv": kv, id: `kv-op-${++ids}`, ...attributes });
  }

  sync(graph: number, scene: Scene): void {
    const { p } = this.store.t;
    const g = p.graphs[graph];
    const hits = hitNodes(this.store, graph);
    for (const { item, row } of this.#shown) {
      if (!row.open || row.block < 0) continue;
      item.nodes.forEach((node, i) => {
        const n = item.of[i];
        const state = scene.states[n];
        const end = ended(p, scene, n);
        mark(node, "data-lit", scene.lit.nodes.has(n) ? "1" : null);
        const sides = scene.steps[n] >= 0 ? badgeOf(this.store.versus, this.store.t, scene.steps[n]) : "";
        const found = hits.has(n) ? ", found by the query" : "";
        const shown = `${state} ${end} ${sides}${found}`;
        if (item.states[i] === shown) return;
        item.states[i] = shown;
        mark(node, "data-state", state);
        const words = scene.words?.[state] ?? p.codes.state.find(([name]) => name === state)?.[2];
        mark(node, "aria-label", `${g.nodes[n][1]} ${g.nodes[n][0]}, ${words}${sides && `, ${sides}`}${found}`);
        mark(node, "data-hit", found ? 1 : null);
        mark(node, "data-versus", sides || null);
        mark(node, "data-mark", letter(p.codes, state));
      });
    }
  }

  /** Place the elements of visible boxes over them; all others have no size. */
  place(seen: (row: Row, node: number) => Rect | null): void {
    const now: HTMLElement[] = [];
    for (const { item, row } of this.#shown) {
      const put = (node: HTMLElement, rect: Rect | null) => {
        if (!rect) return;
        now.push(node);
        node.style.cssText = `transform:translate(${rect.x.toFixed(1)}px,${rect.y.toFixed(1)}px);width:${rect.w.toFixed(1)}px;height:${rect.h.toFixed(1)}px`;
      };
      put(item.head, seen(row, -1));
      if (row.open && row.block >= 0) item.nodes.forEach((node) => put(node, seen(row, Number(node.dataset.node))));
    }
    for (const node of this.#placed) if (!now.includes(node)) node.style.cssText = "";
    this.#placed = now;
  }

  item(block: number, card: number, node: number): HTMLElement | null {
    const found = this.#shown.find(({ row }) => row.block === block && (block >= 0 || row.card === card));
    if (!found) return null;
    return node < 0 ? found.item.head : found.item.nodes.find((n) => n.dataset.node === String(node)) ?? null;
  }
}

const found = kept((_: Int32Array) => new Map<number, ReadonlySet<number>>());

/** Ops of a graph that the query finds in any run or iteration. */
export function hitNodes({ hits, t: { p } }: Pick<Store, "hits" | "t">, graph: number): ReadonlySet<number> {
  if (!hits) return new Set();
  return ensure(found(hits), graph, () => new Set(Array.from(hits).filter((step) => p.frame.graph[p.step.frame[step]] === graph).map((step) => p.step.node[step])));
}

const PLAIN = new Set(["waiting", "done"]); // look like what they are: nothing yet, and nothing more to say

export function graphLegend(codes: Codes): HTMLElement {
  const signs = codes.state.filter(([name]) => !PLAIN.has(name)).map(([name, , about]) =>
    el("span", {}, el("i.kv-sample", { "data-state": name }, letter(codes, name as State) || "\u00A0"), about));
  return el("p.kv-graph-legend", { "data-kv": "graph-legend" }, ...signs);
}

/** Frames of the same body under the same op, by iteration. */
export function iterations({ p }: Pick<Trace, "p">, frame: number): number[] {
  const { parent, iteration } = p.frame;
  return iteration[frame] < 0 ? [] : twins({ p }, frame, parent[frame]).sort((a, b) => iteration[a] - iteration[b]);
}

/** The frames of the same body under the same op in a frame around it. */
function twins({ p: { frame: { graph, parent, node } } }: Pick<Trace, "p">, inner: number, around: number): number[] {
  return [...parent.keys()].filter((f) => parent[f] === around && node[f] === node[inner] && graph[f] === graph[inner]);
}

/** The step of the same op in another frame of the body, else the first step there; -1 if none is loaded. */
export function sameIn(t: Trace, frame: number, node: number): number {
  const same = node < 0 ? -1 : stepsOf(t, frame)[node];
  return same >= 0 ? same : t.x.first[frame] < t.p.steps ? t.x.first[frame] : -1;
}

export class Crumbs {
  readonly root = el("nav.kv-crumbs", { "aria-label": "call stack" });
  #shown = "";

  constructor(private store: Store, signal: AbortSignal) {
    onHit(this.root, "crumb", (crumb) => store.seek(Number(crumb.dataset.step)), signal);
    on(this.root, "change", (event) => {
      const choice = event.target as HTMLSelectElement;
      const { t, cursor, now } = store;
      const frames = stack(t, now.frame);
      let [frame, node] = [Number(choice.value), cursor < 0 ? -1 : t.p.step.node[cursor]];
      for (const inner of frames.slice(frames.indexOf(Number(choice.dataset.frame)) + 1)) {
        const [there] = twins(t, inner, frame);
        if (there === undefined) {
          node = t.p.frame.node[inner]; // this iteration took another branch
          break;
        }
        frame = there;
      }
      const step = sameIn(t, frame, node);
      if (step >= 0) store.seek(step);
      else store.tell("no step of that iteration is here");
    }, signal);
  }

  /** `block`: title of the cursor's block. */
  show(block: string): void {
    const { t, p, now } = this.store;
    const key = `${now.frame}:${p.frames}:${p.steps}:${block}`;
    if (key === this.#shown) return;
    this.#shown = key;
    const frames = stack(t, now.frame);
    const parts: Node[] = [];
    const sep = () => { if (parts.length) parts.push(el("span.kv-sep", { "aria-hidden": "true" }, "›")); };
    frames.forEach((f, i) => {
      const text = i === 0 ? p.graphs[p.frame.graph[f]].name || "main" : p.strings[p.frame.label[f]];
      const inner = frames[i + 1];
      const back = inner === undefined ? -1 : stepsOf(t, f)[p.frame.node[inner]];
      sep();
      parts.push(back >= 0
        ? el("button", { "data-kv": "crumb", "data-step": back, title: `Go to step ${numberOf(t, back)}, where ${text} goes on` }, text)
        : el("span", { class: inner === undefined && !block ? "kv-here" : "", "data-kv": "crumb-here", title: text }, text));
      const all = iterations(t, f);
      if (all.length > 1) {
        parts.push(el("select", { "data-kv": "iteration", "data-frame": f, "aria-label": `Iteration of ${text}`, title: "Go to the same op in another iteration" },
          ...all.map((other, k) => el("option", { value: other, selected: other === f }, `iteration ${k + 1} of ${all.length}`))));
      }
    });
    for (const part of block.split(" · ").filter(Boolean)) {
      sep();
      parts.push(el("span.kv-part", { title: part }, part));
    }
    this.root.replaceChildren(...parts);
  }
}

const TURNS = 4; // neighbours that are tried, by turns before and after
const WIDE = 1000; // px of the pane from which on they are drawn
const ABOVE = 60; // px over and under the drawing

export class Framed {
  around: Around | null = null;
  readonly button: HTMLButtonElement;
  #whole = false; // somebody asked for all ops of the block
  #usual = 1; // the zoom of whole blocks

  constructor(private store: Store, private root: HTMLElement, changed: () => void, signal: AbortSignal) {
    this.button = button("", "", "hidden-ops", () => {
      this.#whole = !this.#whole;
      changed();
    }, signal);
    this.button.className = "kv-link";
  }

  unfold(): void { if (this.around) this.button.click(); }

  /** What takes part, with as many of its neighbours as have room at true size. */
  #drawn(): Around | null {
    const { clientWidth: w, clientHeight: h } = this.root;
    const { evidence, report, cursor, t } = this.store;
    const step = evidence?.steps[evidence.at] ?? -1;
    if (step < 0 || step !== cursor) return null;
    const peak = report?.findings[evidence!.finding]?.kind === "peak";
    let best = around(t, step, peak);
    let [up, down] = [0, 0];
    for (let turn = 0; best && w >= WIDE && turn < TURNS; turn++) {
      const next: [number, number] = turn % 2 ? [up, down + 1] : [up + 1, down];
      const wider = around(t, step, peak, ...next)!;
      if (wider.w <= w && wider.h <= (h - ABOVE) / LEGIBLE) [best, up, down] = [wider, ...next];
    }
    return best;
  }

  /** Whether another drawing fits since the pane has another size. */
  outgrown(): boolean { return !!this.around && this.#drawn()?.boxes.length !== this.around.boxes.length; }

  /** Follow the evidence; returns whether the drawing changes. */
  follow(stage: Stage): boolean {
    const drawn = this.#drawn();
    const [had, now] = [this.around, this.#whole ? null : drawn];
    this.button.hidden = !drawn?.hidden;
    if (drawn) {
      say(this.button, this.#whole ? "only what takes part" : `${plural(drawn.hidden, "op")} of this block hidden · show all`, this.#whole ? "Fold the ops that play no part in this step of the finding" : "Show the whole block");
    }
    mark(this.root, "data-evidence", now ? this.store.cursor : null);
    mark(this.root, "aria-description", now ? now.said.join("; ") : null);
    if (!had && !now) return false;
    this.around = now;
    if (!had) this.#usual = stage.zoom;
    stage.level = { rows: [], w: 0, h: 0 };
    stage.small = !!now;
    if (!now) stage.zoomTo(this.#usual);
    return true;
  }
}
