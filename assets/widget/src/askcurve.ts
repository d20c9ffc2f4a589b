// A curve that is drawn by hand: a point for each label, by pointer or by keys. The true one is laid over it when it may be seen.
import { el, on, svg } from "./dom.js";

/** `top`: of the scale; `marks`: values of the scale with their words. */
export interface Curve { labels: string[]; top: number; marks: [number, string][] }
export interface Drawing { node: HTMLElement; points(): (number | null)[]; left(): number; show(series: number[]): void }

const [W, H, LEFT, RIGHT, TOP, BOTTOM] = [560, 190, 72, 30, 12, 34];
/** px beside a point within which the pointer moves it up and down. */
const NEAR = 8;

/** `edited`: called when a person changes it. */
export function drawing({ labels, top, marks }: Curve, edited: () => void, signal: AbortSignal): Drawing {
  const points: (number | null)[] = labels.map(() => null);
  const last = Math.max(1, labels.length - 1);
  const x = (i: number) => LEFT + ((W - LEFT - RIGHT) * i) / last;
  const y = (value: number) => H - BOTTOM - ((H - TOP - BOTTOM) * value) / top;
  const path = (series: (number | null)[]) => series.map((v, i) => (v === null ? "" : `${i && series[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`)).join("");
  const grid = Array.from({ length: labels.length }, (_, i) => svg("line", { x1: x(i), x2: x(i), y1: TOP, y2: H - BOTTOM, class: "kv-rule" }));
  const drawn = svg("path", { class: "kv-drawn" });
  const dots = svg("g");
  const truth = svg("path", { class: "kv-truth" });
  const cursor = svg("circle", { r: 6, class: "kv-cursor" });
  const every = Math.ceil(labels.length / 12);
  const scale = marks.flatMap(([value, text]) => [
    svg("line", { x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), class: value ? "kv-rule" : "kv-base" }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text)]);
  const hint = svg("text", { x: (LEFT + W - RIGHT) / 2, y: TOP + 22, "text-anchor": "middle", class: "kv-hint" }, "Drag from left to right, or use the arrow keys");
  const names = labels.flatMap((label, i) => (i % every ? [] : [svg("text", { x: x(i), y: H - BOTTOM + 16, "text-anchor": "middle" }, label.length > 9 ? `${label.slice(0, 8)}…` : label)]));
  const board = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "kv-board", role: "slider", tabindex: 0, "data-kv": "ask-board", "aria-valuemin": 0, "aria-valuemax": top,
    "aria-label": "Curve to draw: arrows left and right choose a point, up and down move it" },
    ...grid, ...scale, ...names, hint, drawn, dots, truth, cursor);
  let at = 0;
  const draw = () => {
    drawn.setAttribute("d", path(points));
    hint.style.display = points.some((v) => v !== null) ? "none" : "";
    dots.replaceChildren(...points.flatMap((v, i) => (v === null ? [] : [svg("circle", { cx: x(i), cy: y(v), r: 3 })])));
    cursor.setAttribute("cx", String(x(at)));
    cursor.setAttribute("cy", String(y(points[at] ?? 0)));
    const value = points[at] ?? 0;
    board.setAttribute("aria-valuenow", String(value));
    board.setAttribute("aria-valuetext", `${labels[at]}: ${points[at] === null ? "not drawn" : Math.round((100 * value) / top) + " % of the scale"}`);
  };
  const put = (i: number, value: number) => { points[i] = Math.min(top, Math.max(0, value)); };
  /** Of a pointer: px from the left, and the value at its height. */
  const where = (event: PointerEvent): [number, number] => {
    const box = board.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * W;
    const py = ((event.clientY - box.top) / box.height) * H;
    return [px, ((H - BOTTOM - py) / (H - TOP - BOTTOM)) * top];
  };
  const nearest = (px: number) => Math.min(labels.length - 1, Math.max(0, Math.round(((px - LEFT) / (W - LEFT - RIGHT)) * last)));
  const legend = el("p.kv-soft", {}, "Dashed: the true curve.");
  legend.hidden = true;
  const node = el("div.kv-curve", {}, board as unknown as HTMLElement, legend);
  let from: [number, number] | null = null;
  const passed = new Set<number>(); // points that this stroke has gone over
  const move = (event: PointerEvent) => {
    const [px, value] = where(event);
    const [before, old] = from ?? [px, value];
    // what the line passes over gets the height at which it does, and keeps it while the hand goes on
    for (let k = 0; k < labels.length; k++) {
      if ((x(k) - before) * (x(k) - px) > 0) continue;
      put(k, px === before ? value : old + ((value - old) * (x(k) - before)) / (px - before));
      passed.add(k);
    }
    at = nearest(px);
    if (!passed.has(at) || Math.abs(px - x(at)) <= NEAR) put(at, value);
    if (!from || Math.abs(px - x(at)) <= NEAR) passed.add(at);
    from = [px, value];
    edited();
    draw();
  };
  on(node, "pointerdown", (event) => {
    event.preventDefault();
    board.focus({ preventScroll: true });
    board.setPointerCapture(event.pointerId);
    from = null;
    passed.clear();
    move(event);
  }, signal);
  on(node, "pointermove", (event) => { if (from && event.buttons) move(event); }, signal);
  on(node, "pointerup", () => { from = null; }, signal);
  on(node, "keydown", (event) => {
    const by = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 }[event.key];
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: labels.length - 1 }[event.key];
    if (by === undefined && to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (to !== undefined) {
      const next = Math.min(labels.length - 1, Math.max(0, to));
      // the next one begins where this one stands
      if (points[at] === null) put(at, 0);
      if (points[next] === null) put(next, points[at] ?? 0);
      at = next;
    } else put(at, (points[at] ?? 0) + by! * top);
    edited();
    draw();
  }, signal);
  draw();
  return {
    node, points: () => points, left: () => points.filter((v) => v === null).length,
    show: (series) => {
      truth.setAttribute("d", path(series));
      legend.hidden = false;
    },
  };
}
