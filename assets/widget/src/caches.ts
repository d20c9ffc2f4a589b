// The module of the caches: their rows and meters, drawn from data of their own that come beside the payload.
import { View, type Weights } from "./cacheview.js";
import { NEEDS_KERNEL } from "./commands.js";
import { el, mark, say } from "./dom.js";
import type { Answered, Context, MakePane } from "./lazypane.js";
import { ALL, type Change } from "./store.js";

class CachesPane implements Answered {
  readonly slow = true;
  #note = el("p.kv-none");
  #view: View | null = null;
  #turn = 0;

  constructor(private host: HTMLElement, private context: Context, private signal: AbortSignal) {
    host.append(this.#note);
    context.caches?.changed(() => void this.#load());
    void this.#load();
  }

  async #load(): Promise<void> {
    const { store, ask, caches } = this.context;
    const mine = ++this.#turn;
    const raw = (await caches?.data()) ?? null;
    if (mine !== this.#turn || this.signal.aborted) return; // newer data are on their way
    if (raw && this.#view) return this.#view.take(raw);
    if (!raw) return this.#tell();
    this.#view = new View(this.host, store, ask, raw, this.signal);
    this.#note.remove();
    this.#view.update(ALL);
  }

  /** Why there is nothing to show. */
  #tell(): void {
    const { store: { report, p: { caches } } } = this.context;
    mark(this.#note, "data-kv", caches.length ? "cache-note" : "no-cache");
    say(this.#note, caches.length ? `Rows of caches are not ${NEEDS_KERNEL}. Run this cell to have them.` : report?.findings.find(({ kind }) => kind === "cache")?.title ?? "This model keeps no cache.");
  }

  hear(answer: unknown): void { this.#view?.hear(answer as Weights); }

  update(change: Change): void {
    if (this.#view) this.#view.update(change);
    else if (change.report || change.payload) this.#tell();
  }
}

export default ((host, context, signal) => new CachesPane(host, context, signal)) satisfies MakePane;
