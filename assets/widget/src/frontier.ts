// The frontier: the ops that could run now, and what each would cost.
import { ensure } from "./arrays.js";
import { el, hit, mark, name, on, onHit, place, say } from "./dom.js";
import { count, opName, plural, shortName, signed } from "./format.js";
import { atEdge, numberOf } from "./replay.js";
import type { Change, Now, Store, View } from "./store.js";
import { word } from "./popover.js";

const MOST = 60;

export class FrontierPane implements View {
  readonly slow = true;
  #count = el("span");
  #rows = new Map<string, HTMLElement>(); // rows that say the same as before stay
  #hint = el("span.kv-hint");
  #list = el("ul.kv-list", { "aria-label": "Ops that can run now" });

  constructor(host: HTMLElement, private store: Store, choose: (node: number) => void, signal: AbortSignal) {
    host.append(el("header", {}, el("h3", {}, word("frontier", "Frontier"), this.#count), this.#hint), this.#list);
    on(this.#list, "click", (event) => {
      const run = hit(event, "run-next");
      const row = hit(event, "frontier-row");
      if (run) choose(Number(run.dataset.node));
      else if (row) store.select({ kind: "node", id: Number(row.dataset.node), graph: Number(row.dataset.graph) });
    }, signal);
    onHit(this.#list, "frontier-row", (row) => choose(Number(row.dataset.node)), signal, "dblclick");
  }

  update(change: Change): void {
    if (change.payload) this.#rows.clear();
    if (change.cursor || change.payload) this.#fill();
    if (change.cursor || change.payload || change.selection) this.#light();
  }

  #fill(): void {
    const { store } = this;
    const { p, now } = store;
    const edge = atEdge(store.t, store.cursor);
    const graph = p.frame.graph[now.next] ?? 0;
    const g = p.graphs[graph];
    const isNext = (c: { step: number }) => c.step >= 0 && c.step === now.ran; // the recording ran it
    say(this.#count, now.choices.length ? ` ${count(now.choices.length)}` : "", `${plural(now.choices.length, "op")} can run at this step`);
    const run = p.frame.run[now.next];
    const where = now.next < 0 || now.next === now.frame ? "" : run === p.frame.run[now.frame] ? `in ${p.strings[p.frame.label[now.next]] || "main"}` : `${p.runs[run]?.label ?? "the next run"} begins`;
    say(this.#hint, now.hint ?? (now.next < 0 ? (p.steps ? "everything has run" : "nothing has run") : where || (edge ? "choose one to run it next" : "could run now")));
    const made = (c: Now["choices"][number]) => {
      const op = opName(g.nodes[c.node][1]);
      const row = el("li", {
        "data-kv": "frontier-row", "data-node": c.node, "data-graph": graph, "data-step": c.step,
        "data-next": isNext(c) ? 1 : null, title: c.step >= 0 ? `${g.nodes[c.node][0]}: ran as step ${numberOf(this.store.t, c.step)}` : g.nodes[c.node][0],
      },
      el("span.kv-what", {}, el("span.kv-op", {}, op), el("span.kv-name", {}, name(shortName(g, c.node), g.nodes[c.node][0]))),
      el("span.kv-num", { title: "allocates", "data-zero": c.alloc === 0 ? 1 : null }, signed(c.alloc)),
      el("span.kv-num.kv-free", { title: "frees" }, c.frees ? signed(-c.frees) : ""));
      const note = c.step < 0 ? "" : p.strings[p.step.note[c.step]];
      if (!edge && isNext(c)) row.append(el("span.kv-soft", { title: note || "the choice of the policy" }, "ran next"));
      else row.append(el("button", { "data-kv": "run-next", "data-node": c.node, title: edge ? "Run this op next (Enter)" : "Fork: run this op here, in a lane of its own (Enter)" }, edge ? "Run next" : "Fork"));
      return row;
    };
    const old = this.#rows;
    this.#rows = new Map();
    const rows = now.choices.slice(0, MOST).map((c) => {
      const key = `${graph} ${c.node} ${c.step} ${c.alloc} ${c.frees} ${isNext(c)} ${edge}`;
      return ensure(this.#rows, key, () => old.get(key) ?? made(c));
    });
    if (now.choices.length > MOST) rows.push(el("li.kv-none", {}, `${now.choices.length - MOST} more`));
    place(this.#list, rows);
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
