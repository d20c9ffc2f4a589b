// The context of the share menu, and its button; the menu is a module of its own.
import { button, mark } from "./dom.js";
import type { Modules } from "./modules.js";
import type { Place, Store } from "./store.js";

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
