// Headings that sort: a click puts the largest first in columns of numbers, else the first; another one turns it around; a third ends it.
import { el, hit, mark } from "./dom.js";

export interface Sorted { head: string; down: boolean }

/** What a click on a heading makes of the present order. */
export function clicked(now: Sorted | null, head: string, number: boolean): Sorted | null {
  if (now?.head !== head) return { head, down: number };
  return now.down === number ? { head, down: !number } : null;
}

export class SortHeads {
  #heads: HTMLElement[];
  #now: Sorted | null = null;

  /** `head`: one of those that sort; `changed` is told the new order. */
  constructor(table: HTMLElement, sorts: (head: string) => boolean, changed: (now: Sorted | null) => void, signal: AbortSignal) {
    this.#heads = [...table.querySelectorAll<HTMLElement>("th")].filter((th) => sorts(th.dataset.column!));
    for (const th of this.#heads) th.replaceChildren(el("button", { "data-kv": "sort", "data-id": th.dataset.column!, title: `Sort by ${th.dataset.column}` }, th.dataset.column!));
    table.addEventListener("click", (event) => {
      const button = hit(event, "sort");
      if (button) changed(clicked(this.#now, button.dataset.id!, button.parentElement!.classList.contains("kv-num")));
    }, { signal });
  }

  show(now: Sorted | null): void {
    this.#now = now;
    for (const th of this.#heads) mark(th, "aria-sort", now && now.head === th.dataset.column ? (now.down ? "descending" : "ascending") : null);
  }
}
