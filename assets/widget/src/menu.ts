// The breakpoint menu: what stops Continue, and a line to add more.
import { breakpointFor, label, type Commands } from "./commands.js";
import { storageId, type Kind } from "./debug.js";
import { button, el, on, onHit, say } from "./dom.js";
import type { Hits } from "./hits.js";
import { Popover } from "./popover.js";
import type { Change, Store, View } from "./store.js";

/** What to write for a kind. */
const EXAMPLES: Record<Kind, string> = { op: "Softmax", node: "name of a node", buffer: "B12", decision: "missed", condition: "copied > 1000 and run == 2", query: "op:Concat copied>1kB layer:3" };

export class BreakpointMenu implements View {
  readonly slow = true;
  readonly root: HTMLElement;
  #pop: Popover;
  #list = el("ul", { "aria-label": "Breakpoints" });
  #here: HTMLButtonElement;
  #query: HTMLButtonElement;
  #kind = el("select", { "aria-label": "Kind of breakpoint" });
  #value = el("input", { type: "text", "aria-label": "Stop at" });
  #names = el("datalist");

  constructor(host: HTMLElement, private store: Store, private commands: Commands, private hits: Hits, signal: AbortSignal) {
    this.#here = button("", "Toggle a breakpoint on the selection (b)", "breakpoint-selection", () => commands.toggleSelected(), signal, "b");
    const missed = button("an op that could be in place is not", "Toggle", "breakpoint-missed", () => commands.toggle("decision", "missed"), signal);
    this.#query = button("", "Toggle a breakpoint where the query finds a step", "breakpoint-query", () => void this.#ask(store.query), signal);
    const add = button("Add", "Add this breakpoint", "breakpoint-add", () => this.#add(), signal);
    this.#names.id = `kv-ops-${Math.random().toString(36).slice(2)}`;
    this.#value.setAttribute("list", this.#names.id);
    this.root = el("div.kv-pop.kv-menu", { role: "dialog", "aria-label": "Breakpoints", "data-kv": "breakpoint-menu" },
      el("h4", {}, "Continue stops at"), this.#list,
      el("h4", {}, "Add"), el("div.kv-rowline", {}, this.#here, missed, this.#query),
      el("div.kv-rowline", {}, this.#kind, this.#value, this.#names, add));
    this.#pop = new Popover(host, this.root);
    on(this.#kind, "change", () => this.#hint(), signal);
    on(this.#value, "keydown", (event) => {
      if (event.key === "Enter") this.#add();
    }, signal);
    on(this.#list, "change", (event) => {
      const at = Number((event.target as HTMLInputElement).dataset.id);
      store.setBreakpoints(store.breakpoints.map((b, i) => (i === at ? { ...b, enabled: !b.enabled } : b)));
    }, signal);
    onHit(this.#list, "breakpoint-remove", (gone) => store.setBreakpoints(store.breakpoints.filter((_, i) => i !== Number(gone.dataset.id))), signal);
  }

  /** `by`: the button that it belongs to. */
  toggle(by: HTMLElement | null): void { this.#pop.toggle(by, this.#kind); }

  /** What may be written for the chosen kind: an example, and a list where there is one. */
  #hint(): void {
    const kind = this.#kind.value as Kind;
    const { codes, graphs } = this.store.t.p;
    this.#value.placeholder = EXAMPLES[kind] ?? "";
    const known = kind === "decision" ? codes.decision
      : kind === "op" || kind === "node" ? [...new Set(graphs.flatMap((g) => g.order.map((n) => g.nodes[n][kind === "op" ? 1 : 0])))].sort() : [];
    this.#names.replaceChildren(...known.slice(0, 500).map((value) => el("option", { value })));
  }

  #add(): void {
    const kind = this.#kind.value as Kind;
    const text = this.#value.value.trim() || (kind === "decision" ? "missed" : "");
    if (!text) return;
    // Python refuses what it does not know, so it is not let in here
    const { decision } = this.store.t.p.codes;
    if (kind === "decision" && !decision.includes(text)) return this.store.tell(`decisions are ${decision.join(", ")}`);
    if (kind === "buffer" && Number.isNaN(storageId(text))) return this.store.tell(`${text} is not a buffer; write B12`);
    if (kind === "query") return void this.#ask(text);
    this.commands.toggle(kind, kind === "buffer" ? storageId(text) : text);
    this.#value.value = "";
  }

  async #ask(text: string): Promise<void> {
    const wrong = await this.hits.check(text);
    if (wrong) return this.store.tell(wrong);
    this.commands.toggle("query", text);
    this.#value.value = "";
  }

  update(change: Change): void {
    const { store } = this;
    if (change.payload) {
      this.#kind.replaceChildren(...store.t.p.codes.breakpoint.map((k) => el("option", { value: k }, k)));
      this.#hint();
    }
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
