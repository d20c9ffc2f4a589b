// Live bytes over all steps, the overview of the memory map, with the peak, runs, the window and the hits of a query. A long
// recording is shown by runs. Dragging moves the cursor.
// The curve is drawn once per size and look; the cursor is an element, so that dragging repaints nothing.
import { filled, Inks, label, polygon, sized, traced, type Point } from "./canvas.js";
import { button, el, hit, mark, on, onDrag, onResize, say } from "./dom.js";
import { bytes, count, figure, plural, round } from "./format.js";
import { RangeLine } from "./range.js";
import { bare, bareRuns, liveAt, numberOf, opAt, type Trace } from "./replay.js";
import type { Change, Store, View } from "./store.js";
import type { Payload } from "./wire.js";
import type { Scale } from "./pair.js";

/** `y`: the height of a number of bytes. */
export interface Plot {
  context: CanvasRenderingContext2D; width: number; bottom: number;
  y(bytes: number): number;
  inks: Inks;
}

/** Whether all runs have equal widths on the axis. */
export function byRuns(store: Store): boolean { return store.scale?.byRuns ?? bareRuns(store.t.p) > 0; }

/** The length of the axis in steps or runs. */
export function span(store: Store): number {
  const { p } = store.t;
  const { steps, runs } = store.scale ?? { steps: p.steps, runs: p.runs.length };
  return Math.max(1, byRuns(store) ? runs : steps);
}

/** The position of a step, 0 to 1; fractions of steps are allowed. */
export function placed(store: Store, step: number): number {
  const { p, x } = store.t;
  if (!byRuns(store)) return step / span(store);
  const run = x.run[Math.max(0, Math.min(Math.floor(step), p.steps - 1))] ?? 0;
  const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
  return (run + (step - first) / Math.max(1, last - first)) / span(store);
}

export function position(store: Store): number {
  const { cursor, bare } = store;
  if (bare >= 0) return (bare + 0.5) / span(store);
  return cursor < 0 ? 0 : placed(store, cursor + 0.5);
}

/** The run, and if loaded the step, at a position of the axis. */
export function under(store: Store, place: number): { run: number; step: number } {
  const { p, x } = store.t;
  const at = Math.max(0, Math.min(place, 1)) * span(store);
  if (!byRuns(store)) {
    const step = Math.min(Math.floor(at), p.steps - 1);
    return { run: x.run[step] ?? 0, step };
  }
  const run = Math.min(Math.floor(at), p.runs.length - 1);
  const { first, last } = p.runs[run] ?? { first: 0, last: 0 };
  return { run, step: first < last ? first + Math.min(Math.floor((at - run) * (last - first)), last - first - 1) : -1 };
}

export interface Curve { low: Float64Array; high: Float64Array; top: number; from: number; used: number }

/** The ranges of the axes. Where most bytes are weights, which are always alive, the axis starts above them (`from`). */
export function scaleOf({ p, x }: Trace): Scale {
  const byRuns = bareRuns(p) > 0;
  let top = x.peak >= 0 ? p.step.live[x.peak] : 1;
  let least = top;
  for (const live of p.step.live) if (live < least) least = live;
  if (byRuns) {
    for (const r of p.runs) {
      top = Math.max(top, r.peak);
      least = Math.min(least, r.peak);
    }
  }
  const from = 2 * x.weights > top ? Math.min(x.weights, least) : 0;
  return { top: top > from ? top : from + 1, from, steps: p.steps, runs: p.runs.length, byRuns };
}

/** Minimum and maximum of live bytes by pixel column; columns from `used` on are empty. */
export function curve(t: Trace, width: number, scale: Scale = scaleOf(t)): Curve {
  const { p } = t;
  const columns = Math.max(1, Math.floor(width));
  const low = new Float64Array(columns).fill(Infinity);
  const high = new Float64Array(columns).fill(-Infinity);
  const n = Math.max(1, scale.steps);
  for (let i = 0; i < p.steps; i++) {
    const v = p.step.live[i];
    const from = Math.floor((i / n) * columns);
    const to = Math.max(from, Math.ceil(((i + 1) / n) * columns) - 1);
    for (let c = from; c <= to && c < columns; c++) {
      if (v < low[c]) low[c] = v;
      if (v > high[c]) high[c] = v;
    }
  }
  return { low, high, top: scale.top, from: scale.from, used: Math.min(columns, Math.ceil((p.steps / n) * columns)) };
}

/** Which labels fit without overlap: every 1st, 2nd, 5th, 10th … as needed. */
export function keepApart(labels: { x: number; width: number }[], gap: number, room: number): boolean[] {
  for (let stride = 1; ; stride = round(stride + 1)) {
    let end = -Infinity;
    let fits = true;
    const keep = labels.map((l, i) => {
      if (i % stride || l.x + l.width > room) return false;
      // the first label may be longer than its run; later ones give way
      if (l.x < end && end !== -Infinity) {
        fits &&= end === labels[0].x + labels[0].width + gap;
        return false;
      }
      end = l.x + l.width + gap;
      return true;
    });
    if (fits || stride > labels.length) return keep;
  }
}

const MARK = 5; // px below the line: of these a mark takes all but the first and last
const ROOM = 6; // px of a run from which on the steps in it can be told apart

export function highest({ runs }: Payload): number { return runs.reduce((top, r, run) => (top < 0 || r.peak > runs[top].peak ? run : top), -1); }

function drawRuns(store: Store, { context, width, bottom, y, inks }: Plot): void {
  const { p } = store;
  const slot = width / span(store);
  const line = p.runs.flatMap((r, run): Point[] => [[run * slot, y(r.peak)], [(run + 1) * slot, y(r.peak)]]);
  context.globalAlpha = 0.12;
  polygon(context, inks.colour("accent"), [...line, [p.runs.length * slot, bottom], [0, bottom]]);
  context.globalAlpha = 1;
  p.runs.forEach((r, run) => {
    if (bare(p, run)) return;
    filled(context, inks.colour("accent"), run * slot, bottom + 1, Math.max(2, slot), MARK - 2);
    if (slot < ROOM) return;
    traced(context, inks.colour("accent"), 0.8, Array.from(p.step.live.subarray(r.first, r.last), (live, i) => [(run + i / (r.last - r.first)) * slot, y(live)]));
  });
  traced(context, inks.colour("accent"), 1.3, line);
}

const HEIGHT = 7; // px, above the axis

/** Left edges of the ticks in whole pixels, without duplicates. */
export function ticks(store: Store, width: number): number[] {
  const { hits, t: { x } } = store;
  const many = byRuns(store);
  const whole = span(store);
  const found = new Set<number>();
  for (const step of hits ?? []) found.add(Math.min(width - 2, Math.floor((((many ? x.run[step] : step) + 0.5) / whole) * width)));
  return [...found];
}

/** Marks under the curve at each step of the finding that is framed, and over them at each hit. */
function drawMarks(store: Store, { context, width, bottom, inks }: Plot): void {
  for (const x of new Set(Array.from(store.evidence?.steps ?? [], (step) => Math.floor(placed(store, step + 0.5) * width)))) filled(context, inks.colour("missed"), x, bottom - 4, 2, 4);
  for (const x of ticks(store, width)) filled(context, inks.colour("ink"), x, bottom - HEIGHT, 2, HEIGHT);
}

const AXIS = 18; // px below the plot, for the names of the runs and the marks of those with steps
const BROKEN = 20; // px of what lies below the break of the axis: what is alive at all steps, not to scale
const LOW = 70; // px of a plot too low for that

/** The band of what is always alive, not to scale: the edges above and below are torn. */
function drawBreak({ context, width, bottom, inks }: Plot): void {
  const torn = (y: number) => Array.from({ length: Math.floor(width / 6) + 2 }, (_, i): Point => [6 * i, y + (i % 2 ? -2 : 2)]);
  const [head, foot] = [bottom + 5, bottom + BROKEN];
  polygon(context, inks.mixed("edge", 0.3), [...torn(head), [width, foot], [0, foot]]);
  for (const y of [head, bottom + 1]) traced(context, inks.colour("edge"), 1, torn(y));
}

export class Timeline implements View {
  #canvas = el("canvas", { "aria-hidden": "true" });
  #cursor = el("div.kv-cursor");
  #range = el("input", { type: "range", min: -1, step: 1, class: "kv-range", "data-kv": "step-slider", "aria-label": "Step" });
  #plot: HTMLElement;
  #window: WindowBox;
  #sums: RangeLine;
  #live = el("span", { "data-part": "live" }, el("i", {}), el("span", {}), " ", el("b", {}));
  #peak: HTMLButtonElement;
  #toMap: HTMLButtonElement;
  #top = el("span");
  #from = el("span");
  #foot = el("span", { "data-part": "foot" });
  #above = el("span", { "data-part": "above" });
  #marked = el("span", { "data-part": "marked" });
  // cached: reading it from the element would force a layout
  #width = 0;
  #height = 0;

  /** `pane`: holds the timeline and, above it, the memory map, of which this is the overview. */
  constructor(host: HTMLElement, private store: Store, signal: AbortSignal, private pane: HTMLElement, ask: (query: string) => void) {
    this.#peak = button("", "Go to where most bytes are live", "peak", () => this.#toPeak(), signal);
    this.#plot = el("div.kv-plot", { "data-kv": "timeline" }, this.#canvas);
    this.#plot.title = "Drag to move the cursor; with Shift, to sum what the steps between spent";
    const at = (event: PointerEvent) => {
      const { left, width } = this.#plot.getBoundingClientRect();
      return under(store, (event.clientX - left) / Math.max(1, width));
    };
    this.#window = new WindowBox(store, at, signal);
    this.#plot.append(this.#window.root, this.#cursor, this.#range);
    // in a run of totals alone a range ends at the step before it
    const near = (event: PointerEvent) => {
      const { run, step } = at(event);
      return step >= 0 ? step : Math.max(0, (store.t.p.runs[run]?.first ?? 0) - 1);
    };
    this.#sums = new RangeLine(store, this.#plot, this.#range, near, ask, signal);
    this.#toMap = button("", "", "open-map", () => this.asMap(), signal);
    this.asMap(false);
    host.append(el("div.kv-legend", {}, el("h3", {}, "Memory"), this.#above, this.#live, this.#peak, this.#marked, this.#sums.root, this.#toMap), el("div.kv-overview", {}, el("div.kv-yaxis", { "aria-hidden": "true" }, this.#top, this.#from, this.#foot), this.#plot));
    onDrag(this.#plot, (event, moving) => {
      if (event.shiftKey) return; // a range
      const { run, step } = at(event);
      if (step >= 0) store.seek(step, "person", moving);
      else store.toRun(run, "person", moving);
    }, signal);
    on(this.#range, "input", () => store.seek(this.#range.valueAsNumber, "person", true), signal);
    onResize(this.#plot, () => {
      this.#width = Math.floor(this.#plot.clientWidth);
      this.#height = Math.floor(this.#plot.clientHeight);
      this.#draw();
      this.#move();
    }, signal);
  }

  /** Show memory as a map of buffers, or as a curve. */
  asMap(map = this.pane.dataset.as !== "map"): void {
    mark(this.pane, "data-as", map ? "map" : "curve");
    say(this.#toMap, map ? "as a curve ▾" : "as a map ▴", map ? "Show the sum of bytes alone" : "Show what these bytes are: every buffer from birth to death");
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
    if (change.payload || change.look || change.hits || change.evidence) this.#draw();
    if (change.cursor || change.payload) this.#move();
  }

  #move(): void {
    const { cursor, bare, t, p } = this.store;
    // a transform needs no layout
    this.#cursor.style.transform = `translateX(${(position(this.store) * this.#width).toFixed(1)}px)`;
    mark(this.#plot, "data-step", cursor);
    this.#range.max = String(p.steps - 1);
    this.#range.value = String(cursor);
    const node = cursor < 0 ? "before the first step" : opAt(t, cursor).op[0];
    this.#range.setAttribute("aria-valuetext", bare < 0 ? `step ${numberOf(t, cursor)} of ${p.total}, ${node}` : `${p.runs[bare].label}, totals only`);
    this.#live.hidden = bare >= 0;
    say(this.#live.lastElementChild!, bytes(liveAt(t, cursor)));
  }

  #draw(): void {
    this.#window.show();
    this.#sums.show();
    const { t, p, x } = this.store;
    const [width, height] = [this.#width, this.#height];
    const many = byRuns(this.store);
    const scale = this.store.scale ?? scaleOf(t);
    const top = many ? highest(p) : -1;
    const peak = many ? p.runs[top]?.peak ?? 0 : x.peak < 0 ? 0 : p.step.live[x.peak];
    const where = many ? p.runs[top]?.label : x.peak >= 0 ? `step ${count(numberOf(t, x.peak))}` : "";
    this.#peak.replaceChildren(el("i", {}), `${figure(p, "peak").name} `, el("b", {}, bytes(peak)), where ? ` at ${where}` : "");
    this.#peak.disabled = !where;
    const held = scale.from === x.weights ? "of weights" : "that are always alive";
    const broken = scale.from > 0;
    const bottom = height - AXIS - (broken && height > LOW ? BROKEN : 0);
    say(this.#top, bytes(scale.top));
    say(this.#from, broken ? bytes(scale.from) : "");
    this.#from.style.top = `${bottom}px`;
    say(this.#foot, bottom < height - AXIS || !broken ? "0" : "");
    say(this.#above, broken ? `${bytes(scale.top - scale.from)} above ${bytes(scale.from)} ${held}` : x.weights ? `weights ${bytes(x.weights)}` : "");
    this.#above.hidden = !p.steps || (!x.weights && !broken);
    this.#above.title = broken ? `The axis is broken: the band at the bottom is the ${bytes(scale.from)} ${held}, not to scale` : "";
    const { evidence } = this.store;
    this.#marked.hidden = !evidence?.steps.length;
    if (evidence) this.#marked.replaceChildren(el("i", {}), `${plural(evidence.steps.length, "step")} of finding ${evidence.finding + 1}`);
    const context = width < 10 || height < 10 ? null : sized(this.#canvas, width, height);
    if (!context) return;
    const inks = new Inks(this.#plot);
    const plot: Plot = {
      context, width, bottom, inks,
      y: (v) => bottom - ((v - scale.from) / (scale.top - scale.from)) * (bottom - 8),
    };
    this.#runs({ ...plot, bottom: height - AXIS });
    if (bottom < height - AXIS) drawBreak(plot);
    else if (!broken && x.weights) filled(context, inks.mixed("edge", 0.3), 0, plot.y(x.weights), width, bottom - plot.y(x.weights));
    if (many) drawRuns(this.store, plot);
    else if (p.steps) this.#steps(plot, curve(t, width, scale));
    else return;
    drawMarks(this.store, plot);
    const at = (many ? top + 0.5 : x.peak + 0.5) / span(this.store);
    const px = Math.max(5, Math.min(width - 5, at * width));
    const py = plot.y(peak) - 1;
    polygon(context, inks.colour("missed"), [[px, py], [px - 5, py - 7], [px + 5, py - 7]]);
  }

  #steps({ context, bottom, y, inks }: Plot, c: Curve): void {
    const columns = Array.from({ length: c.used }, (_, i) => i);
    context.globalAlpha = 0.15;
    polygon(context, inks.colour("accent"), [[0, bottom], ...columns.map((i): Point => [i + 0.5, y(c.high[i])]), [c.used, bottom]]);
    context.globalAlpha = 1;
    context.lineJoin = "round";
    traced(context, inks.colour("accent"), 1.3, columns.flatMap((i) => [...new Set([c.high[i], c.low[i]])].map((live): Point => [i + 0.5, y(live)])));
  }

  #runs({ context, width, bottom, inks }: Plot): void {
    const { p } = this.store;
    filled(context, inks.colour("line"), 0, bottom, width, 1);
    context.font = `11px ${inks.family}`;
    const short = (label: string) => label.replace(/^decode /, "");
    const many = byRuns(this.store);
    const labels = p.runs.map((r, i) => ({ x: ((many ? i : r.first) / span(this.store)) * width + 3, width: context.measureText(short(r.label)).width }));
    const keep = keepApart(labels, 10, width);
    p.runs.forEach((r, i) => {
      // of many runs only some separators
      if (i > 0 && (keep[i] || width / p.runs.length > 24)) filled(context, inks.colour("line"), Math.round(labels[i].x - 3), 0, 1, bottom + (keep[i] ? 6 : 0));
      if (keep[i] && p.runs.length > 1) label(context, inks, short(r.label), labels[i].x, bottom + MARK, { base: "top" });
    });
  }
}

class WindowBox {
  readonly root = el("div.kv-window", { "data-kv": "window" }, ...["from", "move", "to"].map((part) => el("i", { "data-kv": "window-part", "data-part": part })));

  constructor(private store: Store, place: (event: PointerEvent) => { step: number }, signal: AbortSignal) {
    let [part, start, from, to]: [string | undefined, number, number, number] = [undefined, -1, 0, 0];
    onDrag(this.root, (event, moving) => {
      event.stopPropagation(); // else the cursor is dragged
      const at = place(event).step;
      if (!moving) return void ([part, start, from, to] = [hit(event, "window-part")?.dataset.part, at, ...store.window!]);
      if (!part || at < 0 || start < 0) return;
      const by = Math.max(-from, Math.min(at - start, store.t.p.steps - to));
      store.setWindow(part === "move" ? [from + by, to + by] : part === "from" ? [Math.min(at, to - 1), to] : [from, Math.max(at + 1, from + 1)]);
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
