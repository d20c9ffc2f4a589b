// The query: its field in the toolbar, its hits, and the way from one to the next.
import { upper } from "./arrays.js";
import { button, Delay, el, mark, on, say } from "./dom.js";
import { load, loaded, type Modules } from "./modules.js";
import { count, plural } from "./format.js";
import { ours } from "./keys.js";
import { notHere } from "./replay.js";
import type { Change, Store, View } from "./store.js";

export class Hits implements View {
  #turn = 0;

  constructor(private store: Store, private modules: Modules) {}

  /** Run a query and store its hits; an empty text clears them. */
  async ask(text: string): Promise<void> {
    const { store } = this;
    const mine = ++this.#turn;
    if (!text.trim()) return store.setHits("", null, "");
    try {
      const engine = await load(this.modules);
      if (mine !== this.#turn) return;
      store.setHits(text, engine.find(store.t, engine.read(store.t.p.query, text)), "");
    } catch (error) {
      // earlier hits stay during typing
      if (mine === this.#turn) store.setHits(text, store.found, (error as Error).message);
    }
  }

  /** The error of a text as a query, or "". */
  async check(text: string): Promise<string> {
    return load(this.modules).then((engine) => engine.read(this.store.t.p.query, text)).then(() => "", (error: Error) => error.message);
  }

  /** The next or previous hit in the order of the query; -1 if there is none. */
  next(by: 1 | -1): number {
    const { cursor, found, hits } = this.store;
    if (!found?.length || !hits) return -1;
    const at = found.indexOf(cursor);
    if (at >= 0) return found[(at + by + found.length) % found.length];
    // in an order of its own the first hit, else the nearest in that direction
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
      // at once: places of the old recording are invalid
      try {
        store.setHits(store.query, engine.find(store.t, engine.read(store.t.p.query, store.query)), "", true);
      } catch (error) {
        store.setHits(store.query, null, (error as Error).message, true);
      }
    }
    // Continue needs the module, and does not wait for it
    if (change.breakpoints && store.breakpoints.length) void load(this.modules).catch(() => {});
  }
}

const PAUSE = 120; // ms without a key before it is asked

export class QueryBox implements View {
  readonly root: HTMLElement;
  readonly onward: HTMLButtonElement; // where the run goes on
  readonly input = el("input", {
    type: "text", placeholder: "Search, op:Concat …", "aria-label": "Query", "data-kv": "query", spellcheck: "false", autocomplete: "off",
    title: "Find steps: names, missed, layer 3, B12, NO_CAPACITY, or fields like op:Concat copied>1kB sort:-copied (/). Enter goes to the next, Shift+Enter to the one before, Esc clears.",
  });
  #count = el("span.kv-count", { "data-kv": "query-count", role: "status" });
  #wrong = el("p.kv-pop.kv-error", { role: "alert", "data-kv": "query-error" });
  #later: Delay;
  #asking: object | null = null; // while a text that was written here has no answer, what the store says is older than it

  /** `runTo`: run on to the first step that a query finds. */
  constructor(private store: Store, private hits: Hits, runTo: (query: string) => void, signal: AbortSignal) {
    this.onward = button("run to it", "Run on to the next step that this query finds", "run-to", () => runTo(store.query), signal);
    this.#later = new Delay(signal);
    this.#wrong.id = `kv-query-${Math.random().toString(36).slice(2)}`;
    this.#wrong.hidden = true;
    this.root = el("span.kv-query", { role: "search" }, this.input, this.#count, this.#wrong);
    const { input } = this;
    on(input, "input", () => {
      this.#asking = {};
      this.#later.start(PAUSE, () => void this.#ask());
    }, signal);
    on(input, "keydown", (event) => {
      if (ours(event)) event.stopPropagation(); // the host has its own, to save with
      if (event.key === "Enter") void this.#jump(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.#leave();
    }, signal);
  }

  focus(): void {
    this.input.focus({ preventScroll: true });
    this.input.select();
  }

  async #ask(): Promise<void> {
    this.#later.stop();
    const mine = (this.#asking = {});
    await this.hits.ask(this.input.value);
    if (this.#asking === mine) this.#asking = null;
  }

  async #jump(by: 1 | -1): Promise<void> {
    if (this.#asking || this.input.value !== this.store.query) await this.#ask();
    if (!this.store.wrong) this.hits.go(by);
  }

  /** Clear the field; if it is empty, return the focus to the page. */
  #leave(): void {
    const empty = !this.input.value;
    this.input.value = "";
    void this.#ask();
    if (empty) this.root.closest<HTMLElement>(".kvviz")?.focus({ preventScroll: true });
  }

  update(change: Change): void {
    if (!change.hits && !change.cursor) return;
    const { query, found, wrong, cursor, p } = this.store;
    this.onward.hidden = !p.live || !query || !!wrong || !found || found.some((step) => step > cursor);
    if (change.hits && !this.#asking && this.input.value.trim() !== query.trim()) this.input.value = query;
    const at = found ? found.indexOf(cursor) + 1 : 0;
    const gone = query && !wrong && found ? notHere(p) : "";
    const hits = found ? plural(found.length, "hit") + (gone ? " kept here" : "") : "";
    say(this.#count, !query || wrong ? "" : at ? `${count(at)} of ${hits}` : hits);
    mark(this.#count, "title", gone || null);
    const note = wrong || (found?.length ? "" : gone);
    this.#wrong.hidden = !note;
    say(this.#wrong, note);
    mark(this.input, "aria-invalid", wrong ? "true" : null);
    mark(this.input, "aria-describedby", wrong ? this.#wrong.id : null);
  }
}
