// The table of steps: every step in words, searchable, drawn only where it is looked at. It is the accessible form of the page.
import { el, hit, mark, place, say } from "./dom.js";
import { bytes, count, opName, shape, shortName } from "./format.js";
import { find } from "./search.js";
import { outcome, type State } from "./replay.js";
import { touched } from "./select.js";
import type { Change, Store, View } from "./store.js";

const ROW = 22; // px; the style sheet says the same
const WORDS: Partial<Record<State, string>> = { inplace: "↺ in place", copied: "⚠\uFE0E not in place", view: "v view", foreign: "f foreign", done: "new buffer" };
const COLUMNS = ["step", "run", "block", "op", "name", "decision", "output", "allocated", "copied", "written", "live"];
const LEFT = 7; // columns before the numbers

/** What decides which rows are lit. */
function litKey({ selection, now }: Store): string {
  return selection ? `${selection.kind} ${selection.id} ${selection.graph} ${[...now.lit.storages]}` : "";
}

export class StepTable implements View {
  readonly slow = true;
  readonly search = el("input", { type: "search", placeholder: "Search op, name, B12, missed …", "aria-label": "Search steps", "data-kv": "search-input" });
  #found = el("span", { class: "kv-hint" });
  #scroll = el("div", { class: "kv-scroll", tabindex: 0, role: "region", "aria-label": "Steps" });
  #body = el("tbody");
  #table = el("table", { class: "kv-table kv-steps", "aria-label": "Steps" });
  #above = el("tr", { class: "kv-gap", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  #below = el("tr", { class: "kv-gap", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  #steps: Int32Array | null = null; // found steps; null = all
  #rows = new Map<number, HTMLElement>(); // those in the page, by step
  #lit = "";
  #first = -1;
  #last = -1;
  // kept here because asking the element would force a layout in the middle of an update
  #height = 0;
  #top = 0;
  #later: number | undefined;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    const head = el("tr", {}, ...COLUMNS.map((c, i) => el("th", { scope: "col", class: i >= LEFT || i === 0 ? "kv-num" : "", "data-column": c }, c)));
    this.#table.append(el("thead", {}, head), this.#body);
    this.#scroll.append(this.#table);
    host.append(el("div", { class: "kv-searchline" }, this.search, this.#found), this.#scroll);
    this.#scroll.addEventListener("scroll", () => {
      this.#top = this.#scroll.scrollTop;
      this.#draw();
    }, { signal, passive: true });
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "table-row");
      if (row) store.seek(Number(row.dataset.step));
    }, { signal });
    this.search.addEventListener("input", () => {
      clearTimeout(this.#later);
      this.#later = setTimeout(() => this.#search(), 120) as unknown as number;
    }, { signal });
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      this.#search();
      this.#jump(event.shiftKey ? -1 : 1);
    }, { signal });
    const watch = new ResizeObserver(() => {
      const hidden = this.#height === 0;
      this.#height = this.#scroll.clientHeight;
      this.#top = this.#scroll.scrollTop;
      this.#draw();
      if (hidden) this.#follow();
      this.#draw();
    });
    watch.observe(this.#scroll);
    signal.addEventListener("abort", () => watch.disconnect());
  }

  get #count(): number { return this.#steps?.length ?? this.store.t.p.steps; }

  #search(): void {
    const text = this.search.value.trim();
    this.#steps = text ? find(this.store.t, text) : null;
    this.#rows.clear();
    say(this.#found, text ? `${count(this.#count)} of ${count(this.store.t.p.steps)} steps; Enter goes to the next` : "");
    this.#first = -1;
    this.#follow();
    this.#draw();
  }

  #jump(by: 1 | -1): void {
    const { cursor } = this.store;
    const steps = this.#steps;
    if (!steps?.length) return;
    const at = by > 0 ? steps.find((s) => s > cursor) ?? steps[0] : [...steps].reverse().find((s) => s < cursor) ?? steps[steps.length - 1];
    this.store.seek(at);
  }

  update(change: Change): void {
    if (change.payload) {
      if (this.#steps) this.#steps = find(this.store.t, this.search.value.trim());
      this.#first = -1;
      mark(this.#table, "aria-rowcount", this.#count + 1);
    }
    // rows can stay as they are unless what they show is another thing now
    const lit = litKey(this.store);
    if (change.payload || lit !== this.#lit) {
      this.#rows.clear();
      this.#first = -1;
      this.#lit = lit;
    }
    if (change.payload) this.#draw(); // gives the box its height, without which it cannot scroll
    if (change.cursor || change.payload) this.#follow();
    this.#draw();
  }

  /** Keep the row of the cursor in view. */
  #follow(): void {
    const { cursor } = this.store;
    const at = this.#steps ? this.#steps.findIndex((s) => s >= cursor) : Math.max(0, cursor);
    const height = this.#height;
    const top = at * ROW;
    if (at < 0 || !height || (top >= this.#top && top + 2 * ROW <= this.#top + height)) return;
    this.#top = Math.max(0, Math.min(top - height / 2 + ROW, (this.#count + 1) * ROW - height));
    this.store.scroll(() => (this.#scroll.scrollTop = this.#top));
  }

  #draw(): void {
    if (!this.#height) return; // its tab is hidden
    const total = this.#count;
    const first = Math.max(0, Math.floor(this.#top / ROW) - 4);
    const last = Math.min(total, Math.ceil((this.#top + this.#height) / ROW) + 4);
    if (first !== this.#first || last !== this.#last) {
      this.#first = first;
      this.#last = last;
      const rows = new Map<number, HTMLElement>();
      for (let i = first; i < last; i++) {
        const step = this.#steps ? this.#steps[i] : i;
        rows.set(step, this.#rows.get(step) ?? this.#row(step, i));
      }
      this.#rows = rows;
      this.#above.style.height = `${first * ROW}px`;
      this.#below.style.height = `${(total - last) * ROW}px`;
      place(this.#body, [this.#above, ...rows.values(), this.#below]);
    }
    for (const [step, row] of this.#rows) mark(row, "aria-current", step === this.store.cursor ? "step" : null);
  }

  #row(step: number, at: number): HTMLElement {
    const { t, now, selection } = this.store;
    const { p, x } = t;
    const frame = p.step.frame[step];
    const graph = p.frame.graph[frame];
    const g = p.graphs[graph];
    const node = p.step.node[step];
    const kind = outcome(p.step.flags[step]);
    const first = p.step.out[step];
    const info = p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    const number = (n: number, column = "") => el("td", { class: "kv-num", "data-column": column, "data-zero": n === 0 ? 1 : null }, bytes(n));
    let lit = false;
    if (selection?.kind === "node") lit = selection.id === node && (selection.graph ?? graph) === graph;
    else if (now.lit.storages.size) {
      const { reads, writes } = touched(t, step);
      lit = [...reads, ...writes].some((s) => now.lit.storages.has(s) && p.storage.origin[s] !== 0);
    }
    const block = g.blocks[x.graphs[graph].block[node]]?.title ?? "";
    const op = el("td", { class: "kv-op", title: g.nodes[node][1] }, opName(g.nodes[node][1]));
    op.style.paddingLeft = `${8 + 12 * x.depth[frame]}px`; // bodies stand in
    return el("tr", { "data-kv": "table-row", "data-step": step, "aria-rowindex": at + 2, "data-lit": lit ? 1 : null, title: p.strings[p.step.sentence[step]] },
      el("td", { class: "kv-num" }, String(step)), el("td", { class: "kv-soft", "data-column": "run" }, p.runs[p.frame.run[frame]]?.label ?? ""),
      el("td", { class: "kv-soft", "data-column": "block", title: block }, block), op, el("td", { title: g.nodes[node][0] }, shortName(g, node)),
      el("td", { class: "kv-decision", "data-state": kind }, WORDS[kind] ?? ""), el("td", { class: "kv-shape", title: info }, shape(info)),
      number(p.step.alloc[step]), number(p.step.copied[step]), number(p.step.written[step], "written"), number(p.step.live[step], "live"));
  }
}
