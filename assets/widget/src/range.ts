// The window of steps that is looked at more closely, on the timeline and in the memory map: what it sums, and how it is made.
import { button, el, on, onDrag, say, stop } from "./dom.js";
import { cost } from "./evidence.js";
import { bytes, count, plural } from "./format.js";
import { bare, numberOf, type Trace } from "./replay.js";
import type { Store } from "./store.js";

/** Bytes over the steps from one place up to another, and the place of their peak. Of so many `runs` only totals are here, which do not say what was missed. */
export function sumsOf(t: Trace, [from, to]: [number, number]) {
  const { p, x } = t;
  const sums = { steps: to - from, allocated: 0, copied: 0, written: 0, missed: 0, peak: from, runs: 0 };
  for (let i = from; i < to; i++) {
    sums.allocated += p.step.alloc[i];
    sums.copied += p.step.copied[i];
    sums.written += p.step.written[i];
    if (p.step.flags[i] & p.flag.missed) sums.missed += cost(t, i);
    if (p.step.live[i] > p.step.live[sums.peak]) sums.peak = i;
  }
  for (let run = x.run[from] + 1; run < x.run[to - 1]; run++) {
    if (!bare(p, run)) continue;
    const r = p.runs[run];
    sums.runs++;
    for (const key of ["steps", "allocated", "copied", "written"] as const) sums[key] += r[key];
  }
  return sums;
}

const KEYS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };

export class RangeLine {
  readonly root: HTMLElement;
  #text = el("span", { "aria-live": "polite" });
  #peak: HTMLButtonElement;
  #anchor = 0;

  /** `at`: the step under a pointer, -1 = none; `ask`: find the steps of a query. */
  constructor(private store: Store, plot: HTMLElement, slider: HTMLInputElement, at: (event: PointerEvent) => number, ask: (query: string) => void, signal: AbortSignal) {
    this.#peak = button("", "Go to the step of this range where most bytes are live", "range-peak", () => store.seek(sumsOf(store.t, this.#whole()).peak), signal);
    const steps = button("steps", "Find these steps", "range-steps", () => {
      const [from, to] = this.#whole();
      ask(`step:${numberOf(store.t, from)}..${numberOf(store.t, to - 1)}`);
    }, signal);
    const forget = button("×", "Forget this range (Esc)", "range-clear", () => store.setWindow(null), signal);
    forget.ariaLabel = "Forget this range";
    this.root = el("span.kv-sums", { "data-kv": "range" }, this.#text, this.#peak, steps, forget);
    onDrag(plot, (event, moving) => {
      const step = event.shiftKey ? at(event) : -1;
      if (step < 0) return;
      if (!moving) this.#anchor = step;
      this.#to(step);
    }, signal);
    on(slider, "keydown", (event) => {
      if (event.key === "Escape" && store.window) {
        stop(event);
        return store.setWindow(null);
      }
      if (!event.shiftKey || !KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      stop(event);
      if (!store.window) this.#anchor = Math.max(0, store.cursor);
      const step = Math.max(0, Math.min(store.cursor + KEYS[event.key], store.t.p.steps - 1));
      store.seek(step);
      this.#to(step);
    }, signal);
  }

  #to(step: number): void { this.store.setWindow([Math.min(this.#anchor, step), Math.max(this.#anchor, step) + 1]); }

  /** The window in whole steps. */
  #whole(): [number, number] {
    const { window, t: { p } } = this.store;
    return [Math.floor(window![0]), Math.min(p.steps, Math.ceil(window![1]))];
  }

  show(): void {
    const { window, t } = this.store;
    this.root.hidden = !window || !t.p.steps;
    if (this.root.hidden) return;
    const [from, to] = this.#whole();
    const s = sumsOf(t, [from, to]);
    const missed = `missed ${bytes(s.missed)}${s.runs ? ` without ${plural(s.runs, "run")} that kept no steps` : ""}`;
    const number = (step: number) => count(numberOf(t, step));
    const more = s.runs && s.steps === to - from ? ` and the totals of ${plural(s.runs, "run")}` : "";
    say(this.#text, `${plural(s.steps, "step")}${more}, ${number(from)}–${number(to - 1)}: allocated ${bytes(s.allocated)}, copied ${bytes(s.copied)}, written ${bytes(s.written)}, ${missed}, peak `);
    say(this.#peak, `${bytes(t.p.step.live[s.peak])} at step ${number(s.peak)}`);
  }
}
