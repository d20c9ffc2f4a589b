// What the share menu needs to know of its surroundings, and the button that opens it; the menu itself is a module of its own.
import { button } from "./dom.js";
import type { Modules } from "./modules.js";
import type { Store } from "./store.js";

/** What the page can do beside being looked at. */
export interface Surroundings {
  html?: { able(): boolean; make(): Promise<Blob> }; // the recording as one file
  link?: () => string; // the address of what is seen, where the page has one of its own
}
export interface ShareContext { store: Store; modules: Modules; around: Surroundings; want(): void }
/** `pane`: what is to be seen in a picture; without it, one can choose. */
export interface Shared { pane?: HTMLElement; name?: string }
type OpenShare = (anchor: HTMLElement, what: Shared, context: ShareContext) => void;

/** A button for the menu: of the whole page, or of a pane in its header. */
export function shareButton(text: string, what: Shared, context: ShareContext, signal: AbortSignal): HTMLButtonElement {
  const title = what.name ? `Copy or save a picture or a text: ${what.name}` : "Copy or save: picture, text for a thread, link, file";
  const node: HTMLButtonElement = button(text, title, what.pane ? "copy-pane" : "share", () => void openShare(node, what, context), signal);
  node.setAttribute("aria-haspopup", "dialog");
  return node;
}

export async function openShare(anchor: HTMLElement, what: Shared, context: ShareContext): Promise<void> {
  try {
    (await context.modules.load<OpenShare>("share"))(anchor, what, context);
  } catch (error) {
    context.store.tell(String(error));
  }
}

/** The button in the header of a pane: a picture of it, and its content as Markdown. */
export function copyButton(pane: HTMLElement, name: string, context: ShareContext, signal: AbortSignal): HTMLButtonElement {
  const node = shareButton("Copy ▾", { pane, name }, context, signal);
  node.setAttribute("data-id", name);
  return node;
}
