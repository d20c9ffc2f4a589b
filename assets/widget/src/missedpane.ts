// The list of ops that could have run in place and did not, worst first; a click goes to the next time it happens.
import { el, hit, mark } from "./dom.js";
import { bytes, count, opName, shortName } from "./format.js";
import { missed, occurrence, type Missed } from "./missed.js";
import type { Change, Store, View } from "./store.js";

const MOST = 300;

export class MissedPane implements View {
  readonly slow = true;
  #list: Missed[] = [];
  #body = el("tbody");

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    const columns: [string, string][] = [["kv-num", "bytes"], ["", "op"], ["", "name"], ["", "block"], ["kv-num", "times"], ["", "blocked by"], ["", "why"]];
    host.append(el("div", { class: "kv-scroll" }, el("table", { class: "kv-table kv-missed", "aria-label": "Missed in-place ops" },
      el("thead", {}, el("tr", {}, ...columns.map(([c, text]) => el("th", { scope: "col", class: c }, text)))), this.#body)));
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "missed-row");
      if (!row) return;
      const m = this.#list[Number(row.dataset.id)];
      store.seek(occurrence(m, store.cursor));
      store.select({ kind: "node", id: m.node, graph: m.graph });
    }, { signal });
  }

  get count(): number { return this.#list.length; }

  update(change: Change): void {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      this.#list = missed(store.t);
      const rows = this.#list.slice(0, MOST).map((m, i) => {
        const g = p.graphs[m.graph];
        return el("tr", { "data-kv": "missed-row", "data-id": i, "data-node": m.node, "data-step": m.steps[0], title: `${g.nodes[m.node][0]}\nsteps ${m.steps.slice(0, 12).join(", ")}${m.steps.length > 12 ? " …" : ""}` },
          el("td", { class: "kv-num" }, el("b", {}, bytes(m.bytes))), el("td", { class: "kv-op" }, opName(g.nodes[m.node][1])),
          el("td", {}, shortName(g, m.node)), el("td", { class: "kv-soft" }, g.blocks[store.t.x.graphs[m.graph].block[m.node]]?.title ?? ""), el("td", { class: "kv-num" }, `${count(m.steps.length)}×`),
          el("td", {}, el("code", {}, m.code)), el("td", { class: "kv-wide" }, m.message));
      });
      if (!rows.length) rows.push(el("tr", {}, el("td", { colspan: 7, class: "kv-none" }, "Nothing missed: every op that could run in place did.")));
      if (this.#list.length > MOST) rows.push(el("tr", {}, el("td", { colspan: 7, class: "kv-none" }, `${count(this.#list.length - MOST)} more`)));
      this.#body.replaceChildren(...rows);
    }
    if (change.cursor || change.payload || change.selection) {
      const { cursor, selection } = store;
      for (const row of this.#body.querySelectorAll<HTMLElement>('[data-kv="missed-row"]')) {
        const m = this.#list[Number(row.dataset.id)];
        mark(row, "aria-current", cursor >= 0 && p.step.node[cursor] === m.node && p.frame.graph[p.step.frame[cursor]] === m.graph && m.steps.includes(cursor) ? "step" : null);
        mark(row, "data-lit", selection?.kind === "node" && selection.id === m.node && selection.graph === m.graph ? 1 : null);
      }
    }
  }
}
