// What is asked for: reads the query, finds its steps, tells the store, and goes from one to the next.
import { upper } from "./arrays.js";
import { load, loaded } from "./engine.js";
import type { Modules } from "./modules.js";
import type { Change, Store, View } from "./store.js";

export class Hits implements View {
  #turn = 0;

  constructor(private store: Store, private modules: Modules) {}

  /** Ask, and tell the store what was found; an empty text asks for nothing. */
  async ask(text: string): Promise<void> {
    const { store } = this;
    const mine = ++this.#turn;
    if (!text.trim()) return store.setHits("", null, "");
    try {
      const engine = await load(this.modules);
      if (mine !== this.#turn) return;
      store.setHits(text, engine.find(store.t, engine.read(store.t.p.query, text)), "");
    } catch (error) {
      // what was found before stays while one goes on writing
      if (mine === this.#turn) store.setHits(text, store.found, (error as Error).message);
    }
  }

  /** What is wrong with a text as a query; empty: nothing. */
  async check(text: string): Promise<string> {
    try {
      const engine = await load(this.modules);
      engine.read(this.store.t.p.query, text);
      return "";
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** The place of the next step in the order of the query, or the one before; -1: there is none. */
  next(by: 1 | -1): number {
    const { cursor, found, hits } = this.store;
    if (!found?.length || !hits) return -1;
    const at = found.indexOf(cursor);
    if (at >= 0) return found[(at + by + found.length) % found.length];
    // of steps in an order of their own the first is meant, else the nearest in that direction
    if (found.some((step, i) => step !== hits[i])) return found[0];
    return by > 0 ? hits.find((step) => step > cursor) ?? hits[0] : hits[(upper(hits, cursor - 1) || hits.length) - 1];
  }

  go(by: 1 | -1): void {
    const to = this.next(by);
    if (to >= 0) this.store.seek(to);
  }

  update(change: Change): void {
    const { store } = this;
    const engine = loaded();
    if (change.payload && store.query && engine) {
      // at once, so that no pane shows places of the old recording
      try {
        store.hold(store.query, engine.find(store.t, engine.read(store.t.p.query, store.query)), "");
      } catch (error) {
        store.hold(store.query, null, (error as Error).message);
      }
    }
    // Continue needs the code, and does not wait for it
    if (change.breakpoints && store.breakpoints.some((b) => b.kind === "query")) void load(this.modules).catch(() => {});
  }
}
