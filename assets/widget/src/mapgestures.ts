// Pointer, wheel and keys on the memory map. A drag brushes a window, with Shift or the middle button it moves the map; the
// wheel zooms with Ctrl only (steps) or Alt (bytes), so that the notebook scrolls as ever.
import { on, onDrag, onKey, stop } from "./dom.js";
import { clamped, type Range } from "./mapview.js";
import type { Store } from "./store.js";

const NEAR = 4; // px that a click may tremble
const KEYS: Record<string, (map: Mapped) => void> = {
  "+": (map) => map.zoom(0.5), "=": (map) => map.zoom(0.5), "-": (map) => map.zoom(2), "0": (map) => map.zoom(0), z: (map) => map.zoom(-1), PageUp: (map) => map.raise(1.5), PageDown: (map) => map.raise(1 / 1.5),
};

export interface Mapped {
  width: number;
  range: Range;
  stepAt(x: number): number;
  at(x: number, y: number): number;
  zoom(by: number, around?: number): void;
  raise(by: number, y?: number): void;
  lift(px: number): void;
  pan(steps: number): void;
  look(range: Range): void;
  choose(k: number, go?: boolean): void;
  chosen(): number;
  point(k: number, fixed?: boolean): void;
  hover(at: [number, number] | null): void;
  walk(key: string): void;
}

export class Gestures {
  constructor(view: HTMLElement, steps: HTMLElement, store: Store, map: Mapped, signal: AbortSignal) {
    const place = (event: MouseEvent): [number, number] => {
      const box = view.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let drag: { x: number; y: number; range: Range; pan: boolean; moved: boolean } | null = null;
    on(view, "pointerdown", (event) => {
      if (event.button > 1) return;
      const [x, y] = place(event);
      drag = { x, y, range: map.range, pan: event.button === 1 || event.shiftKey, moved: false };
      view.setPointerCapture(event.pointerId);
      view.focus({ preventScroll: true });
      event.preventDefault();
    }, signal);
    on(view, "pointermove", (event) => {
      const [x, y] = place(event);
      if (!drag) return map.hover([x, y]);
      if (!drag.moved && Math.hypot(x - drag.x, drag.pan ? y - drag.y : 0) < NEAR) return;
      drag.moved = true;
      map.hover(null);
      const { from, to } = drag.range;
      const { steps: all } = store.t.p;
      if (drag.pan) {
        const by = ((drag.x - x) / Math.max(1, map.width)) * (to - from);
        map.lift(drag.y - y);
        drag.y = y;
        return map.look(clamped(from + by, to + by, all));
      }
      const [a, b] = [map.stepAt(Math.min(x, drag.x)), map.stepAt(Math.max(x, drag.x))];
      const first = Math.max(0, Math.min(Math.floor(a), all - 1));
      store.setWindow([first, Math.max(first + 1, Math.min(Math.ceil(b), all))]);
    }, signal);
    on(view, "pointerup", (event) => {
      if (drag && !drag.moved) map.choose(map.at(...place(event)));
      drag = null;
    }, signal);
    on(view, "lostpointercapture", () => { drag = null; }, signal);
    on(view, "pointerleave", () => { if (!drag) map.hover(null); }, signal);
    on(view, "dblclick", (event) => {
      const k = map.at(...place(event));
      if (k >= 0) map.choose(k, true);
    }, signal);
    view.addEventListener("wheel", (event) => {
      const turn = Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode ? 30 : 1)));
      if (event.ctrlKey || event.metaKey) map.zoom(1.0015 ** turn, map.stepAt(place(event)[0]));
      else if (event.altKey) map.raise(1.0015 ** -turn, place(event)[1]);
      else if (event.shiftKey || Math.abs(event.deltaX) > 2 * Math.abs(event.deltaY)) {
        const { from, to } = map.range;
        if (to - from >= store.t.p.steps) return;
        map.pan(((event.deltaX || event.deltaY) / Math.max(1, map.width)) * (to - from));
      } else return; // the page's own
      stop(event);
    }, { signal, passive: false });
    onKey(view, (key, event) => {
      if (/^Arrow/.test(key)) {
        const { from, to } = map.range;
        if (!event.shiftKey) map.walk(key);
        else if (/Left|Right/.test(key)) map.pan(((to - from) / 8) * (key === "ArrowRight" ? 1 : -1));
        else map.lift(key === "ArrowUp" ? -40 : 40);
      } else if (key === "Enter" && map.chosen() >= 0) map.choose(map.chosen(), true);
      else if (key === "Escape" && store.window) store.setWindow(null);
      else if (KEYS[key]) KEYS[key](map);
      else return false;
    }, signal);
    onDrag(steps, (event, moving) => store.seek(Math.floor(map.stepAt(place(event)[0])), "person", moving), signal);
  }
}
