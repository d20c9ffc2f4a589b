// What every page of kvviz has around its panes: the root element, panes, a help panel, a status line.
import { el, say } from "./dom.js";
import { Popover } from "./popover.js";

/** `inner`: one of two inside a root of their own, which has the colours. */
export function makeRoot(inner = false): HTMLElement {
  return el("div", { class: inner ? "kv-root" : "kvviz", role: "group", "aria-label": "kvviz debugger", tabindex: -1 });
}

export class Shell {
  readonly app = el("div.kv-app");
  readonly #sentence = el("span.kv-say", { "data-kv": "sentence", "aria-live": "polite" });
  readonly #note = el("span.kv-tell", { "data-kv": "status", role: "status" });
  readonly #undo = el("button", { class: "kv-link", "data-kv": "undo", title: "Back to where one was (u)" });
  #help: Popover | null = null;

  constructor(readonly root: HTMLElement, undo: () => void = () => {}) {
    this.#undo.onclick = undo;
    this.#undo.hidden = true;
    root.replaceChildren(this.app);
  }

  pane(name: string, label: string, parent: HTMLElement = this.app): HTMLElement {
    const node = el("section", { class: `kv-pane kv-${name}`, "aria-label": label });
    parent.append(node);
    return node;
  }

  /** The line at the bottom; call it when all panes are there. */
  addStatus(): void {
    this.app.append(el("div.kv-status", {}, this.#sentence, this.#undo, this.#note));
  }

  sentence(text: string): void {
    say(this.#sentence, text);
    this.#sentence.title = text;
  }

  note(text: string): void {
    say(this.#note, text);
    this.#note.title = text;
  }

  /** Offer to go back; nothing where there is nothing to say. */
  undo(text: string): void {
    say(this.#undo, text && `◂ undo: ${text}`);
    this.#undo.hidden = !text;
  }

  /** Open the help panel, or close it; false if there was none to close. */
  help(make: (() => HTMLElement) | null): boolean {
    if (this.#help) {
      this.#help.close();
      return true;
    }
    if (!make) return false;
    const panel = make();
    this.#help = new Popover(this.app, panel, () => {
      panel.remove();
      this.#help = null;
    });
    this.#help.show(this.app.querySelector<HTMLElement>('[data-kv="help"]'));
    return true;
  }
}
