// The frontier: what could run now and what each choice would cost; at the live edge a choice can be made.
import type { Commands } from "./commands.js";
import { el, hit, mark, place, say } from "./dom.js";
import { count, opName, shortName, signed } from "./format.js";
import { atEdge } from "./replay.js";
import type { Change, Store, View } from "./store.js";

const MOST = 60;

export class FrontierPane implements View {
  readonly slow = true;
  #head = el("h3", {}, "Frontier");
  #rows = new Map<string, HTMLElement>(); // rows that say the same as before stay
  #hint = el("span", { class: "kv-hint" });
  #list = el("ul", { class: "kv-list", "aria-label": "Ops that can run now" });

  constructor(host: HTMLElement, private store: Store, commands: Commands, signal: AbortSignal) {
    host.append(el("header", {}, this.#head, this.#hint), this.#list);
    this.#list.addEventListener("click", (event) => {
      const run = hit(event, "run-next");
      const row = hit(event, "frontier-row");
      if (run) commands.choose(Number(run.dataset.node));
      else if (row) store.select({ kind: "node", id: Number(row.dataset.node), graph: Number(row.dataset.graph) });
    }, { signal });
    this.#list.addEventListener("dblclick", (event) => {
      const row = hit(event, "frontier-row");
      if (row) commands.choose(Number(row.dataset.node));
    }, { signal });
  }

  update(change: Change): void {
    if (change.payload) this.#rows.clear();
    if (change.cursor || change.payload) this.#fill();
    if (change.cursor || change.payload || change.selection) this.#light();
  }

  #fill(): void {
    const { store } = this;
    const { p } = store.t;
    const { now } = store;
    const edge = atEdge(store.t, store.cursor);
    const graph = p.frame.graph[now.next] ?? 0;
    const g = p.graphs[graph];
    const ran = now.next < 0 ? -1 : this.#nextNode();
    say(this.#head, now.choices.length ? `Frontier ${count(now.choices.length)}` : "Frontier");
    const where = now.next >= 0 && now.next !== now.frame ? this.#place() : "";
    say(this.#hint, now.next < 0 ? "everything has run" : where || (edge ? "choose one to run it next" : "can run now"));
    const kept = new Map<string, HTMLElement>();
    const rows = now.choices.slice(0, MOST).map((c) => {
      const op = opName(g.nodes[c.node][1]);
      const key = `${graph} ${c.node} ${c.step} ${c.alloc} ${c.frees} ${c.node === ran} ${edge}`;
      const old = this.#rows.get(key);
      if (old) {
        kept.set(key, old);
        return old;
      }
      const row = el("li", {
        "data-kv": "frontier-row", "data-node": c.node, "data-graph": graph, "data-step": c.step,
        "data-next": c.node === ran ? 1 : null, title: c.step >= 0 ? `${g.nodes[c.node][0]}: ran as step ${c.step}` : g.nodes[c.node][0],
      },
      el("span", { class: "kv-what" }, el("span", { class: "kv-op" }, op), el("span", { class: "kv-name" }, shortName(g, c.node))),
      el("span", { class: "kv-num", title: "allocates", "data-zero": c.alloc === 0 ? 1 : null }, signed(c.alloc)),
      el("span", { class: "kv-num kv-free", title: "frees" }, c.frees ? signed(-c.frees) : ""));
      if (edge) row.append(el("button", { type: "button", "data-kv": "run-next", "data-node": c.node, title: "Run this op next (Enter)" }, "Run next"));
      kept.set(key, row);
      return row;
    });
    this.#rows = kept;
    if (now.choices.length > MOST) rows.push(el("li", { class: "kv-none" }, `${now.choices.length - MOST} more`));
    place(this.#list, rows);
  }

  /** The node that the recording ran next in the frontier's frame. */
  #nextNode(): number {
    const { store } = this;
    let best = -1;
    for (const c of store.now.choices) if (c.step >= 0 && (best < 0 || c.step < best)) best = c.step;
    return best < 0 ? -1 : store.t.p.step.node[best];
  }

  #place(): string {
    const { p } = this.store.t;
    const { now } = this.store;
    const run = p.frame.run[now.next];
    if (run !== p.frame.run[now.frame]) return `${p.runs[run]?.label ?? "the next run"} begins`;
    return `in ${p.strings[p.frame.label[now.next]] || "main"}`;
  }

  #light(): void {
    const { now, selection } = this.store;
    for (const row of this.#list.querySelectorAll<HTMLElement>('[data-kv="frontier-row"]')) {
      const mine = Number(row.dataset.graph) === now.graph && now.lit.nodes.has(Number(row.dataset.node));
      mark(row, "data-lit", mine ? "1" : null);
      mark(row, "aria-selected", selection?.kind === "node" && mine ? "true" : null);
    }
  }
}
