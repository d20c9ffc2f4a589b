// Live bytes over all steps, with the peak, the runs and the rows of the caches; the cursor is dragged on it.
// The curve is drawn once per size and look; the cursor is an element of its own, so that dragging repaints nothing.
// All figures stand in the legend line above the plot: text over a curve would collide with it sooner or later.
import { at, curve, keepApart, scaleOf, stepAt } from "./curve.js";
import { el, mark, on, onResize, say } from "./dom.js";
import { bytes, count } from "./format.js";
import type { Change, Store, View } from "./store.js";

const AXIS = 15; // px below the plot, for the names of the runs

export class Timeline implements View {
  #canvas = el("canvas", { "aria-hidden": "true" });
  #cursor = el("div.kv-cursor");
  #range = el("input", { type: "range", min: -1, step: 1, class: "kv-range", "data-kv": "step-slider", "aria-label": "Step" });
  #plot: HTMLElement;
  #legend = el("div.kv-legend");
  #live = this.#item("live", "live");
  #peak: HTMLButtonElement;
  #base = el("span.kv-soft");
  #capacity = this.#item("capacity", "capacity");
  #valid = this.#item("valid", "valid");
  #width = 0;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    this.#peak = el("button", { "data-kv": "peak", title: "Go to the step with the most live bytes" });
    on(this.#peak, "click", () => store.seek(store.t.x.peak), signal);
    this.#plot = el("div.kv-plot", { "data-kv": "timeline" }, this.#canvas, this.#cursor, this.#range);
    this.#legend.append(this.#live, this.#peak, this.#capacity, this.#valid, this.#base);
    host.append(this.#legend, this.#plot);
    const drag = (event: PointerEvent) => {
      const box = this.#plot.getBoundingClientRect();
      store.seek(stepAt(event.clientX - box.left, this.#span, box.width), "person", event.type === "pointermove");
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
      if (Math.floor(this.#plot.clientWidth) !== this.#width) this.#draw();
      this.#move();
    }, signal);
  }

  /** Steps from end to end of the axis. */
  get #span(): number { return Math.max(1, this.store.scale?.steps ?? this.store.t.p.steps); }

  #item(kind: string, text: string): HTMLElement {
    return el("span", { "data-part": kind }, el("i", {}), `${text} `, el("b", {}));
  }

  update(change: Change): void {
    if (change.payload || change.look) this.#draw();
    if (change.cursor || change.payload) this.#move();
  }

  #move(): void {
    const { cursor, run } = this.store;
    const { p } = this.store.t;
    const width = this.#width;
    // a transform moves the line without a new layout
    this.#cursor.style.transform = `translateX(${(cursor < 0 ? 0 : at(cursor, this.#span, width)).toFixed(1)}px)`;
    mark(this.#plot, "data-step", cursor);
    this.#range.max = String(p.steps - 1);
    this.#range.value = String(cursor);
    const node = cursor < 0 ? "before the first step" : p.graphs[p.frame.graph[p.step.frame[cursor]]].nodes[p.step.node[cursor]][0];
    this.#range.setAttribute("aria-valuetext", `step ${cursor} of ${p.steps}, ${node}`);
    say(this.#live.lastElementChild!, cursor < 0 ? bytes(0) : bytes(p.step.live[cursor]));
    const cache = p.caches[0];
    this.#capacity.hidden = this.#valid.hidden = !cache;
    if (!cache) return;
    // a run that still goes on has not told its caches yet: what the run before left is what there is
    const told = cache.capacity[run] ? run : run - 1;
    say(this.#capacity.lastElementChild!, `${count(cache.capacity[told] ?? 0)} rows`);
    say(this.#valid.lastElementChild!, count(cache.valid[told] ?? 0));
    this.#capacity.title = this.#valid.title = `rows of ${cache.name}, on a scale of their own`;
  }

  #draw(): void {
    const { t } = this.store;
    const { p, x } = t;
    const width = (this.#width = Math.floor(this.#plot.clientWidth));
    const height = Math.floor(this.#plot.clientHeight);
    const c = curve(t, width, this.store.scale ?? scaleOf(t));
    this.#peak.replaceChildren(el("i", {}), "peak ", el("b", {}, bytes(x.peak < 0 ? 0 : p.step.live[x.peak])), x.peak >= 0 ? ` at step ${count(x.peak)}` : "");
    this.#peak.disabled = x.peak < 0;
    say(this.#base, c.from > 0 ? `axis from ${bytes(c.from)}` : "");
    const context = this.#canvas.getContext("2d");
    if (!context || width < 10 || height < 10) return;
    const ratio = globalThis.devicePixelRatio || 1;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.#plot);
    const colour = (name: string) => style.getPropertyValue(name).trim() || "#888";
    const bottom = height - AXIS;
    const y = (v: number) => bottom - ((v - c.from) / (c.top - c.from)) * (bottom - 8);
    this.#runs(context, width, bottom, colour("--kv-line"), colour("--kv-soft"), style.fontFamily);
    if (!p.steps) return;
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
    this.#caches(context, width, bottom, colour("--kv-view"));
    // peak: a mark on the curve, its figure is in the legend
    const px = Math.max(5, Math.min(width - 5, at(x.peak, this.#span, width)));
    const py = y(p.step.live[x.peak]) - 1;
    context.beginPath();
    context.moveTo(px, py);
    context.lineTo(px - 5, py - 7);
    context.lineTo(px + 5, py - 7);
    context.closePath();
    context.fillStyle = colour("--kv-missed");
    context.fill();
  }

  #runs(context: CanvasRenderingContext2D, width: number, bottom: number, line: string, text: string, family: string): void {
    const { p } = this.store.t;
    context.fillStyle = line;
    context.fillRect(0, bottom, width, 1);
    context.font = `10.5px ${family}`;
    context.textBaseline = "top";
    const short = (label: string) => label.replace(/^decode /, "");
    const labels = p.runs.map((r) => ({ x: (r.first / this.#span) * width + 3, width: context.measureText(short(r.label)).width }));
    const keep = keepApart(labels, 10, width);
    p.runs.forEach((r, i) => {
      context.fillStyle = line;
      // many runs: only some separators, else they become a grey area
      if (i > 0 && (keep[i] || width / p.runs.length > 24)) context.fillRect(Math.round(labels[i].x - 3), 0, 1, bottom + (keep[i] ? 6 : 0));
      context.fillStyle = text;
      if (keep[i] && p.runs.length > 1) context.fillText(short(r.label), labels[i].x, bottom + 3);
    });
  }

  #caches(context: CanvasRenderingContext2D, width: number, bottom: number, colour: string): void {
    const { p } = this.store.t;
    const cache = p.caches[0];
    if (!cache) return;
    const most = Math.max(1, ...cache.capacity);
    const y = (rows: number) => bottom - (rows / most) * (bottom - 8) * 0.85;
    context.strokeStyle = colour;
    for (const [series, dash, thick] of [[cache.capacity, [5, 3], 1.4], [cache.valid, [], 1.8]] as const) {
      context.beginPath();
      p.runs.forEach((r, i) => {
        if (!cache.capacity[i]) return;
        context.lineTo((r.first / this.#span) * width, y(series[i]));
        context.lineTo((r.last / this.#span) * width, y(series[i]));
      });
      context.setLineDash([...dash]);
      context.lineWidth = thick;
      context.stroke();
    }
    context.setLineDash([]);
  }
}
