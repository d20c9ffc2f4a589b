// The table of steps, or of the hits of a query in its order; only visible rows are drawn. It is the accessible form of the
// page, and a module of its own.
import { el, name, NUMBER, onHit, onKey, say, td } from "./dom.js";
import { bytes, count, opName, shape, shortName } from "./format.js";
import type { Hits } from "./hits.js";
import type { MakePane } from "./lazypane.js";
import { bareRuns, findStep, letter, numberOf, opAt, outcome, type State } from "./replay.js";
import { Rows, sortHeads, type Sorted } from "./rows.js";
import { executed, touched } from "./select.js";
import type { Change, Store, View } from "./store.js";

const WORDS: Partial<Record<State, string>> = { in_place: "in place", elsewhere: "called in place", missed: "not in place", view: "view", foreign: "foreign", done: "new buffer" };
const HEADS = ["step#", "run", "block", "op", "name", "decision", "output", "allocated#", "copied#", "written#", "live#"];
/** Query fields of columns with other names. */
const FIELDS: Record<string, string> = { output: "shape" };
const SORT = /(^|[ (])sort[:=]([-−]?)(\w+)(?=[ )]|$)/gi;

/** The heading of the first sort field of a query. */
export function sortOf(query: string): Sorted | null {
  const [found] = query.matchAll(SORT);
  if (!found) return null;
  const field = found[3].toLowerCase();
  return { head: Object.keys(FIELDS).find((head) => FIELDS[head] === field) ?? field, down: found[2] !== "" };
}

/** A query with another order. */
export function withSort(query: string, now: Sorted | null): string {
  const rest = query.replace(SORT, "$1").replace(/ +/g, " ").trim();
  return now ? `${rest} sort:${now.down ? "-" : ""}${FIELDS[now.head] ?? now.head}`.trim() : rest;
}

class StepTable implements View {
  readonly slow = true;
  #found = el("span.kv-hint");
  #rows: Rows;
  #sorted: (now: Sorted | null) => void;
  #lit = "";

  constructor(host: HTMLElement, private store: Store, hits: Hits, signal: AbortSignal) {
    this.#rows = new Rows("Steps", "kv-steps", HEADS, store, (row) => this.#row(row), signal);
    this.#sorted = sortHeads(this.#rows.table, (now) => void hits.ask(withSort(store.query, now)), signal);
    host.append(el("div.kv-searchline", {}, this.#found), this.#rows.root);
    onHit(this.#rows.root, "table-row", (row) => this.#select(Number(row.dataset.step)), signal);
    onHit(this.#rows.root, "table-row", (row) => store.seek(Number(row.dataset.step)), signal, "dblclick");
    onKey(this.#rows.root, (key, event) => this.#key(key, event), signal);
  }

  get #count(): number { return this.store.found?.length ?? this.store.t.p.steps; }
  #step(at: number): number { return this.store.found ? this.store.found[at] : at; }
  #at(step: number): number { return this.store.found ? this.store.found.indexOf(step) : step; }

  /** The selected step, or else the cursor. */
  get #chosen(): number {
    const { selection, cursor, t } = this.store;
    const { step } = findStep(t, selection?.kind === "node" ? selection.step ?? -1 : -1);
    return step < 0 ? cursor : step;
  }

  #select(step: number): void { this.store.select(executed(this.store.t, step)); }

  /** Arrows select the row below or above, Enter goes to its step. */
  #key(key: string, event: KeyboardEvent): boolean | void {
    const by = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
    if (event.target !== this.#rows.root || (!by && key !== "Enter")) return false;
    if (!by) return this.store.seek(this.#chosen);
    const at = Math.max(0, Math.min(this.#at(this.#chosen) + by, this.#count - 1));
    if (!this.#count) return;
    this.#select(this.#step(at));
    this.#rows.show(this.#count, this.#mark(), at);
  }

  #hint(): void {
    const { t: { p }, found } = this.store;
    const left = bareRuns(p);
    const here = left ? `steps of ${count(p.runs.length - left)} of ${count(p.runs.length)} runs are here` : "";
    say(this.#found, found ? `${count(this.#count)} of ${count(p.steps)} steps; Enter goes to the next` : here);
  }

  update(change: Change): void {
    if (change.payload || change.hits) {
      this.#hint();
      this.#sorted(sortOf(this.store.query));
    }
    // rows stay unless their content changes
    const lit = JSON.stringify([this.store.selection, ...this.store.now.lit.storages]);
    if (change.payload || change.hits || lit !== this.#lit) {
      this.#rows.clear();
      this.#lit = lit;
    }
    this.#show(change.cursor || change.payload || change.hits);
  }

  /** The row of the cursor, or -1. */
  #mark(): number { return this.store.bare >= 0 ? -1 : this.#at(this.store.cursor); }

  #show(follow: boolean): void {
    const { cursor, found, hits } = this.store;
    const here = this.#mark();
    // in step order, keep the first hit at or after the cursor in view
    const near = here >= 0 || !found || found.some((step, i) => step !== hits![i]) ? here : found.findIndex((step) => step >= cursor);
    this.#rows.show(this.#count, here, follow ? Math.max(0, near) : null);
  }

  #row(at: number): HTMLElement {
    const { t, p, x, now, selection } = this.store;
    const step = this.#step(at);
    const { frame, graph, g, node } = opAt(t, step);
    const kind = outcome(p, p.step.flags[step]);
    const first = p.step.out[step];
    const info = p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    const number = (n: number, column = "") => td(bytes(n), NUMBER, { "data-column": column, "data-zero": n === 0 ? 1 : null });
    let lit = false;
    if (selection?.kind === "node") lit = selection.id === node && (selection.graph ?? graph) === graph && (selection.step ?? numberOf(t, step)) === numberOf(t, step);
    else if (now.lit.storages.size) {
      const { reads, writes } = touched(t, step);
      lit = [...reads, ...writes].some((s) => now.lit.storages.has(s) && p.storage.origin[s] !== p.from.weights);
    }
    const block = g.blocks[x.graphs[graph].block[node]]?.title ?? "";
    const op = td(opName(g.nodes[node][1]), "kv-op", { title: g.nodes[node][1] });
    op.style.paddingLeft = `${8 + 12 * x.depth[frame]}px`; // bodies stand in
    const link = el("button", { class: "kv-link", "data-kv": "step-link", "data-step": numberOf(t, step), tabindex: -1, title: "Go to this step" }, String(numberOf(t, step)));
    return el("tr", { "data-kv": "table-row", "data-step": step, "data-lit": lit ? 1 : null, title: p.strings[p.step.sentence[step]] },
      td(link, NUMBER), td(p.runs[p.frame.run[frame]]?.label ?? "", "kv-soft", { "data-column": "run" }),
      td(name(block), "kv-soft", { "data-column": "block" }), op, td(name(shortName(g, node), g.nodes[node][0])),
      td(`${letter(p.codes, kind)} ${WORDS[kind] ?? kind}`.trim(), "kv-decision", { "data-state": kind }), td(shape(info), "kv-shape", { title: info }),
      number(p.step.alloc[step]), number(p.step.copied[step]), number(p.step.written[step], "written"), number(p.step.live[step], "live"));
  }
}

export default ((host, { store, hits }, signal) => new StepTable(host, store, hits, signal)) satisfies MakePane;
