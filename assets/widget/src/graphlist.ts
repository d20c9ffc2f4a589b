// Elements beside the graph canvas: its legend, and its content as invisible ones for screen readers, tests and keys.
import { ensure, kept } from "./arrays.js";
import { el, mark, place } from "./dom.js";
import type { Rect, Row } from "./level.js";
import { badgeOf } from "./pair.js";
import { ended, type Scene } from "./sketchview.js";
import { letter, type State } from "./replay.js";
import type { Store } from "./store.js";
import type { Codes } from "./wire.js";

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
