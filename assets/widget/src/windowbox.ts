// The window on the timeline: a rectangle that is moved by its upper edge and made longer or shorter by its sides.
import { placed, under } from "./axis.js";
import { el, hit, on } from "./dom.js";
import type { Store } from "./store.js";

export class WindowBox {
  readonly root = el("div.kv-window", { "data-kv": "window" }, ...["from", "move", "to"].map((part) => el("i", { "data-kv": "window-part", "data-part": part })));

  constructor(private store: Store, plot: HTMLElement, signal: AbortSignal) {
    on(this.root, "pointerdown", (event) => {
      const part = hit(event, "window-part")?.dataset.part;
      const was = store.window;
      if (event.button !== 0 || !part || !was) return;
      event.stopPropagation(); // else the cursor is dragged
      const { left, width } = plot.getBoundingClientRect();
      const step = (x: number) => under(store, (x - left) / Math.max(1, width)).step;
      const start = step(event.clientX);
      this.root.setPointerCapture(event.pointerId);
      const move = (e: PointerEvent) => {
        const at = step(e.clientX);
        if (at < 0 || start < 0) return;
        const { steps } = store.t.p;
        const [from, to] = was;
        const by = Math.max(-from, Math.min(at - start, steps - to));
        store.setWindow(part === "move" ? [from + by, to + by] : part === "from" ? [Math.min(at, to - 1), to] : [from, Math.max(at + 1, from + 1)]);
      };
      this.root.addEventListener("pointermove", move, { signal });
      this.root.addEventListener("lostpointercapture", () => this.root.removeEventListener("pointermove", move), { once: true, signal });
    }, signal);
  }

  show(): void {
    const { window } = this.store;
    this.root.hidden = !window;
    if (!window) return;
    const [from, to] = [placed(this.store, window[0]), placed(this.store, window[1] - 1e-6)];
    this.root.style.left = `${100 * from}%`;
    this.root.style.width = `${100 * (to - from)}%`;
  }
}
