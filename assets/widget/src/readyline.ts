// What could run now, in one line: the op that ran next and why, then the others; the list behind it opens on demand.
import { button, el, mark, on, hit, say } from "./dom.js";
import { bytes, count, opName, shortName } from "./format.js";
import { atEdge } from "./replay.js";
import type { Change, Store, View } from "./store.js";

const TOLD = 4;

export class ReadyLine implements View {
  readonly slow = true;
  #text = el("span.kv-ready");
  #more: HTMLButtonElement;
  #open = false;

  /** `list`: the pane with all of them; at the live edge, where one can be chosen, it is always open. */
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
    const { now, t, cursor } = this.store;
    const { p } = t;
    const edge = atEdge(t, cursor);
    const all = [...now.choices].sort((a, b) => (a.step < 0 ? Infinity : a.step) - (b.step < 0 ? Infinity : b.step));
    const graph = p.frame.graph[now.next] ?? 0;
    const open = edge || this.#open;
    this.list.hidden = !open || !all.length;
    mark(this.#more, "aria-expanded", String(open));
    this.#more.hidden = edge || all.length < 2;
    say(this.#more, this.#open ? "fold" : "all ▸");
    const first = all[0];
    const name = (node: number) => `${opName(p.graphs[graph].nodes[node][1])} ${shortName(p.graphs[graph], node)}`.trim();
    const link = (node: number, chosen: boolean) => el("button", { class: chosen ? "kv-link kv-next" : "kv-link", "data-kv": "ready-node", "data-id": node, "data-graph": graph, title: p.graphs[graph].nodes[node][0] }, name(node));
    if (!first) return this.#text.replaceChildren(now.next < 0 ? "Everything has run." : "Nothing can run here.");
    const note = first.step < 0 ? "" : p.strings[p.step.note[first.step]];
    const frees = first.frees ? ` (frees ${bytes(first.frees)})` : "";
    const rest = all.slice(1, 1 + TOLD).flatMap((c) => [" · ", link(c.node, false)]);
    this.#text.replaceChildren(el("b", {}, `Ready ${count(all.length)}`), " ", link(first.node, first.step >= 0),
      el("span.kv-soft", { title: note }, first.step < 0 ? "" : ` ran next${note ? `: ${note}` : all.length > 1 ? ", the policy's choice" : ""}${frees}`), ...rest, all.length > 1 + TOLD ? " …" : "");
  }
}
