// The sums of the steps between two places of the timeline, which are the window of the memory map as well.
import { button, el, on, onDrag, say, stop } from "./dom.js";
import { cost } from "./evidence.js";
import { bytes, count, plural } from "./format.js";
import { bare, numberOf, type Trace } from "./replay.js";
import type { Store } from "./store.js";

/** Sums of bytes over `steps`; those of `runs` without steps come from their totals, which do not say what was missed. */
export interface Sums { steps: number; allocated: number; copied: number; written: number; missed: number; runs: number }

/** Sums from one place up to another, which is not included. */
export function sumsOf({ p, x }: Trace, [from, to]: [number, number]): Sums {
  const sums = { steps: to - from, allocated: 0, copied: 0, written: 0, missed: 0, runs: 0 };
  for (let i = from; i < to; i++) {
    sums.allocated += p.step.alloc[i];
    sums.copied += p.step.copied[i];
    sums.written += p.step.written[i];
    if (p.step.flags[i] & p.flag.missed) sums.missed += cost({ p, x }, i);
  }
  for (let run = x.run[from] + 1; run < x.run[to - 1]; run++) {
    if (!bare(p, run)) continue;
    const r = p.runs[run];
    sums.runs++;
    sums.steps += r.steps;
    sums.allocated += r.allocated;
    sums.copied += r.copied;
    sums.written += r.written;
  }
  return sums;
}

const KEYS: Record<string, number> = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 0.05, PageDown: -0.05, Home: -1e9, End: 1e9 };

export class RangeLine {
  readonly root: HTMLElement;
  #text = el("span", { "aria-live": "polite" });
  #anchor = 0;

  /** `at`: the step under a pointer, -1 = none; `ask`: find the steps of a query. */
  constructor(private store: Store, plot: HTMLElement, slider: HTMLInputElement, at: (event: PointerEvent) => number, ask: (query: string) => void, signal: AbortSignal) {
    const steps = button("steps", "Find these steps", "range-steps", () => {
      const [from, to] = store.window!;
      ask(`step:${numberOf(store.t, from)}..${numberOf(store.t, to - 1)}`);
    }, signal);
    const forget = button("×", "Forget this range (Esc)", "range-clear", () => store.setWindow(null), signal);
    forget.ariaLabel = "Forget this range";
    this.root = el("span.kv-sums", { "data-kv": "range" }, this.#text, steps, forget);
    onDrag(plot, (event, moving) => {
      if (!event.shiftKey) return;
      const step = at(event);
      if (step < 0) return;
      if (!moving) this.#anchor = step;
      this.#to(step);
    }, signal);
    on(slider, "keydown", (event) => {
      const by = KEYS[event.key];
      if (event.key === "Escape" && store.window) {
        stop(event);
        return store.setWindow(null);
      }
      if (!event.shiftKey || !by || event.ctrlKey || event.metaKey || event.altKey) return;
      stop(event);
      if (!store.window) this.#anchor = Math.max(0, store.cursor);
      const { steps } = store.t.p;
      const step = Math.max(0, Math.min(store.cursor + (Number.isInteger(by) ? by : Math.round(by * steps)), steps - 1));
      store.seek(step);
      this.#to(step);
    }, signal);
  }

  #to(step: number): void { this.store.setWindow([Math.min(this.#anchor, step), Math.max(this.#anchor, step) + 1]); }

  show(): void {
    const { window, t } = this.store;
    this.root.hidden = !window || window[1] - window[0] < 1;
    if (!window || this.root.hidden) return;
    const s = sumsOf(t, [Math.floor(window[0]), Math.ceil(window[1])]);
    const missed = `missed ${bytes(s.missed)}${s.runs ? ` without ${plural(s.runs, "run")} that kept no steps` : ""}`;
    say(this.#text, `${plural(s.steps, "step")} from ${count(numberOf(t, Math.floor(window[0])))}: allocated ${bytes(s.allocated)}, copied ${bytes(s.copied)}, written ${bytes(s.written)}, ${missed} `);
  }
}
