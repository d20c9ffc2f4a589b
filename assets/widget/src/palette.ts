// The module of the command palette, the breakpoint menu and the help panel.
import { breakpointFor, help, keysOf, label, type Action, type Commands } from "./actions.js";
import { button, el, mark, on, onHit, say, uid } from "./dom.js";
import { count, plural, visible } from "./format.js";
import type { Hits } from "./hits.js";
import { Popover } from "./popover.js";
import type { Change, Store, View } from "./store.js";

export interface Entry { title: string; key: string; run(): void }
const MOST = 60;

/** The score of a text for a title: all its words must occur; beginnings of words count more. -1: no match. */
export function fit(title: string, text: string): number {
  const lower = title.toLowerCase();
  let score = 0;
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = lower.indexOf(word);
    if (at < 0) return -1;
    score += at === 0 ? 3 : /\W/.test(lower[at - 1]) ? 2 : 1;
  }
  return score;
}

/** Entries for a text: a step by number, matching commands, runs by label or word, and the text as a query. */
export function entries(store: Store, list: Action[], hits: Hits, text: string): Entry[] {
  const { p } = store.t;
  const found: Entry[] = [];
  const number = /^(?:(?:go to )?step )?([\d,]+)$/i.exec(text.trim());
  const step = number ? Number(number[1].replaceAll(",", "")) : -1;
  if (number && step < p.total) found.push({ title: `Go to step ${count(step)}`, key: "", run: () => store.go(step) });
  const scored = list.map((action) => ({ action, score: fit(`${action.title} ${action.id} ${keysOf(action)}`, text) })).filter(({ score }) => score >= 0);
  scored.sort((a, b) => b.score - a.score);
  found.push(...scored.map(({ action }) => ({ title: action.title, key: keysOf(action), run: () => action.run() })));
  if (!text.trim()) return found;
  p.runs.forEach((run, i) => {
    const word = visible(run.text).trim();
    const title = `Go to ${run.label}${word ? ` · ${word}` : ""}`;
    if (p.runs.length > 1 && (fit(title, text) > 0 || fit(`token ${i}`, text) >= 3)) found.push({ title, key: "", run: () => store.toRun(i) });
  });
  found.splice(MOST);
  found.push({
    title: `Search: ${text.trim()}`, key: "/", run: () => void hits.ask(text.trim()).then(() => {
      if (!store.wrong) hits.go(1);
      store.tell(store.wrong || plural(store.found?.length ?? 0, "hit"));
    }),
  });
  return found;
}

export class Palette {
  #pop: Popover | null = null;

  constructor(private host: HTMLElement, private store: Store, private list: Action[], private hits: Hits) {}

  toggle(): void {
    if (this.#pop?.open) this.#pop.close();
    else this.#open();
  }

  #open(): void {
    const life = new AbortController();
    const { signal } = life;
    const id = uid("palette");
    const input = el("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": id, "aria-label": "Command, step or query", placeholder: "A command, a step number, or a query", "data-kv": "palette-input", spellcheck: "false", autocomplete: "off" });
    const options = el("ul", { id, role: "listbox", "aria-label": "Commands" });
    const note = el("span.kv-soft", { role: "status" });
    const box = el("div.kv-pop.kv-palette", { role: "dialog", "aria-label": "Commands", "data-kv": "palette-dialog" }, el("div.kv-rowline", {}, input), options, note);
    const pop = (this.#pop = new Popover(this.host, box, () => life.abort()));
    let offered: Entry[] = [];
    let at = 0;
    const choose = (to: number) => {
      at = Math.max(0, Math.min(to, offered.length - 1));
      [...options.children].forEach((option, i) => mark(option, "aria-selected", String(i === at)));
      const chosen = options.children[at];
      mark(input, "aria-activedescendant", chosen?.id ?? null);
      if (chosen) this.store.reveal(options, chosen);
    };
    const fill = () => {
      offered = entries(this.store, this.list, this.hits, input.value);
      options.replaceChildren(...offered.map(({ title, key }, i) => el("li", { id: `${id}-${i}`, role: "option", "data-kv": "palette-entry", "data-id": i }, el("span", {}, title), el("kbd", {}, key))));
      say(note, plural(offered.length, "command"));
      choose(0);
    };
    const run = (i: number) => {
      const entry = offered[i];
      pop.close();
      entry?.run();
    };
    on(input, "input", fill, signal);
    on(box, "keydown", (event) => {
      event.stopPropagation();
      const { key } = event;
      if (key === "Escape" || (key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey))) pop.close();
      else if (key === "ArrowDown" || key === "ArrowUp") choose((at + (key === "ArrowDown" ? 1 : -1) + offered.length) % Math.max(1, offered.length));
      else if (key === "PageDown" || key === "PageUp") choose(at + (key === "PageDown" ? 8 : -8));
      else if (key === "Enter" && event.target === input) run(at);
      else return;
      event.preventDefault();
    }, signal);
    onHit(options, "palette-entry", (option) => run(Number(option.dataset.id)), signal);
    fill();
    pop.show(null, input);
  }
}

/** Where Continue stops, and a field to add a query. */
export class BreakpointMenu implements View {
  readonly slow = true;
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
    const root = el("div.kv-pop.kv-menu", { role: "dialog", "aria-label": "Breakpoints", "data-kv": "breakpoint-menu" },
      el("h4", {}, "Continue stops at"), this.#list,
      el("h4", {}, "Add"), el("div.kv-rowline", {}, this.#here, missed, this.#query),
      el("div.kv-rowline", {}, this.#value, add));
    this.#pop = new Popover(host, root);
    on(this.#value, "keydown", (event) => { if (event.key === "Enter") add.click(); }, signal);
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
      say(this.#here, here?.text ?? "no selection");
    }
  }
}

const made = { BreakpointMenu, Palette, help };
export default made;
export type PaletteModule = typeof made;
