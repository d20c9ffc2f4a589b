// The bar at the top: moves, the editable step number, the policy, breakpoints, query, help.
import { shown, type Action } from "./actions.js";
import { into, over, placeName } from "./debug.js";
import { button, el, mark, on, say, set } from "./dom.js";
import { count, plural } from "./format.js";
import type { Change, Store, View } from "./store.js";

/** Makes buttons of actions; their titles name the keys. */
export function tools(list: Action[], signal: AbortSignal): (text: string, id: string, label?: string) => HTMLButtonElement {
  return (text, id, label) => {
    const { title, keys, run } = list.find((action) => action.id === id)!;
    const known = keys.filter((key) => !/F\d/.test(key)).map(shown);
    const b = button(text, `${title}${known.length ? ` (${known.join(" or ")})` : ""}`, id, run, signal, known.join(" ") || undefined);
    if (label) b.ariaLabel = label;
    if (id === "next") b.classList.add("kv-go");
    return b;
  };
}

export class Bar implements View {
  readonly root: HTMLElement;
  #goto: HTMLInputElement;
  #of = el("span");
  #where = el("span.kv-where");
  #position: HTMLElement;
  #policy = el("span.kv-pill", { "data-kv": "policy" });

  /** `unit`: the name of positions; `where`: the text after the number. */
  constructor(host: HTMLElement, private store: Store, unit: string, groups: HTMLElement[][], right: HTMLElement[], private where: () => string, signal: AbortSignal) {
    this.#goto = el("input", { type: "number", min: -1, step: 1, "data-kv": "goto", "aria-label": `Go to ${unit}`, title: `Numbered from 0; type a number to go there (g)` });
    const go = () => {
      const to = this.#goto.valueAsNumber;
      if (Number.isFinite(to)) store.go(to);
      this.#number();
    };
    on(this.#goto, "change", go, signal);
    on(this.#goto, "keydown", (event) => {
      if (event.key !== "Enter") return;
      go();
      host.parentElement?.focus({ preventScroll: true }); // so that the next key moves on from there
    }, signal);
    this.#position = el("span.kv-position", { "data-kv": "step-number" }, `${unit} `, this.#goto, this.#of, this.#where);
    this.root = el("div.kv-bar", { role: "toolbar", "aria-label": "Moves" }, ...groups.map((g) => el("span.kv-group", {}, ...g)),
      el("span.kv-rest", {}, this.#position, el("span.kv-right", {}, this.#policy, ...right)));
    host.append(this.root);
  }

  add(control: HTMLElement): void { this.#policy.after(control); }

  focusGoto(): void {
    this.#goto.focus();
    this.#goto.select();
  }

  #number(): void {
    const text = String(this.store.number);
    this.#goto.value = text;
    set(this.#goto, "--kv-digits", String(text.length));
  }

  update(change: Change): void {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      say(this.#policy, `${p.policy.dry ? "dry run · " : ""}policy: ${p.policy.name}`);
      this.#policy.title = p.policy.about;
      this.#goto.max = String(p.total - 1);
    }
    if (!change.payload && !change.cursor) return;
    this.#number();
    mark(this.#position, "data-step", store.number);
    const kept = p.runs.filter((r) => r.steps).length;
    const some = kept > 0 && p.runs.some((r) => !r.steps && r.written);
    say(this.#of, ` of ${count(p.total)}${some ? ` kept, in ${count(kept)} of ${plural(p.runs.length, "run")}` : ""}`);
    const where = this.where();
    say(this.#where, where ? ` · ${where}` : "");
    this.#where.title = where;
  }
}

export class Toolbar implements View {
  readonly bar: Bar;
  readonly stops: HTMLButtonElement;
  #back: HTMLButtonElement;
  #tokens: HTMLElement;
  #later: HTMLElement;
  #into: HTMLButtonElement;

  constructor(host: HTMLElement, private store: Store, list: Action[], signal: AbortSignal) {
    const make = tools(list, signal);
    this.#back = make("◀\uFE0E", "back", "Back");
    this.#into = make("Into", "into");
    this.#later = make("Next token ▸▸", "next-token", "Next token");
    this.stops = make("Break", "breakpoints");
    this.bar = new Bar(host, store, "step", [[this.#back, make("Next ▶\uFE0E", "next", "Next")], [this.#into, make("Out", "out"), make("Continue", "continue")], [make("◂◂", "previous-token", "Previous token"), this.#later]],
      [this.stops, make("⌘K", "palette", "⌘K: all commands"), make("?", "help", "Help")], () => this.#where(), signal);
    this.#tokens = this.#later.parentElement!;
  }

  #where(): string {
    const { t, cursor, run } = this.store;
    const label = t.p.runs.length > 1 ? t.p.runs[run]?.label ?? "" : "";
    const place = this.store.bare < 0 ? placeName(t, cursor) : "totals only";
    return [label.replace(/^decode (\d+)/, "decode step $1"), place].filter(Boolean).join(" · ");
  }

  update(change: Change): void {
    const { t, cursor, breakpoints } = this.store;
    this.bar.update(change);
    if (change.payload) {
      this.#tokens.hidden = t.p.runs.length < 2 && !t.p.live;
      const what = t.p.story.length ? "Next token" : "Next run";
      say(this.#later, `${what} ▸▸`);
      this.#later.ariaLabel = what;
    }
    if (change.payload || change.cursor) {
      mark(this.#into, "data-on", into(t, cursor) !== over(t, cursor) ? "1" : null);
      mark(this.#back, "aria-disabled", cursor < 0 && this.store.bare < 0 ? "true" : null); // a disabled button would swallow keys
    }
    if (change.breakpoints) {
      const on = breakpoints.filter((b) => b.enabled).length;
      say(this.stops, on ? `Break ${on}` : "Break");
      mark(this.stops, "data-on", on ? "1" : null);
      mark(this.stops, "aria-label", `Break: ${on} breakpoints on`);
      this.stops.title = `${on} breakpoints are on (b)`;
    }
  }
}
