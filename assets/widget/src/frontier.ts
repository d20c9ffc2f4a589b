// The frontier: the ops that could run now and what each would cost, as a list and in one line.
import { button, el, hit, mark, name, on, onHit, place, say } from "./dom.js";
import { bytes, count, opLabel, opName, shortName, signed } from "./format.js";
import { atEdge, numberOf } from "./replay.js";
import type { Change, Store, View } from "./store.js";

const MOST = 60;

export class FrontierPane implements View {
  readonly slow = true;
  #head = el("h3", {}, "Frontier");
  #rows = new Map<string, HTMLElement>(); // rows that say the same as before stay
  #hint = el("span.kv-hint");
  #list = el("ul.kv-list", { "aria-label": "Ops that can run now" });

  constructor(host: HTMLElement, private store: Store, choose: (node: number) => void, signal: AbortSignal) {
    host.append(el("header", {}, this.#head, this.#hint), this.#list);
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
    say(this.#head, now.choices.length ? `Frontier ${count(now.choices.length)}` : "Frontier");
    const where = now.next >= 0 && now.next !== now.frame ? this.#place() : "";
    say(this.#hint, now.hint ?? (now.next < 0 ? "everything has run" : where || (edge ? "choose one to run it next" : "could run now")));
    const kept = new Map<string, HTMLElement>();
    const rows = now.choices.slice(0, MOST).map((c) => {
      const op = opName(g.nodes[c.node][1]);
      const key = `${graph} ${c.node} ${c.step} ${c.alloc} ${c.frees} ${isNext(c)} ${edge}`;
      const old = this.#rows.get(key);
      if (old) {
        kept.set(key, old);
        return old;
      }
      const row = el("li", {
        "data-kv": "frontier-row", "data-node": c.node, "data-graph": graph, "data-step": c.step,
        "data-next": isNext(c) ? 1 : null, title: c.step >= 0 ? `${g.nodes[c.node][0]}: ran as step ${numberOf(this.store.t, c.step)}` : g.nodes[c.node][0],
      },
      el("span.kv-what", {}, el("span.kv-op", {}, op), el("span.kv-name", {}, name(shortName(g, c.node), g.nodes[c.node][0]))),
      el("span.kv-num", { title: "allocates", "data-zero": c.alloc === 0 ? 1 : null }, signed(c.alloc)),
      el("span.kv-num.kv-free", { title: "frees" }, c.frees ? signed(-c.frees) : ""));
      if (edge || !isNext(c)) row.append(el("button", { "data-kv": "run-next", "data-node": c.node, title: edge ? "Run this op next (Enter)" : "Fork: run this op here, in a lane of its own (Enter)" }, edge ? "Run next" : "Fork"));
      kept.set(key, row);
      return row;
    });
    this.#rows = kept;
    if (now.choices.length > MOST) rows.push(el("li.kv-none", {}, `${now.choices.length - MOST} more`));
    place(this.#list, rows);
  }

  #place(): string {
    const { p, now } = this.store;
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

const LISTED = 4;

export class ReadyLine implements View {
  readonly slow = true;
  #text = el("span.kv-ready");
  #more: HTMLButtonElement;
  #open = true;

  /** `list`: the pane with all of them, always open at the live edge, where one can be chosen. */
  constructor(host: HTMLElement, private list: HTMLElement, private store: Store, signal: AbortSignal) {
    this.#more = button("", "List all ops that could run now", "ready-more", () => {
      this.#open = !this.#open;
      this.#draw();
    }, signal);
    host.append(el("div.kv-readyline", { "data-kv": "ready" }, this.#text, this.#more));
    on(this.#text, "click", (event) => {
      const node = hit(event, "ready-node");
      if (node) store.select({ kind: "node", id: Number(node.dataset.id), graph: Number(node.dataset.graph) });
    }, signal);
  }

  update(change: Change): void {
    if (change.cursor || change.payload) this.#draw();
  }

  #draw(): void {
    const { now, t, p, cursor } = this.store;
    const edge = atEdge(t, cursor);
    const all = [...now.choices].sort((a, b) => (a.step < 0 ? Infinity : a.step) - (b.step < 0 ? Infinity : b.step));
    const graph = p.frame.graph[now.next] ?? 0;
    const open = edge || this.#open;
    this.list.hidden = !open || !all.length;
    mark(this.#more, "aria-expanded", String(open));
    this.#more.hidden = edge || all.length < 2;
    say(this.#more, this.#open ? "fold ▾" : `all ${count(all.length)} ▸`);
    const first = all[0];
    const link = (node: number, chosen: boolean) => el("button", { class: chosen ? "kv-link kv-next" : "kv-link", "data-kv": "ready-node", "data-id": node, "data-graph": graph, title: p.graphs[graph].nodes[node][0] }, opLabel(p.graphs[graph], node));
    if (!first) return this.#text.replaceChildren(now.next < 0 ? "Everything has run." : "Nothing can run here.");
    const note = first.step < 0 ? "" : p.strings[p.step.note[first.step]];
    const frees = first.frees ? ` (frees ${bytes(first.frees)})` : "";
    const rest = all.slice(1, 1 + LISTED).flatMap((c) => [" · ", link(c.node, false)]);
    this.#text.replaceChildren(el("b", {}, `Ready ${count(all.length)}`), " ", link(first.node, first.step >= 0),
      el("span.kv-soft", { title: note }, first.step < 0 ? "" : ` ran next${note ? `: ${note}` : all.length > 1 ? ", the policy's choice" : ""}${frees}`), ...rest, all.length > 1 + LISTED ? " …" : "");
  }
}
