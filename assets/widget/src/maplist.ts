// Beside the memory map: its storages as a list, by lifetime, bytes or birth, those of the window or all.
import { el, hit, mark, on, say } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import type { Layout } from "./mapbands.js";
import { nameOf } from "./mapmarks.js";
import { age, inOrder, type Order } from "./mapstack.js";
import type { Range } from "./mapview.js";
import { numberOf } from "./steps.js";
import type { Store } from "./store.js";

const MOST = 60; // rows
const TITLES: Record<Order, string> = { lifetime: "Longest-lived", bytes: "Largest", birth: "In order of birth" };

export class MapList {
  readonly root: HTMLElement;
  #title = el("h4");
  #body = el("tbody");
  #more = el("p.kv-none");
  #rows: number[] = [];
  #key = "";

  /** `choose`: a life was chosen; `point`: one is pointed at, -1 = none. */
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
    on(list, "keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity, Enter: 0 }[event.key];
      if (by === undefined || event.ctrlKey || event.metaKey || event.altKey || !this.#rows.length) return;
      event.preventDefault();
      event.stopPropagation();
      const now = this.#rows.findIndex((k) => this.#chosen(k));
      const next = Math.max(0, Math.min(this.#rows.length - 1, now < 0 ? 0 : now + by));
      choose(this.#rows[next], event.key === "Enter");
      store.reveal(list, this.#body.children[next]);
    }, signal);
  }

  #layout: Layout | null = null;
  #chosen(k: number): boolean {
    const { selection } = this.store;
    return selection?.kind === "storage" && this.#layout?.l.storage[k] === selection.id;
  }

  /** Those alive in a range, sorted; `where`: how the range is called. */
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
        el("td.kv-id", {}, `B${l.storage[k]}`), el("td", {}, nameOf(t, layout, k)), el("td.kv-num", {}, bytes(l.bytes[k])), el("td.kv-num", {}, count(age(l, k))))));
      say(this.#more, there.length > MOST ? `${plural(there.length - MOST, "more storage")}: a window has fewer` : there.length ? "" : "No storages here.");
      this.#more.hidden = !this.#more.textContent;
    }
    this.#rows.forEach((k, row) => mark(this.#body.children[row], "data-lit", this.#chosen(k) ? 1 : null));
  }

  get filled(): boolean { return this.#body.childElementCount > 0; }
  forget(): void { this.#key = ""; }
}
