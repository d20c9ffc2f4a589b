// The table of steps: every step in words, searchable, drawn only where it is looked at. It is the accessible form of the page.
import { el, NUMBER, on, onHit, say, td } from "./dom.js";
import { letter } from "./sketchview.js";
import { bytes, count, opName, shape, shortName } from "./format.js";
import { find } from "./search.js";
import { outcome, type State } from "./replay.js";
import { Rows } from "./rows.js";
import { touched } from "./select.js";
import { bareRuns, numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";

const WORDS: Partial<Record<State, string>> = { in_place: "in place", missed: "not in place", view: "view", foreign: "foreign", done: "new buffer" };

/** What decides which rows are lit. */
function litKey({ selection, now }: Store): string {
  return selection ? `${selection.kind} ${selection.id} ${selection.graph} ${[...now.lit.storages]}` : "";
}

export class StepTable implements View {
  readonly slow = true;
  readonly search = el("input", { type: "search", placeholder: "Search op, name, B12, missed …", "aria-label": "Search steps", "data-kv": "search-input" });
  #found = el("span.kv-hint");
  #rows: Rows;
  #steps: Int32Array | null = null; // found steps; null = all
  #lit = "";
  #later: number | undefined;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    this.#rows = new Rows("Steps", "kv-steps", ["step#", "run", "block", "op", "name", "decision", "output", "allocated#", "copied#", "written#", "live#"], store, (row) => this.#row(row), signal);
    host.append(el("div.kv-searchline", {}, this.search, this.#found), this.#rows.root);
    onHit(this.#rows.root, "table-row", (row) => store.seek(Number(row.dataset.step)), signal);
    on(this.search, "input", () => {
      clearTimeout(this.#later);
      this.#later = setTimeout(() => this.#search(), 120) as unknown as number;
    }, signal);
    on(this.search, "keydown", (event) => {
      if (event.key !== "Enter") return;
      this.#search();
      this.#jump(event.shiftKey ? -1 : 1);
    }, signal);
  }

  get #count(): number { return this.#steps?.length ?? this.store.t.p.steps; }

  #search(): void {
    const text = this.search.value.trim();
    this.#steps = text ? find(this.store.t, text) : null;
    this.#rows.clear();
    this.#hint();
    this.#show(true);
  }

  #hint(): void {
    const { p } = this.store.t;
    const left = bareRuns(p);
    const here = left ? `steps of ${count(p.runs.length - left)} of ${count(p.runs.length)} runs are here` : "";
    say(this.#found, this.#steps ? `${count(this.#count)} of ${count(p.steps)} steps; Enter goes to the next` : here);
  }

  #jump(by: 1 | -1): void {
    const { cursor } = this.store;
    const steps = this.#steps;
    if (!steps?.length) return;
    const at = by > 0 ? steps.find((s) => s > cursor) ?? steps[0] : [...steps].reverse().find((s) => s < cursor) ?? steps[steps.length - 1];
    this.store.seek(at);
  }

  update(change: Change): void {
    if (change.payload && this.#steps) this.#steps = find(this.store.t, this.search.value.trim());
    if (change.payload) this.#hint();
    // rows can stay as they are unless what they show is another thing now
    const lit = litKey(this.store);
    if (change.payload || lit !== this.#lit) {
      this.#rows.clear();
      this.#lit = lit;
    }
    this.#show(change.cursor || change.payload);
  }

  #show(follow: boolean): void {
    const { cursor } = this.store;
    // of a search the first hit that is not behind us is kept in view
    const at = this.#steps ? this.#steps.findIndex((s) => s >= cursor) : cursor;
    this.#rows.show(this.#count, (this.#steps && this.#steps[at] !== cursor) || this.store.bare >= 0 ? -1 : at, follow ? (this.#steps ? at : Math.max(0, at)) : null);
  }

  #row(at: number): HTMLElement {
    const { t, now, selection } = this.store;
    const { p, x } = t;
    const step = this.#steps ? this.#steps[at] : at;
    const frame = p.step.frame[step];
    const graph = p.frame.graph[frame];
    const g = p.graphs[graph];
    const node = p.step.node[step];
    const kind = outcome(p, p.step.flags[step]);
    const first = p.step.out[step];
    const info = p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    const number = (n: number, column = "") => td(bytes(n), NUMBER, { "data-column": column, "data-zero": n === 0 ? 1 : null });
    let lit = false;
    if (selection?.kind === "node") lit = selection.id === node && (selection.graph ?? graph) === graph;
    else if (now.lit.storages.size) {
      const { reads, writes } = touched(t, step);
      lit = [...reads, ...writes].some((s) => now.lit.storages.has(s) && p.storage.origin[s] !== p.from.weights);
    }
    const block = g.blocks[x.graphs[graph].block[node]]?.title ?? "";
    const op = td(opName(g.nodes[node][1]), "kv-op", { title: g.nodes[node][1] });
    op.style.paddingLeft = `${8 + 12 * x.depth[frame]}px`; // bodies stand in
    return el("tr", { "data-kv": "table-row", "data-step": step, "data-lit": lit ? 1 : null, title: p.strings[p.step.sentence[step]] },
      td(String(numberOf(t, step)), NUMBER), td(p.runs[p.frame.run[frame]]?.label ?? "", "kv-soft", { "data-column": "run" }),
      td(block, "kv-soft", { "data-column": "block", title: block }), op, td(shortName(g, node), "", { title: g.nodes[node][0] }),
      td(`${letter(p.codes, kind)} ${WORDS[kind] ?? kind}`.trim(), "kv-decision", { "data-state": kind }), td(shape(info), "kv-shape", { title: info }),
      number(p.step.alloc[step]), number(p.step.copied[step]), number(p.step.written[step], "written"), number(p.step.live[step], "live"));
  }
}
