// A pane in a module of its own, loaded when it is first visible and updated while it is visible.
import type { Ask, Commands } from "./actions.js";
import { button, el, mark, onResize } from "./dom.js";
import type { Hits } from "./hits.js";
import type { Reports } from "./findings.js";
import type { Modules } from "./modules.js";
import type { LaneSource } from "./pair.js";
import { ALL, type Change, type Place, type Store, type View } from "./store.js";

export interface Context {
  store: Store; commands: Commands; ask: Ask; modules: Modules; hits: Hits; reports: Reports; share: ShareContext;
  lanes?: LaneSource | null; caches?: CacheSource | null; openList?: (id: string) => void;
}
/** The data of the caches; `changed` calls when there are newer ones. */
export interface CacheSource { data(): Promise<ArrayBuffer | null>; changed(call: () => void): void }
/** The default export of a module, or one of several by name. It draws into `host` until the signal aborts. */
export type MakePane = (host: HTMLElement, context: Context, signal: AbortSignal) => Answered;
/** `hear`: takes an answer of the kernel. */
export interface Answered extends View { hear?(answer: unknown): void }

export class LazyPane implements View {
  #view: Answered | null = null;
  #asked = false;
  #seen = false;
  #stale = true; // something changed while it was out of sight

  /** `name`: of the module; `lists.buffers` is one of its panes. */
  constructor(private host: HTMLElement, private name: string, private context: Context, private signal: AbortSignal, readonly slow = true) {
    onResize(host, () => {
      this.#seen = host.clientWidth > 0 && host.clientHeight > 0;
      if (!this.#seen) return;
      if (!this.#asked) void this.#load();
      else if (this.#stale) this.#tell(ALL);
    }, signal);
  }

  async #load(): Promise<void> {
    this.#asked = true;
    try {
      const [module, part] = this.name.split(".");
      const made = await this.context.modules.load<MakePane & Record<string, MakePane>>(module);
      if (this.signal.aborted) return;
      this.#view = (part ? made[part] : made)(this.host, this.context, this.signal);
      this.#tell(ALL);
    } catch (error) {
      this.host.append(el("p.kv-none", { role: "alert" }, `This pane could not be loaded. ${String(error)}`));
    }
  }

  #tell(change: Change): void {
    this.#stale = !this.#seen;
    if (this.#seen) this.#view?.update(change);
  }

  update(change: Change): void { this.#tell(this.#stale ? ALL : change); }

  hear(answer: unknown): void { this.#view?.hear?.(answer); }
}

/** What the page offers besides its content. */
export interface Surroundings {
  html?: { able(): boolean; make(): Promise<Blob> }; // the recording as one file
  place?: Place; // the finding and the drawer that it opens with
  placed?: boolean; // it opens at a place that somebody chose
  link?: () => string; // the address of what is seen, where the page has one of its own
}
export interface ShareContext { store: Store; modules: Modules; around: Surroundings; want(): void }
/** `pane`: the part to share; by default it can be chosen. */
export interface Shared { pane?: HTMLElement; name?: string }
type OpenShare = (anchor: HTMLElement, what: Shared, context: ShareContext) => void;

export function shareButton(text: string, what: Shared, context: ShareContext, signal: AbortSignal): HTMLButtonElement {
  const title = what.name ? `Copy or save a picture or a text: ${what.name}` : "Copy or save: picture, text for a thread, link, file";
  const node: HTMLButtonElement = button(text, title, what.pane ? "copy-pane" : "share", () => {
    context.modules.load<OpenShare>("share").then((open) => open(node, what, context)).catch((error) => context.store.tell(String(error)));
  }, signal);
  node.setAttribute("aria-haspopup", "dialog");
  mark(node, "data-id", what.name ?? null);
  return node;
}

/** The button in the header of a pane. */
export function copyButton(pane: HTMLElement, name: string, context: ShareContext, signal: AbortSignal): HTMLButtonElement {
  return shareButton("Copy ▾", { pane, name }, context, signal);
}
