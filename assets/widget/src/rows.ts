// A long table with only the visible rows in the page. All rows have one height, so that none has to be measured.
import { el, mark, NUMBER, onHit, onResize, place, table } from "./dom.js";
import type { Store } from "./store.js";

export interface Sorted { head: string; down: boolean }

/** The order after a click on a heading. */
export function clicked(now: Sorted | null, head: string, number: boolean): Sorted | null {
  if (now?.head !== head) return { head, down: number };
  return now.down === number ? { head, down: !number } : null;
}

/** Make headings sort; `changed` gets the new order. Returns what shows one. */
export function sortHeads(table: HTMLElement, changed: (now: Sorted | null) => void, signal: AbortSignal): (now: Sorted | null) => void {
  const heads = [...table.querySelectorAll<HTMLElement>("th")];
  let sorted: Sorted | null = null;
  for (const th of heads) th.replaceChildren(el("button", { "data-kv": "sort", "data-id": th.dataset.column!, title: `Sort by ${th.dataset.column}` }, th.dataset.column!));
  onHit(table, "sort", (button) => changed(clicked(sorted, button.dataset.id!, button.parentElement!.classList.contains(NUMBER))), signal);
  return (now) => {
    sorted = now;
    for (const th of heads) mark(th, "aria-sort", now && now.head === th.dataset.column ? (now.down ? "descending" : "ascending") : null);
  };
}

const ROW = 22; // px; the style sheet says the same

/** The value of a row in a column; null values come last. */
type Key = (head: string, row: number) => number | string | null;

export class Rows {
  readonly root = el("div.kv-scroll", { tabindex: 0, role: "region" });
  readonly table: HTMLElement;
  readonly #body = el("tbody");
  #above: HTMLElement;
  #below: HTMLElement;
  #rows = new Map<number, HTMLElement>(); // those in the page, by place
  #count = 0;
  #now = -1;
  #wanted = -1;
  #first = -1;
  #last = -1;
  // cached: reading it from the element would force a layout
  #height = 0;
  #top = 0;

  constructor(label: string, className: string, heads: string[], private store: Store, private make: (row: number) => HTMLElement, signal: AbortSignal) {
    const gap = () => el("tr.kv-gap", { "aria-hidden": "true" }, el("td", { colspan: heads.length }));
    this.#above = gap();
    this.#below = gap();
    mark(this.root, "aria-label", label);
    this.table = table(label, className, heads, this.#body);
    this.root.append(this.table);
    this.root.addEventListener("scroll", () => {
      this.#top = this.root.scrollTop;
      this.#draw();
    }, { signal, passive: true });
    onResize(this.root, () => {
      const hidden = this.#height === 0;
      this.#height = this.root.clientHeight;
      this.#top = this.root.scrollTop;
      this.#draw();
      if (hidden) this.#follow();
      this.#draw();
    }, signal);
  }

  /** Discard all rows, which are then rebuilt. */
  clear(): void {
    this.#rows.clear();
    this.#first = -1;
  }

  /** Show rows and mark the present one (-1: none); `follow`: a row to scroll into view. */
  show(count: number, now: number, follow: number | null): void {
    if (count !== this.#count) {
      this.#count = count;
      this.#first = -1;
      mark(this.table, "aria-rowcount", count + 1);
      this.#draw(); // gives the box its height, without which it cannot scroll
    }
    this.#now = now;
    if (follow !== null) {
      this.#wanted = follow;
      this.#follow();
    }
    this.#draw();
  }

  #follow(): void {
    const [height, at] = [this.#height, this.#wanted];
    const top = at * ROW;
    if (at < 0 || !height || (top >= this.#top && top + 2 * ROW <= this.#top + height)) return;
    this.#top = Math.max(0, Math.min(top - height / 2 + ROW, (this.#count + 1) * ROW - height));
    this.store.scroll(() => (this.root.scrollTop = this.#top));
  }

  #draw(): void {
    if (!this.#height) return; // its tab is hidden
    const first = Math.max(0, Math.floor(this.#top / ROW) - 4);
    const last = Math.min(this.#count, Math.ceil((this.#top + this.#height) / ROW) + 4);
    if (first !== this.#first || last !== this.#last) {
      this.#first = first;
      this.#last = last;
      const rows = new Map<number, HTMLElement>();
      for (let i = first; i < last; i++) {
        const row = this.#rows.get(i) ?? this.make(i);
        mark(row, "aria-rowindex", i + 2);
        rows.set(i, row);
      }
      this.#rows = rows;
      this.#above.style.height = `${first * ROW}px`;
      this.#below.style.height = `${(this.#count - last) * ROW}px`;
      place(this.#body, [this.#above, ...rows.values(), this.#below]);
    }
    for (const [i, row] of this.#rows) mark(row, "aria-current", i === this.#now ? "step" : null);
  }
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Rows sorted by a column, stable; null values last. */
export function sorted(count: number, { head, down }: Sorted, key: Key): number[] {
  const keys = Array.from({ length: count }, (_, row) => key(head, row));
  const by = down ? -1 : 1;
  const compare = (a: number, b: number): number => {
    const [left, right] = [keys[a], keys[b]];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return by * (typeof left === "number" && typeof right === "number" ? left - right : collator.compare(String(left), String(right)));
  };
  return keys.map((_, row) => row).sort(compare);
}
