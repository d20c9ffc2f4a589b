// The toolbar: moves, the address of the present step, the policy, breakpoints, search, help.
import type { Commands } from "./commands.js";
import { into, over, placeName } from "./debug.js";
import { button, el, mark, say, set } from "./dom.js";
import { count } from "./format.js";
import type { Change, Store, View } from "./store.js";

export interface Panels { search(): void; help(): void; breakpoints(): void }

export class Toolbar implements View {
  #goto: HTMLInputElement;
  #of = el("span");
  #where = el("span", { class: "kv-where" });
  #position: HTMLElement;
  #policy = el("span", { class: "kv-pill", "data-kv": "policy" });
  #stops: HTMLButtonElement;
  #back: HTMLButtonElement;
  #tokens: HTMLElement;
  #into: HTMLButtonElement;
  readonly root: HTMLElement;

  constructor(host: HTMLElement, private store: Store, commands: Commands, panels: Panels, signal: AbortSignal) {
    const make = (text: string, title: string, kv: string, run: () => void, keys?: string, label?: string) => {
      const b = button(text, `${title}${keys ? ` (${keys.split(" ").join(" or ")})` : ""}`, kv, run, signal, keys);
      if (label) b.setAttribute("aria-label", label);
      return b;
    };
    this.#back = make("◀\uFE0E", "Previous op", "back", () => commands.back(), "ArrowLeft p", "Back");
    const next = make("Next ▶\uFE0E", "Run the next op; a body counts as one", "next", () => commands.next(), "ArrowRight n", "Next");
    next.classList.add("kv-go");
    this.#into = make("Into", "Enter the If, Loop or function that comes next, or run one op", "into", () => commands.into(), "i");
    this.#tokens = el("span", { class: "kv-group" },
      make("◂◂", "The same op, one decode step earlier", "previous-token", () => commands.previousRun(), ",", "Previous token"),
      make("Next token ▸▸", "The same op, one decode step on", "next-token", () => commands.nextRun(), ".", "Next token"));
    this.#goto = el("input", { type: "number", min: -1, step: 1, "data-kv": "goto", "aria-label": "Go to step", title: "Steps are numbered from 0, as in trace.steps; type a number to go there (g)" });
    const go = () => {
      const to = this.#goto.valueAsNumber;
      if (Number.isFinite(to)) store.seek(to);
      this.#number();
    };
    this.#goto.addEventListener("change", go, { signal });
    this.#goto.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      go();
      host.parentElement?.focus({ preventScroll: true }); // so that the next key moves on from there
    }, { signal });
    this.#position = el("span", { class: "kv-position", "data-kv": "step-number" }, "step ", this.#goto, this.#of, this.#where);
    this.#stops = make("● 0", "Breakpoints", "breakpoints", () => panels.breakpoints());
    this.root = el("div", { class: "kv-bar", role: "toolbar", "aria-label": "Debugger" },
      el("span", { class: "kv-group" }, this.#back, next),
      el("span", { class: "kv-group" },
        this.#into,
        make("Out", "Run to the end of this body or block", "out", () => commands.out(), "o"),
        make("Continue", "Run to the next breakpoint", "continue", () => commands.continue(), "c")),
      this.#tokens, el("span", { class: "kv-rest" }, this.#position, el("span", { class: "kv-right" }, this.#policy, this.#stops,
        make("/", "Search steps, names, buffers", "search", () => panels.search(), "/", "Search"),
        make("?", "Keys and signs", "help", () => panels.help(), "?", "Help"))));
    host.append(this.root);
  }

  focusGoto(): void {
    this.#goto.focus();
    this.#goto.select();
  }

  #number(): void {
    const { cursor } = this.store;
    this.#goto.value = String(cursor);
    set(this.#goto, "--kv-digits", String(String(cursor).length));
  }

  update(change: Change): void {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      say(this.#policy, `policy: ${p.policy.name}`);
      this.#policy.title = p.policy.about;
      this.#goto.max = String(p.steps - 1);
      this.#tokens.hidden = p.runs.length < 2 && !p.live;
    }
    if (change.payload || change.cursor) {
      this.#number();
      mark(this.#position, "data-step", store.cursor);
      say(this.#of, ` of ${count(p.steps)}`);
      const run = p.runs.length > 1 ? p.runs[store.run]?.label ?? "" : "";
      const place = placeName(store.t, store.cursor);
      const where = [run.replace(/^decode (\d+)/, "decode step $1"), place].filter(Boolean).join(" · ");
      say(this.#where, where ? ` · ${where}` : "");
      this.#where.title = where;
      // a hint that Next would pass over a body
      mark(this.#into, "data-on", into(store.t, store.cursor) !== over(store.t, store.cursor) ? "1" : null);
      mark(this.#back, "aria-disabled", store.cursor < 0 ? "true" : null); // a disabled button would swallow keys
    }
    if (change.breakpoints) {
      const on = store.breakpoints.filter((b) => b.enabled).length;
      say(this.#stops, `● ${on}`);
      mark(this.#stops, "data-on", on ? "1" : null);
      mark(this.#stops, "aria-label", `Breakpoints: ${on} on`);
    }
  }
}
