// The graph while a finding is framed: what takes part in the shown step alone, or on request its whole block.
import { button, mark, say } from "./dom.js";
import { plural } from "./format.js";
import { around, type Around } from "./participants.js";
import type { Stage } from "./stage.js";
import type { Store } from "./store.js";

export class Framed {
  around: Around | null = null;
  readonly button: HTMLButtonElement;
  #whole = false; // somebody asked for all ops of the block
  #usual = 1; // the zoom of whole blocks

  constructor(private store: Store, private root: HTMLElement, changed: () => void, signal: AbortSignal) {
    this.button = button("", "", "hidden-ops", () => {
      this.#whole = !this.#whole;
      changed();
    }, signal);
    this.button.className = "kv-link";
  }

  unfold(): void { if (this.around) this.button.click(); }

  /** Follow the evidence; returns whether the drawing changes. */
  follow(stage: Stage): boolean {
    const { evidence, report, cursor, t } = this.store;
    const step = evidence?.steps[evidence.at] ?? -1;
    const peak = report?.findings[evidence?.finding ?? -1]?.kind === "peak";
    const drawn = step >= 0 && step === cursor ? around(t, step, peak) : null;
    const [had, now] = [this.around, this.#whole ? null : drawn];
    this.button.hidden = !drawn?.hidden;
    if (drawn) {
      say(this.button, this.#whole ? "only what takes part" : `${plural(drawn.hidden, "op")} of this block hidden · show all`);
      this.button.title = this.#whole ? "Fold the ops that play no part in this step of the finding" : "Show the whole block";
    }
    mark(this.root, "data-evidence", now ? step : null);
    mark(this.root, "aria-description", now ? now.said.join("; ") : null);
    if (!had && !now) return false;
    this.around = now;
    if (!had) this.#usual = stage.zoom;
    stage.level = { rows: [], w: 0, h: 0 };
    stage.small = !!now;
    if (!now) stage.zoomTo(this.#usual);
    return true;
  }
}
