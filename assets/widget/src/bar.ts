// The bar at the top: groups of buttons, the present position as a number that can be typed, the policy.
import { button, el, mark, on, say, set } from "./dom.js";
import { count, plural } from "./format.js";
import type { Change, Store, View } from "./store.js";

/** A button of the bar; `keys` are told in its title. */
export function tool(text: string, title: string, kv: string, run: () => void, signal: AbortSignal, keys?: string, label?: string): HTMLButtonElement {
  const b = button(text, `${title}${keys ? ` (${keys.split(" ").join(" or ")})` : ""}`, kv, run, signal, keys);
  if (label) b.setAttribute("aria-label", label);
  return b;
}

export class Bar implements View {
  readonly root: HTMLElement;
  #goto: HTMLInputElement;
  #of = el("span");
  #where = el("span.kv-where");
  #position: HTMLElement;
  #policy = el("span.kv-pill", { "data-kv": "policy" });

  /** `unit`: what positions are called; `where`: what is said behind the number. */
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

  /** One more control at the right. */
  add(control: HTMLElement): void {
    this.#policy.after(control);
  }

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
