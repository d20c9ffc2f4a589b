// The graph while a finding is framed: what takes part in the shown step alone, or on request its whole block.
import { button, mark, say } from "./dom.js";
import { plural } from "./format.js";
import { around, type Around } from "./participants.js";
import type { Stage } from "./stage.js";
import type { Store } from "./store.js";

const RINGS = 3, WIDE = 1000; // px of the pane from which on neighbours are drawn
const ABOVE = 60; // px over and under the drawing

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

  /** What takes part, with as many of its neighbours as have room at true size. */
  #drawn(): Around | null {
    const { clientWidth: w, clientHeight: h } = this.root;
    const { evidence, report, cursor, t } = this.store;
    const step = evidence?.steps[evidence.at] ?? -1;
    if (step < 0 || step !== cursor) return null;
    const peak = report?.findings[evidence!.finding]?.kind === "peak";
    let best = around(t, step, peak);
    for (let rings = 1; best && w >= WIDE && rings <= RINGS; rings++) {
      const wider = around(t, step, peak, rings)!;
      if (wider.w > w || wider.h > h - ABOVE || wider.boxes.length === best.boxes.length) break;
      best = wider;
    }
    return best;
  }

  /** Whether another drawing fits since the pane has another size. */
  outgrown(): boolean { return !!this.around && this.#drawn()?.boxes.length !== this.around.boxes.length; }

  /** Follow the evidence; returns whether the drawing changes. */
  follow(stage: Stage): boolean {
    const drawn = this.#drawn();
    const [had, now] = [this.around, this.#whole ? null : drawn];
    this.button.hidden = !drawn?.hidden;
    if (drawn) {
      say(this.button, this.#whole ? "only what takes part" : `${plural(drawn.hidden, "op")} of this block hidden · show all`);
      this.button.title = this.#whole ? "Fold the ops that play no part in this step of the finding" : "Show the whole block";
    }
    mark(this.root, "data-evidence", now ? this.store.cursor : null);
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
