// Popovers beside the element that opened them. Its button, Escape and a press elsewhere close one, and the focus
// returns to where it was.
import { el, mark, onKey } from "./dom.js";

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
