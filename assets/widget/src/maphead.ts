// The parts around the memory map: its header with sorting, colouring and zoom, the list beside it, its scales.
import { button, el, hit, mark, name, on, onKey, say, set, tick } from "./dom.js";
import { bytes, count, plural, ticks, visible } from "./format.js";
import { COLOURS, nameOf, type Class, type Colour } from "./mappicture.js";
import { addressed, age, inOrder, ORDERS, yOf, type Layout, type Order, type Range, type Sheet, type Sort } from "./mapdata.js";
import { numberOf, type Trace } from "./replay.js";
import type { Store } from "./store.js";

/** `zoom`: a factor; 0: all; -1: the window. */
interface Heard { sort(sort: Sort): void; colour(colour: Colour): void; zoom(by: number): void }

export class MapHead {
  readonly root: HTMLElement;
  #count = el("span.kv-hint");
  #legend = el("span.kv-map-legend");
  #window: HTMLButtonElement;
  #sort = el("select", { "aria-label": "Sort: what lies lowest, and first in the list", title: "Sort: what lies lowest, and first in the list", "data-kv": "map-sort" });
  #colour = el("select", { "aria-label": "Colour by", title: "Colour by", "data-kv": "map-colour" });

  constructor(private store: Store, heard: Heard, signal: AbortSignal) {
    this.#window = button("window", "Show only the window (z)", "map-zoom-window", () => heard.zoom(-1), signal);
    for (const value of COLOURS) this.#colour.append(el("option", { value }, `colour: ${value}`));
    on(this.#sort, "change", () => heard.sort(this.#sort.value as Sort), signal);
    on(this.#colour, "change", () => heard.colour(this.#colour.value as Colour), signal);
    const out = button("−", "Zoom out (−, Ctrl and the wheel)", "map-out", () => heard.zoom(2), signal);
    const into = button("+", "Zoom in (+, Ctrl and the wheel)", "map-in", () => heard.zoom(0.5), signal);
    const all = button("all", "Show all steps (0)", "map-all", () => heard.zoom(0), signal);
    out.ariaLabel = "Zoom out";
    into.ariaLabel = "Zoom in";
    const tools = el("span.kv-map-tools", { role: "toolbar", "aria-label": "How the map is drawn" }, this.#sort, this.#colour, out, into, all, this.#window);
    this.root = el("div.kv-map-head", {}, el("h3", {}, "Memory map"), this.#count, this.#legend, tools);
  }

  show(layout: Layout, sort: Sort, all: Class[], colour: (c: Class) => string): void {
    const { t } = this.store;
    this.#sort.replaceChildren(...[...(addressed(t) ? ["address"] : []), ...ORDERS].map((value) => el("option", { value }, `sort: ${value}`)));
    this.#sort.value = sort;
    say(this.#count, `${plural(layout.l.n, "buffer")}${t.x.weights ? ` above ${bytes(t.x.weights)} of weights` : ""}`, `Up: bytes. Right: steps. Drag over steps for the peak among them; Shift and drag to move; the wheel with Ctrl zooms steps, with Alt bytes${t.x.weights ? "; the weights, alive all the time, are not drawn" : ""}.`);
    const chips = all.slice(0, 7).map((c) => {
      const i = el("i");
      set(i, "background", colour(c));
      return el("span", {}, i, c.name);
    });
    if (all.length > 7) chips.push(el("span", {}, `and ${count(all.length - 7)} more`));
    chips.push(el("span", {}, el("i", { "data-mark": "notch" }), "overwritten in place"), el("span", {}, el("i", { "data-mark": "held" }), "held past last use"));
    this.#legend.replaceChildren(...chips);
  }

  window(): void { this.#window.hidden = !this.store.window; }
}

export class Scales {
  readonly gutter = el("div.kv-map-gutter", { "aria-hidden": "true" });
  readonly words = el("div.kv-map-words", { "aria-hidden": "true" });
  readonly steps = el("div.kv-map-steps", { "aria-hidden": "true", title: "Press or drag: the cursor goes there" });

  /** The scale of a single band, or the names and heights of several. */
  axis(s: Sheet, { bands }: Layout): void {
    const parts: HTMLElement[] = [];
    const put = (tag: "b" | "span", top: number, text: string, more: Record<string, string | number> = {}) => {
      const node = el(tag, more, text);
      node.style.top = `${top}px`;
      parts.push(node);
    };
    s.boxes.forEach((box, b) => {
      const high = box.foot - box.head;
      const { arena, space, top, addressed } = bands[b];
      if (bands.length > 1) {
        put("b", box.head, arena || space || "host", { title: `${space} ${arena}, ${bytes(top)}, ${addressed ? "by address" : "stacked"}` });
        if (high > 26) put("span", box.head + 13, bytes(box.bytes));
        return;
      }
      for (const value of ticks(box.bytes, Math.max(1, Math.floor(high / 34)))) {
        const y = yOf(s, b, value);
        if (y >= 5 && y <= s.height + 1) put("span", Math.min(s.height - 7, y) - 8, value ? bytes(value) : "0", { "data-tick": 1 });
      }
    });
    this.gutter.replaceChildren(...parts);
  }

  along(t: Trace, { from, to }: Range, width: number): void {
    const { p } = t;
    const x = (step: number) => ((step - from) / (to - from)) * width;
    const words: HTMLElement[] = [];
    let end = -Infinity;
    p.runs.forEach((run, i) => {
      if (p.runs.length < 2 || run.first >= to || run.last <= from || run.last <= run.first) return;
      const left = Math.max(0, x(run.first));
      const room = Math.min(width, x(run.last)) - left;
      if (left < end + 6 || room < 14) return;
      const text = run.text ? visible(run.text).trim() || "␣" : run.label;
      const word = tick(text, left, { title: run.label, "data-run": i });
      word.style.maxWidth = `${Math.max(14, room - 3).toFixed(0)}px`;
      words.push(word);
      end = left + Math.min(room - 3, text.length * 7);
    });
    this.words.replaceChildren(...words);
    const gap = Math.max(1, ticks(to - from, Math.max(1, Math.floor(width / 90)))[1] ?? 1);
    const numbers: HTMLElement[] = [];
    for (let step = Math.ceil(from / gap) * gap; step < to && x(step) < width - 40; step += gap) {
      numbers.push(tick(count(numberOf(t, Math.min(step, p.steps - 1))), x(step)));
    }
    this.steps.replaceChildren(...numbers);
  }

  /** Mark the word of the present run. */
  now(run: number): void {
    for (const word of this.words.children as HTMLCollectionOf<HTMLElement>) mark(word, "data-now", word.dataset.run === String(run) ? 1 : null);
  }
}

const MOST = 60; // rows
const TITLES: Record<Order, string> = { lifetime: "Longest-lived", bytes: "Largest", birth: "In order of birth" };

export class MapList {
  readonly root: HTMLElement;
  #title = el("h4");
  #body = el("tbody");
  #more = el("p.kv-none");
  #rows: number[] = [];
  #key = "";

  /** `point`: the life under the pointer, or -1. */
  constructor(private store: Store, choose: (k: number, go: boolean) => void, point: (k: number) => void, signal: AbortSignal) {
    const heads = [["buffer", ""], ["holds", ""], ["bytes", "kv-num"], ["steps", "kv-num"]].map(([text, c]) => el("th", { scope: "col", class: c || null }, text));
    const list = el("div.kv-map-rows", { tabindex: 0, role: "group", "aria-label": "Storages of the memory map; arrow keys choose", "data-kv": "map-list" },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.#body), this.#more);
    this.root = el("aside.kv-map-list", {}, this.#title, list);
    const row = (event: Event) => {
      const found = hit(event, "map-row");
      return found ? this.#rows[Number(found.dataset.row)] : -1;
    };
    on(list, "click", (event) => { if (row(event) >= 0) choose(row(event), false); }, signal);
    on(list, "dblclick", (event) => { if (row(event) >= 0) choose(row(event), true); }, signal);
    on(list, "pointerover", (event) => point(row(event)), signal);
    on(list, "pointerleave", () => point(-1), signal);
    onKey(list, (key) => {
      const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity, Enter: 0 }[key];
      if (by === undefined || !this.#rows.length) return false;
      const now = this.#rows.findIndex((k) => this.#chosen(k));
      const next = Math.max(0, Math.min(this.#rows.length - 1, now < 0 ? 0 : now + by));
      choose(this.#rows[next], key === "Enter");
      store.reveal(list, this.#body.children[next]);
    }, signal);
  }

  #layout: Layout | null = null;
  #chosen(k: number): boolean {
    const { selection } = this.store;
    return selection?.kind === "storage" && this.#layout?.l.storage[k] === selection.id;
  }

  /** List the lives in a range; `where`: the name of the range. */
  show(layout: Layout, order: Order, within: Range, where: string): void {
    const { l } = layout;
    const { t } = this.store;
    this.#layout = layout;
    const key = `${order}${where} ${within.from} ${within.to} ${l.n}`;
    if (key !== this.#key || !this.#body.childElementCount) {
      this.#key = key;
      const there = Array.from({ length: l.n }, (_, k) => k).filter((k) => l.from[k] < within.to && l.to[k] > within.from);
      this.#rows = Array.from(inOrder(l, order, there).subarray(0, MOST));
      say(this.#title, `${TITLES[order]}${where}`);
      this.#body.replaceChildren(...this.#rows.map((k, row) => el("tr", { "data-kv": "map-row", "data-row": row, "data-id": l.storage[k], title: `from step ${count(numberOf(t, l.from[k]))} to ${count(numberOf(t, l.to[k] - 1))}` },
        el("td.kv-id", {}, `B${l.storage[k]}`), el("td", {}, name(nameOf(t, layout, k))), el("td.kv-num", {}, bytes(l.bytes[k])), el("td.kv-num", {}, count(age(l, k))))));
      say(this.#more, there.length > MOST ? `${plural(there.length - MOST, "more storage")}: a window has fewer` : there.length ? "" : "No storages here.");
      this.#more.hidden = !this.#more.textContent;
    }
    this.#rows.forEach((k, row) => mark(this.#body.children[row], "data-lit", this.#chosen(k) ? 1 : null));
  }

  get filled(): boolean { return this.#body.childElementCount > 0; }
  forget(): void { this.#key = ""; }
}
