// Live bytes over all steps, the overview of the memory map: one axis from the weights up, the peak, the runs, the window
// of the map, steps that a query found. The cursor is dragged on it. Of a long recording it tells runs; see runline.ts.
// The curve is drawn once per size and look; the cursor is an element of its own, so that dragging repaints nothing.
import { byRuns, position, span, under, type Plot } from "./axis.js";
import { curve, keepApart, scaleOf, type Curve } from "./curve.js";
import { button, el, mark, on, onResize, say } from "./dom.js";
import { bytes, count, figure } from "./format.js";
import { drawHits } from "./hitmarks.js";
import { drawRuns, highest, MARK } from "./runline.js";
import { liveAt } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";
import { WindowBox } from "./windowbox.js";

const AXIS = 18; // px below the plot, for the names of the runs and the marks of those with steps

export class Timeline implements View {
  #canvas = el("canvas", { "aria-hidden": "true" });
  #cursor = el("div.kv-cursor");
  #range = el("input", { type: "range", min: -1, step: 1, class: "kv-range", "data-kv": "step-slider", "aria-label": "Step" });
  #plot: HTMLElement;
  #window: WindowBox;
  #live = el("span", { "data-part": "live" }, el("i", {}), el("span", {}), " ", el("b", {}));
  #peak: HTMLButtonElement;
  #top = el("span");
  #foot = el("span");
  // kept: to ask the element would force a layout
  #width = 0;
  #height = 0;

  /** `map`: make room for the memory map. */
  constructor(host: HTMLElement, private store: Store, signal: AbortSignal, map: () => void = () => {}) {
    this.#peak = button("", "Go to where most bytes are live", "peak", () => this.#toPeak(), signal);
    this.#plot = el("div.kv-plot", { "data-kv": "timeline" }, this.#canvas);
    this.#window = new WindowBox(store, this.#plot, signal);
    this.#plot.append(this.#window.root, this.#cursor, this.#range);
    const open = button("Memory map ▴", "Show what these bytes are: every buffer from birth to death", "open-map", map, signal);
    host.append(el("div.kv-legend", {}, this.#live, this.#peak, open), el("div.kv-overview", {}, el("div.kv-yaxis", { "aria-hidden": "true" }, this.#top, this.#foot), this.#plot));
    const drag = (event: PointerEvent) => {
      const box = this.#plot.getBoundingClientRect();
      const { run, step } = under(store, (event.clientX - box.left) / Math.max(1, box.width));
      const moving = event.type === "pointermove";
      if (step >= 0) store.seek(step, "person", moving);
      else store.toRun(run, "person", moving);
    };
    on(this.#plot, "pointerdown", (event) => {
      if (event.button !== 0) return;
      this.#plot.setPointerCapture(event.pointerId);
      drag(event);
    }, signal);
    on(this.#plot, "pointermove", (event) => {
      if (this.#plot.hasPointerCapture(event.pointerId)) drag(event);
    }, signal);
    on(this.#range, "input", () => store.seek(this.#range.valueAsNumber, "person", true), signal);
    onResize(this.#plot, () => {
      this.#width = Math.floor(this.#plot.clientWidth);
      this.#height = Math.floor(this.#plot.clientHeight);
      this.#draw();
      this.#move();
    }, signal);
  }

  #toPeak(): void {
    const { store } = this;
    const { t } = store;
    const run = byRuns(store) ? highest(t.p) : -1;
    if (run < 0 || run === t.x.run[t.x.peak]) store.seek(t.x.peak);
    else store.toRun(run);
  }

  update(change: Change): void {
    if (change.payload) {
      const { name, about } = figure(this.store.t.p, "live");
      say(this.#live.children[1], name);
      this.#live.title = about;
    }
    if (change.payload || change.look || change.hits) this.#draw();
    if (change.cursor || change.payload) this.#move();
  }

  #move(): void {
    const { cursor, bare, t } = this.store;
    const { p } = t;
    // a transform moves the line without a new layout
    this.#cursor.style.transform = `translateX(${(position(this.store) * this.#width).toFixed(1)}px)`;
    mark(this.#plot, "data-step", cursor);
    this.#range.max = String(p.steps - 1);
    this.#range.value = String(cursor);
    const node = cursor < 0 ? "before the first step" : p.graphs[p.frame.graph[p.step.frame[cursor]]].nodes[p.step.node[cursor]][0];
    this.#range.setAttribute("aria-valuetext", bare < 0 ? `step ${numberOf(t, cursor)} of ${p.total}, ${node}` : `${p.runs[bare].label}, totals only`);
    this.#live.hidden = bare >= 0;
    say(this.#live.lastElementChild!, bytes(liveAt(t, cursor)));
  }

  #draw(): void {
    this.#window.show();
    const { t } = this.store;
    const { p, x } = t;
    const [width, height] = [this.#width, this.#height];
    const many = byRuns(this.store);
    const scale = this.store.scale ?? scaleOf(t);
    const top = many ? highest(p) : -1;
    const peak = many ? p.runs[top]?.peak ?? 0 : x.peak < 0 ? 0 : p.step.live[x.peak];
    const where = many ? p.runs[top]?.label : x.peak >= 0 ? `step ${count(numberOf(t, x.peak))}` : "";
    this.#peak.replaceChildren(el("i", {}), `${figure(p, "peak").name} `, el("b", {}, bytes(peak)), where ? ` at ${where}` : "");
    this.#peak.disabled = !where;
    say(this.#top, bytes(scale.top));
    say(this.#foot, scale.from ? bytes(scale.from) : "0");
    this.#foot.title = scale.from ? `The axis starts where the weights end: ${bytes(x.weights)}` : "";
    const context = this.#canvas.getContext("2d");
    if (!context || width < 10 || height < 10) return;
    const ratio = globalThis.devicePixelRatio || 1;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.#plot);
    const bottom = height - AXIS;
    const plot: Plot = {
      context, width, bottom,
      y: (v) => bottom - ((v - scale.from) / (scale.top - scale.from)) * (bottom - 8),
      colour: (name) => style.getPropertyValue(name).trim() || "#888",
    };
    this.#runs(plot, style.fontFamily);
    if (many) drawRuns(this.store, plot);
    else if (p.steps) this.#steps(plot, curve(t, width, scale));
    else return;
    drawHits(this.store, plot);
    // peak: a mark on the curve, its figure is in the legend
    const at = (many ? top + 0.5 : x.peak + 0.5) / span(this.store);
    const px = Math.max(5, Math.min(width - 5, at * width));
    const py = plot.y(peak) - 1;
    context.beginPath();
    context.moveTo(px, py);
    context.lineTo(px - 5, py - 7);
    context.lineTo(px + 5, py - 7);
    context.closePath();
    context.fillStyle = plot.colour("--kv-missed");
    context.fill();
  }

  #steps({ context, bottom, y, colour }: Plot, c: Curve): void {
    context.beginPath();
    context.moveTo(0, bottom);
    for (let i = 0; i < c.used; i++) context.lineTo(i + 0.5, y(c.high[i]));
    context.lineTo(c.used, bottom);
    context.globalAlpha = 0.15;
    context.fillStyle = colour("--kv-accent");
    context.fill();
    context.globalAlpha = 1;
    context.beginPath();
    for (let i = 0; i < c.used; i++) {
      context.lineTo(i + 0.5, y(c.high[i]));
      if (c.low[i] < c.high[i]) context.lineTo(i + 0.5, y(c.low[i]));
    }
    context.lineWidth = 1.3;
    context.lineJoin = "round";
    context.strokeStyle = colour("--kv-accent");
    context.stroke();
  }

  #runs({ context, width, bottom, colour }: Plot, family: string): void {
    const { p } = this.store.t;
    context.fillStyle = colour("--kv-line");
    context.fillRect(0, bottom, width, 1);
    context.font = `11px ${family}`;
    context.textBaseline = "top";
    const short = (label: string) => label.replace(/^decode /, "");
    const many = byRuns(this.store);
    const labels = p.runs.map((r, i) => ({ x: ((many ? i : r.first) / span(this.store)) * width + 3, width: context.measureText(short(r.label)).width }));
    const keep = keepApart(labels, 10, width);
    p.runs.forEach((r, i) => {
      context.fillStyle = colour("--kv-line");
      // many runs: only some separators, else they become a grey area
      if (i > 0 && (keep[i] || width / p.runs.length > 24)) context.fillRect(Math.round(labels[i].x - 3), 0, 1, bottom + (keep[i] ? 6 : 0));
      context.fillStyle = colour("--kv-soft");
      if (keep[i] && p.runs.length > 1) context.fillText(short(r.label), labels[i].x, bottom + MARK);
    });
  }
}
