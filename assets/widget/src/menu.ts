// The breakpoint menu: where Continue stops, and a field to add a query.
import { breakpointFor, label, type Commands } from "./commands.js";
import { button, el, on, onHit, say } from "./dom.js";
import type { Hits } from "./hits.js";
import { Popover } from "./popover.js";
import type { Change, Store, View } from "./store.js";

export class BreakpointMenu implements View {
  readonly slow = true;
  readonly root: HTMLElement;
  #pop: Popover;
  #list = el("ul", { "aria-label": "Breakpoints" });
  #here: HTMLButtonElement;
  #query: HTMLButtonElement;
  #value = el("input", { type: "text", "aria-label": "Stop where this query finds a step", placeholder: "op:Concat copied>1kB layer:3" });

  constructor(host: HTMLElement, private store: Store, private commands: Commands, private hits: Hits, signal: AbortSignal) {
    this.#here = button("", "Toggle a breakpoint on the selection (b)", "breakpoint-selection", () => commands.toggleSelected(), signal, "b");
    const missed = button("an op that could be in place is not", "Toggle", "breakpoint-missed", () => commands.toggle("decision", "missed"), signal);
    this.#query = button("", "Toggle a breakpoint where the query finds a step", "breakpoint-query", () => void this.#ask(store.query), signal);
    const add = button("Add", "Add this breakpoint", "breakpoint-add", () => void this.#ask(this.#value.value.trim()), signal);
    this.root = el("div.kv-pop.kv-menu", { role: "dialog", "aria-label": "Breakpoints", "data-kv": "breakpoint-menu" },
      el("h4", {}, "Continue stops at"), this.#list,
      el("h4", {}, "Add"), el("div.kv-rowline", {}, this.#here, missed, this.#query),
      el("div.kv-rowline", {}, this.#value, add));
    this.#pop = new Popover(host, this.root);
    on(this.#value, "keydown", (event) => {
      if (event.key === "Enter") void this.#ask(this.#value.value.trim());
    }, signal);
    on(this.#list, "change", (event) => {
      const at = Number((event.target as HTMLInputElement).dataset.id);
      store.setBreakpoints(store.breakpoints.map((b, i) => (i === at ? { ...b, enabled: !b.enabled } : b)));
    }, signal);
    onHit(this.#list, "breakpoint-remove", (gone) => store.setBreakpoints(store.breakpoints.filter((_, i) => i !== Number(gone.dataset.id))), signal);
  }

  toggle(by: HTMLElement | null): void { this.#pop.toggle(by, this.#value); }

  async #ask(text: string): Promise<void> {
    if (!text) return;
    const wrong = await this.hits.check(text);
    if (wrong) return this.store.tell(wrong);
    this.commands.toggle("query", text);
    this.#value.value = "";
  }

  update(change: Change): void {
    const { store } = this;
    if (change.hits) {
      this.#query.hidden = !store.query || store.wrong !== "";
      say(this.#query, store.query);
    }
    if (change.breakpoints) {
      const rows = store.breakpoints.map((b, i) => el("li", { "data-kv": "breakpoint", "data-id": i },
        el("label", { title: label(b) }, el("input", { type: "checkbox", "data-id": i, checked: b.enabled }), el("span", {}, label(b))),
        el("button", { "data-kv": "breakpoint-remove", "data-id": i, "aria-label": `Remove ${label(b)}` }, "✕"),
        ...(b.error ? [el("p.kv-error", { role: "alert" }, b.error)] : [])));
      this.#list.replaceChildren(...(rows.length ? rows : [el("li.kv-none", {}, "nothing yet")]));
    }
    if (change.selection || change.cursor || change.payload) {
      const here = breakpointFor(store);
      this.#here.disabled = !here;
      say(this.#here, here ? `${here.text}` : "no selection");
    }
  }
}
