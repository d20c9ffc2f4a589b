// The debugger's bar: moves, the address of the present step, the policy, breakpoints, search, help.
import { shown, type Action } from "./actions.js";
import { Bar, tool } from "./bar.js";
import { into, over, placeName } from "./debug.js";
import { mark, say } from "./dom.js";
import type { Change, Store, View } from "./store.js";

export class Toolbar implements View {
  readonly bar: Bar;
  readonly stops: HTMLButtonElement;
  #back: HTMLButtonElement;
  #tokens: HTMLElement;
  #later: HTMLElement;
  #into: HTMLButtonElement;

  constructor(host: HTMLElement, private store: Store, list: Action[], signal: AbortSignal) {
    const make = (text: string, id: string, label?: string) => {
      const { title, keys, run } = list.find((action) => action.id === id)!;
      const known = keys.filter((key) => !/F\d/.test(key));
      return tool(text, title, id, run, signal, known.map(shown).join(" "), label);
    };
    this.#back = make("◀\uFE0E", "back", "Back");
    const next = make("Next ▶\uFE0E", "next", "Next");
    next.classList.add("kv-go");
    this.#into = make("Into", "into");
    const out = make("Out", "out");
    const go = make("Continue", "continue");
    const earlier = make("◂◂", "previous-token", "Previous token");
    const later = make("Next token ▸▸", "next-token", "Next token");
    this.stops = make("● 0", "breakpoints");
    const palette = make("⌘K", "palette", "⌘K: all commands");
    const help = make("?", "help", "Help");
    this.bar = new Bar(host, store, "step", [[this.#back, next], [this.#into, out, go], [earlier, later]], [this.stops, palette, help], () => this.#where(), signal);
    this.#tokens = later.parentElement!;
    this.#later = later;
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
      // a hint that Next would pass over a body
      mark(this.#into, "data-on", into(t, cursor) !== over(t, cursor) ? "1" : null);
      mark(this.#back, "aria-disabled", cursor < 0 && this.store.bare < 0 ? "true" : null); // a disabled button would swallow keys
    }
    if (change.breakpoints) {
      const on = breakpoints.filter((b) => b.enabled).length;
      say(this.stops, `● ${on}`);
      mark(this.stops, "data-on", on ? "1" : null);
      mark(this.stops, "aria-label", `Breakpoints: ${on} on`);
    }
  }
}
