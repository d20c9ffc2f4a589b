// Popovers beside the element that opened them. Its button, Escape and a press elsewhere close one, and the focus
// returns to where it was.
import { el, mark, on, onHit, onKey } from "./dom.js";

const GAP = 4; // px to what opened it, and to the edges
const STATUS = 34; // px of the line at the bottom, which stays to be read

/** Close the last opened popover in `host`; false if there is none. */
export function closePopover(host: HTMLElement): boolean {
  // found in the page: each module has its own copy of this file
  const shut = [...host.querySelectorAll<HTMLElement>(".kv-pop > .kv-close")].pop();
  shut?.click();
  return !!shut;
}

export class Popover {
  #ends: AbortController | null = null;
  #toggle: HTMLElement | null = null;

  /** `root`: the content, in the page while it is open; `closed` is called afterwards. */
  constructor(private host: HTMLElement, readonly root: HTMLElement, private closed: () => void = () => {}) {
    const shut = el("button.kv-close", { "data-kv": "close", "aria-label": "Close", title: "Close (Esc)" }, "✕");
    shut.onclick = () => this.close();
    root.prepend(shut);
    root.tabIndex = -1;
  }

  get open(): boolean { return !!this.#ends; }

  /** `toggle`: its button; `focus`: the element that gets the focus. */
  show(toggle: HTMLElement | null, focus: HTMLElement = this.root): void {
    if (this.open) return;
    const ends = this.#ends = new AbortController();
    const { signal } = ends;
    this.#toggle = toggle;
    if (toggle) mark(toggle, "aria-expanded", "true");
    this.host.append(this.root);
    this.#place();
    focus.focus({ preventScroll: true });
    onKey(this.root, (key) => key === "Escape" && this.close(), signal);
    document.addEventListener("pointerdown", (event) => {
      if (!event.composedPath().some((node) => node === this.root || node === this.#toggle)) this.close(false);
    }, { capture: true, signal });
  }

  toggle(toggle: HTMLElement | null, focus?: HTMLElement): void {
    if (this.open) this.close();
    else this.show(toggle, focus);
  }

  close(back = true): void {
    if (!this.open) return;
    this.#ends!.abort();
    this.#ends = null;
    const toggle = this.#toggle;
    if (toggle) mark(toggle, "aria-expanded", "false");
    const inside = this.root.contains((this.root.getRootNode() as Document | ShadowRoot).activeElement);
    this.root.remove();
    const home = toggle?.isConnected && toggle.offsetParent ? toggle : this.host.closest<HTMLElement>(".kvviz");
    if (back || inside) home?.focus({ preventScroll: true });
    this.closed();
  }

  /** Below its button, or above if there is more room. */
  #place(): void {
    const { style } = this.root;
    const box = this.host.getBoundingClientRect();
    const at = this.#toggle?.getBoundingClientRect();
    if (!at?.width) return;
    const below = box.bottom - at.bottom - STATUS;
    const above = at.top - box.top;
    const down = below >= Math.min(above, this.root.scrollHeight + 2 * GAP);
    style.inset = "auto";
    style.maxHeight = `${Math.max(80, (down ? below : above) - 2 * GAP)}px`;
    if (down) style.top = `${at.bottom - box.top + GAP}px`;
    else style.bottom = `${box.bottom - at.top + GAP}px`;
    style.left = `${Math.max(GAP, Math.min(at.left - box.left, box.width - this.root.offsetWidth - 2 * GAP))}px`;
  }
}

const WORDS = {
  frontier: "The frontier is all ops whose inputs exist and that have not run: any of them could run next.",
  owner: "The owner of a buffer, which is the model, the caller or this run, decides whether an op may overwrite it.",
  "in place": "An op runs in place if it writes its result over an input that nothing reads again, so that nothing new is allocated.",
  rows: "A cache has one row of numbers for each token that was read; each decode step writes one more.",
};
export type Word = keyof typeof WORDS;

/** A word that opens its explanation, underlined with dots. */
export function word(id: Word, text: string = id): HTMLElement {
  return el("button.kv-term", { "data-kv": "term", "data-id": id, title: WORDS[id], "aria-haspopup": "dialog" }, text);
}

/** A sentence in which "in place" is such a word, where it stands first. */
export function explained(text: string): (Node | string)[] {
  const at = text.toLowerCase().indexOf("in place");
  return at < 0 ? [text] : [text.slice(0, at), word("in place", text.slice(at, at + 8)), text.slice(at + 8)].filter((part) => part !== "");
}

/** Open the explanations of the words in `app`. */
export function explain(app: HTMLElement, signal: AbortSignal): void {
  onHit(app, "term", (found) => {
    const id = found.dataset.id as Word;
    new Popover(app, el("div.kv-pop.kv-meaning", { role: "dialog", "aria-label": id, "data-kv": "meaning" }, el("p", {}, WORDS[id]))).show(found);
  }, signal);
  // what the panes do on Enter is not meant where a word has the focus
  on(app, "keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && (event.target as HTMLElement).dataset?.kv === "term") event.stopPropagation();
  }, signal);
}
