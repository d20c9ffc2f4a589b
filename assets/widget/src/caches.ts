// The caches: rows reserved and valid, bytes written and copied in the present run. The view of single rows is a module
// of its own, loaded when this pane is first looked at; until then, and where it cannot be had, meters are all there is.
import type { CacheView, Weights } from "./cacheview.js";
import { NEEDS_KERNEL, type Ask } from "./commands.js";
import { ANSWER_DELAY } from "./mount.js";
import { el, NUMBER, onHit, onResize, say, table, td } from "./dom.js";
import { buffer, bytes, count } from "./format.js";
import type { Modules } from "./modules.js";
import { rowsBefore } from "./replay.js";
import { ALL, type Change, type Store, type View } from "./store.js";

/** Where the data of single rows come from; `changed` is called when there are newer ones. */
export interface CacheSource { data(): Promise<ArrayBuffer | null>; changed(call: () => void): void }
const NO_CACHE = "This model keeps no cache.";
type Make = (host: HTMLElement, store: Store, ask: Ask, raw: ArrayBuffer, signal: AbortSignal) => CacheView;

export class CachesPane implements View {
  readonly slow = true;
  #body = el("tbody");
  #without = el("span", { "data-kv": "no-cache" }, NO_CACHE);
  #note = el("p.kv-none", { "data-kv": "cache-note" });
  #simple: HTMLElement;
  #shown = false;
  #asked = false;
  #view: CacheView | null = null;
  #turn = 0;

  constructor(private host: HTMLElement, private store: Store, private ask: Ask, private modules: Modules, private source: CacheSource | null, private signal: AbortSignal) {
    this.#simple = el("div.kv-scroll", {}, table("Caches in the present run", "kv-caches", ["cache", "kept", "rows valid / reserved", "written#", "copied#", "buffer"], this.#body), this.#note);
    host.append(this.#simple);
    onHit(this.#body, "cache-row", (row) => store.select({ kind: "cache", id: Number(row.dataset.id) }), signal);
    onResize(host, () => {
      const shown = host.clientWidth > 0;
      if (shown === this.#shown) return;
      this.#shown = shown;
      this.#fill();
      void this.#want();
    }, signal);
    source?.changed(() => void this.#want());
  }

  /** Load the view of single rows, or give it newer data. */
  async #want(): Promise<void> {
    const { source } = this;
    if (!source || !this.#shown || !this.store.p.caches.length) return;
    const mine = ++this.#turn;
    try {
      const raw = await source.data();
      if (!raw) {
        const silent = `Single rows are not ${NEEDS_KERNEL}. Run this cell to have them.`;
        if (!this.#asked && this.ask.able() && (this.#asked = this.ask({ do: "cache_view" }))) {
          const waiting = setTimeout(() => { if (!this.#view) say(this.#note, silent); }, ANSWER_DELAY);
          this.signal.addEventListener("abort", () => clearTimeout(waiting));
        }
        return say(this.#note, this.#asked ? "Asking the kernel for rows …" : silent);
      }
      const make = this.#view ? null : await this.modules.load<Make>("cache");
      if (mine !== this.#turn || this.signal.aborted) return; // a newer one is on its way
      if (this.#view) this.#view.take(raw);
      else if (make) {
        this.#view = make(this.host, this.store, this.ask, raw, this.signal);
        this.#simple.remove();
        this.#tell(ALL);
      }
    } catch (error) {
      say(this.#note, `This page could not load the view of single rows. ${String(error)}`);
    }
  }

  hear(answer: Weights): void { this.#view?.hear(answer); }

  #tell(change: Change): void {
    if (this.#shown) this.#view?.update(change);
  }

  update(change: Change): void {
    if (change.report) say(this.#without, this.store.report?.caches[0]?.text ?? NO_CACHE);
    if (this.#view) this.#tell(change);
    else if (change.cursor || change.payload || change.selection) this.#fill();
  }

  #fill(): void {
    if (!this.#shown) return; // its tab is hidden
    if (this.#view) return this.#tell(ALL);
    const { store } = this;
    const { p, now } = store;
    const { run } = now;
    this.#body.replaceChildren(...p.caches.map((c, i) => {
      const last = c.capacity[run] ? run : run - 1; // of a run that still goes on nothing is known yet
      const [before] = rowsBefore(store.t, i, run);
      const [valid, capacity, copied, storage] = [c.valid[last] ?? 0, c.capacity[last] ?? 0, c.copied[run] ?? 0, c.storage[last] ?? -1];
      const lit = (store.selection?.kind === "cache" && store.selection.id === i) || now.lit.storages.has(storage);
      const meter = el("i.kv-meter", { style: `--kv-before: ${capacity ? before / capacity : 0}; --kv-valid: ${capacity ? valid / capacity : 0}` });
      const rows = el("span.kv-rows", {}, `${valid === before ? count(valid) : `${count(before)} → ${count(valid)}`} / ${count(capacity)}`);
      return el("tr", { "data-kv": "cache-row", "data-id": i, "data-lit": lit ? 1 : null, title: `${c.input} → ${c.output}, axis ${c.axis}` },
        td(c.name), td(c.protocol, "kv-soft"), td(el("div.kv-fillrow", {}, rows, meter)), td(bytes(c.written[run] ?? 0), NUMBER),
        td(bytes(copied), NUMBER, { "data-bad": copied ? 1 : null, "data-zero": copied ? null : 1 }), td(buffer(p, storage), "kv-id"));
    }));
    if (!p.caches.length) this.#body.append(el("tr", {}, td(this.#without, "kv-none", { colspan: 6 })));
  }
}
