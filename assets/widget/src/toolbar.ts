// The debugger's bar: moves, the address of the present step, the policy, breakpoints, search, help.
import { Bar, tool } from "./bar.js";
import type { Commands } from "./commands.js";
import { into, over, placeName } from "./debug.js";
import { mark, say } from "./dom.js";
import type { Change, Store, View } from "./store.js";

export interface Panels { search(): void; help(): void; breakpoints(): void }

export class Toolbar implements View {
  readonly bar: Bar;
  readonly stops: HTMLButtonElement;
  #back: HTMLButtonElement;
  #tokens: HTMLElement;
  #into: HTMLButtonElement;

  constructor(host: HTMLElement, private store: Store, commands: Commands, panels: Panels, signal: AbortSignal) {
    const make = (text: string, title: string, kv: string, run: () => void, keys?: string, label?: string) => tool(text, title, kv, run, signal, keys, label);
    this.#back = make("◀\uFE0E", "Previous op", "back", () => commands.back(), "ArrowLeft p", "Back");
    const next = make("Next ▶\uFE0E", "Run the next op; a body counts as one", "next", () => commands.next(), "ArrowRight n", "Next");
    next.classList.add("kv-go");
    this.#into = make("Into", "Enter the If, Loop or function that comes next, or run one op", "into", () => commands.into(), "i");
    const out = make("Out", "Run to the end of this body or block", "out", () => commands.out(), "o");
    const go = make("Continue", "Run to the next breakpoint", "continue", () => commands.continue(), "c");
    const earlier = make("◂◂", "The same op, one decode step earlier", "previous-token", () => commands.previousRun(), ",", "Previous token");
    const later = make("Next token ▸▸", "The same op, one decode step on", "next-token", () => commands.nextRun(), ".", "Next token");
    this.stops = make("● 0", "Breakpoints", "breakpoints", () => panels.breakpoints());
    const search = make("/", "Search steps, names, buffers", "search", () => panels.search(), "/", "Search");
    const help = make("?", "Keys and signs", "help", () => panels.help(), "?", "Help");
    this.bar = new Bar(host, store, "step", [[this.#back, next], [this.#into, out, go], [earlier, later]], [this.stops, search, help], () => this.#where(), signal);
    this.#tokens = later.parentElement!;
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
    if (change.payload) this.#tokens.hidden = t.p.runs.length < 2 && !t.p.live;
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
