// Lanes by the producer's clock: queues above, spaces of memory below, and the line of the cursor through all of them.
import { bordered, filled, Inks, label, outline, polygon, sized, traced, type Point } from "./canvas.js";
import { BanksCard, barAt, beside, clock, clockView, heldAt, MarksCard, place, ROW, timeAt, xAt, zoomTime, type Bar, type Box, type Clock, type ClockView, type Held, type Move } from "./clockdata.js";
import { button, el, mark, on, onKey, onPointer, onResize, placeIn, placeTip, tick } from "./dom.js";
import { buffer, bytes, count, plural, ticks } from "./format.js";
import type { MakePane } from "./lazypane.js";
import { numberOf } from "./replay.js";
import { executed } from "./select.js";
import type { Change, Store, View } from "./store.js";

const LEAST = 26; // px in which a text is of use
const FONT = "11px";

function write(brush: CanvasRenderingContext2D, inks: Inks, ink: string, text: string, x: number, y: number, w: number, width: number): void {
  const { ruler } = inks;
  const left = Math.max(4, x + 4);
  const room = Math.min(width, x + w) - left - 3;
  // where not all has room, a tensor's name stands without its bytes
  const shown = ruler.width(text, FONT) > room ? text.replace(/ [\d.,]+ .?B$/, "") : text;
  if (room >= LEAST) label(brush, inks, ruler.fit(shown, FONT, room), left, y, { ink });
}

/** Draw what does not depend on the cursor: bars, bytes held, arrows, refused frees. Returns the number of bars. */
function paintBase(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView): number {
  let drawn = 0;
  c.lanes.forEach((lane, i) => {
    const box = v.boxes[i];
    filled(brush, inks.colour("ground"), 0, box.top - 3, v.width, box.foot - box.top + 4);
    if (lane.held) strip(brush, inks, v, box, lane.held);
    const seen = lane.bars.filter((bar) => bar.end >= v.from && bar.start <= v.to);
    drawn += seen.length;
    for (const bar of seen.sort((a, b) => a.row - b.row)) one(brush, inks, v, i, bar, false);
    if (lane.rest) label(brush, inks, `and ${plural(lane.rest, lane.kind === "space" ? "smaller tensor" : "op")}`, 4, box.foot - ROW / 2 - 1);
  });
  for (const move of c.moves) if (move.at >= v.from && move.at <= v.to) arrow(brush, inks, c, v, move, false);
  for (const { storage, at } of c.refused) {
    const [lane, k] = c.bar.get(storage) ?? [-1, 0];
    if (lane < 0) continue;
    const r = place(v, lane, c.lanes[lane].bars[k]);
    const x = xAt(v, at);
    for (const side of [-4, 4]) traced(brush, inks.colour("missed"), 2, [[x - 4, r.y + r.h / 2 - side], [x + 4, r.y + r.h / 2 + side]]);
  }
  return drawn;
}

/** Draw what depends on the cursor. `lit`: storages that are chosen or touched; `now`: the time of the cursor. */
function paintOver(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView, lit: ReadonlySet<number>, chosen: Bar | null, now: number): void {
  c.lanes.forEach((lane, i) => {
    if (lane.held) {
      const { room, banks, most } = lane.held;
      const of = room ? ` of ${bytes(room)}${banks > 1 ? ` in ${banks} banks` : ""}` : "";
      write(brush, inks, "ink", `held ${bytes(heldAt(lane.held, now))}, at most ${bytes(most)}${of}`, 0, v.boxes[i].top + 6, v.width, v.width);
    }
    for (const bar of lane.bars) {
      const alive = (bar.kind === "op" ? bar.start < now : bar.start <= now) && bar.end >= now;
      if (bar.kind === "run" || bar.end < v.from || bar.start > v.to || !(alive || bar === chosen)) continue;
      if (alive) one(brush, inks, v, i, bar, true);
      if (bar !== chosen && !lit.has(bar.storage)) continue;
      const r = place(v, i, bar);
      bordered(brush, inks.colour("ink"), bar === chosen ? 2.4 : 1.4, r.x - 0.5, r.y - 0.5, r.w + 1, r.h + 1);
    }
  });
  for (const move of c.moves) if (move.at >= v.from && move.at <= v.to && (lit.has(move.from) || lit.has(move.to))) arrow(brush, inks, c, v, move, true);
}

/** The curve of bytes held in a space. */
function strip(brush: CanvasRenderingContext2D, inks: Inks, v: ClockView, box: Box, held: Held): void {
  const foot = box.top + box.strip - 4;
  const tall = box.strip - 18;
  const y = (at: number) => foot - (tall * at) / (held.most || 1);
  const steps = held.at.flatMap((at, i): Point[] => {
    const x = Math.max(0, Math.min(v.width, xAt(v, at)));
    return [[x, y(held.bytes[i - 1] ?? 0)], [x, y(held.bytes[i])]];
  });
  const line: Point[] = [[0, foot], ...steps, [v.width, y(held.bytes.at(-1) ?? 0)], [v.width, foot]];
  polygon(brush, inks.mixed("accent", 0.22), line);
  traced(brush, inks.colour("accent"), 1, line);
}

function one(brush: CanvasRenderingContext2D, inks: Inks, v: ClockView, lane: number, bar: Bar, alive: boolean): void {
  const r = place(v, lane, bar);
  if (bar.kind === "run") return outline(brush, inks.colour("accent"), 1, [], r.x, r.y, r.w, r.h);
  const hue = bar.kind === "op" ? "accent" : bar.kind === "weights" ? "soft" : "view";
  filled(brush, alive ? inks.colour(hue) : inks.mixed(hue, 0.32), r.x, r.y, r.w, r.h);
  if (r.w > LEAST) write(brush, inks, alive ? "on-accent" : "ink", bar.text, r.x, r.y + r.h / 2 + 0.5, r.w, v.width);
  if (bar.open) outline(brush, inks.colour("missed"), 1.5, [3, 2], r.x, r.y, r.w, r.h);
}

function arrow(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView, move: Move, strong: boolean): void {
  const ends = [c.bar.get(move.from), c.bar.get(move.to)];
  if (!ends[0] || !ends[1]) return;
  const [a, b] = ends.map((end) => place(v, end![0], c.lanes[end![0]].bars[end![1]]));
  const x = xAt(v, move.at);
  const down = b.y > a.y;
  const [from, to] = down ? [a.y + a.h, b.y] : [a.y, b.y + b.h];
  const ink = inks.colour(strong ? "ink" : "edge");
  traced(brush, ink, strong ? 1.8 : 1, [[x, from], [x, to]]);
  polygon(brush, ink, [[x, to], [x - 3.5, to + (down ? -6 : 6)], [x + 3.5, to + (down ? -6 : 6)]]);
}

class ClockPane implements View {
  readonly slow = false;
  #base = el("canvas", { "aria-hidden": "true" });
  #over = el("canvas.kv-clock-over", { "aria-hidden": "true" });
  #inks: Inks | null = null;
  #kept = ""; // what the base was drawn for
  #line = el("i.kv-map-cursor");
  #tip = el("div.kv-map-tip", { role: "status" });
  #names = el("div.kv-clock-names", { "aria-hidden": "true" });
  #axis = el("div.kv-clock-axis", { "aria-hidden": "true" });
  #view: HTMLElement;
  #marks: MarksCard;
  #clock: Clock | null = null;
  #at: ClockView | null = null;
  #range: [number, number] | null = null; // null: all
  #open = false; // the weights of programs, one by one
  #banks = new BanksCard();
  #chosen: { lane: number; bar: Bar } | null = null;
  #frame = 0;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    this.#view = el("div.kv-clock-view", {
      tabindex: 0, role: "application", "data-kv": "clock",
      "aria-label": "Lanes: arrow keys walk from bar to bar, Enter goes to its step, plus and minus zoom",
    }, this.#base, this.#over, this.#line);
    const tool = (text: string, title: string, name: string, run: () => void) => button(text, title, name, run, signal);
    const tools = el("span.kv-map-tools", {}, tool("−", "Show more time", "clock-out", () => this.#zoom(0.5)), tool("+", "Show less time", "clock-in", () => this.#zoom(2)), tool("all", "Show all of it", "clock-all", () => this.#show(null)));
    const about = el("span.kv-soft", {}, "right: the producer's clock · a bar is an op, or a tensor's life in that memory · arrows are transfers · dashed: not freed · ×: a free that was refused");
    this.#marks = new MarksCard(store, signal);
    const body = el("div.kv-clock-body", {}, this.#names, this.#view, this.#axis, this.#tip);
    host.append(el("div.kv-clock-head", {}, about, tools), el("div.kv-clock-both", {}, body, el("div.kv-clock-side", {}, this.#marks.root, this.#banks.root)));
    host.classList.add("kv-clock");
    this.#tip.hidden = true;
    this.#gestures(signal);
    onResize(this.#view, () => this.#soon(), signal);
    on(this.#view, "scroll", () => {
      if (this.#clock && this.#at) this.#beside(this.#clock, this.#at);
    }, signal);
  }

  #gestures(signal: AbortSignal): void {
    const view = this.#view;
    const under = (at: [number, number]) => (this.#clock && this.#at ? barAt(this.#clock, this.#at, ...at) : null);
    let start: ClockView | null = null;
    onPointer(view, {
      press: (event) => {
        start = this.#at;
        view.focus({ preventScroll: true });
        return start && !event.button ? "x" : null;
      },
      drag: ([was], [x]) => {
        const { from, to, width } = start!;
        const c = this.#clock!;
        const now = Math.max(c.from, Math.min(c.to - (to - from), from + ((was - x) / width) * (to - from)));
        this.#show([now, now + to - from]);
      },
      click: (at) => this.#choose(under(at), false),
      double: (at) => this.#choose(under(at), true),
      over: (at) => this.#tell(at && under(at)),
    }, signal);
    on(view, "wheel", (event) => {
      if (!event.ctrlKey || !this.#at) return;
      event.preventDefault();
      this.#zoom(event.deltaY < 0 ? 1.4 : 1 / 1.4, timeAt(this.#at, placeIn(view, event)[0]));
    }, signal);
    onKey(view, (key) => {
      if (key === "+" || key === "=") this.#zoom(2);
      else if (key === "-") this.#zoom(0.5);
      else if (key === "0") this.#show(null);
      else if (key === "Enter") this.#choose(this.#chosen, true);
      else if (/^Arrow/.test(key) && this.#clock && this.#at) {
        const first = this.#clock.lanes.findIndex((lane) => lane.bars.length);
        const next = this.#chosen ? beside(this.#clock, this.#at, this.#chosen.lane, this.#chosen.bar, key) : first < 0 ? null : { lane: first, bar: this.#clock.lanes[first].bars[0] };
        if (next) this.#choose(next, false);
        this.#tell(this.#chosen);
      } else return false;
    }, signal);
  }

  #show(range: [number, number] | null): void {
    this.#range = range;
    this.#soon();
  }

  #zoom(by: number, around?: number): void {
    if (!this.#clock || !this.#at) return;
    const now = this.#now();
    const middle = now >= this.#at.from && now <= this.#at.to ? now : (this.#at.from + this.#at.to) / 2;
    this.#show(zoomTime(this.#clock, this.#at, by, around ?? middle));
  }

  #choose(what: { lane: number; bar: Bar } | null, go: boolean): void {
    const { store } = this;
    this.#chosen = what;
    if (what?.bar.kind === "weights") {
      this.#open = true;
      this.#clock = clock(store.t, true);
      this.#kept = "";
      this.#chosen = null;
    } else if (!what) store.select(null);
    else if (what.bar.kind === "life") {
      store.select({ kind: "storage", id: what.bar.storage });
      if (go) store.seek(this.#stepAt(what.bar.start));
    } else if (what.bar.kind === "run") store.seek(Math.max(0, store.t.p.runs[what.bar.id].last - 1));
    else {
      store.select(executed(store.t, what.bar.id));
      if (go) store.seek(what.bar.id);
    }
    this.#soon();
  }

  /** The last step that started by a time. */
  #stepAt(time: number): number {
    const { start } = this.#clock!;
    let found = 0;
    for (let step = 0; step < start.length; step++) if (start[step] <= time) found = step;
    return found;
  }

  #now(): number {
    const c = this.#clock;
    const step = this.store.cursor;
    return !c ? 0 : step < 0 ? c.from : c.end[Math.min(step, c.end.length - 1)];
  }

  #tell(what: { lane: number; bar: Bar } | null): void {
    const [c, v] = [this.#clock, this.#at];
    this.#tip.hidden = !what;
    if (!what || !c || !v) return;
    const { bar } = what;
    const { p } = this.store.t;
    const lines = [el("b", {}, bar.kind === "life" ? `${buffer(p, bar.storage)} · ${bar.text}` : bar.text)];
    const line = (text: string) => lines.push(el("span", {}, text));
    line(`${c.lanes[what.lane].name} · from ${time(bar.start)} to ${bar.open ? "the end: not freed" : time(bar.end)}`);
    if (bar.kind === "weights") line("they came with the programs; a click shows each of them");
    if (bar.kind === "op") line(`step ${count(numberOf(this.store.t, bar.id))} of ${p.runs[this.store.t.x.run[bar.id]].label}`);
    for (const refused of c.refused) if (bar.kind === "life" && refused.storage === bar.storage) line(`free refused at ${time(refused.at)}: ${refused.why}`);
    for (const move of c.moves) if (bar.kind === "life" && (move.to === bar.storage || move.from === bar.storage)) line(`${bytes(move.bytes)} ${move.to === bar.storage ? "came from" : "went to"} ${buffer(p, move.to === bar.storage ? move.from : move.to)} at ${time(move.at)}`);
    this.#tip.replaceChildren(...lines.slice(0, 8));
    const r = place(v, what.lane, bar);
    placeTip(this.#tip, this.#view, r.x, r.y - this.#view.scrollTop, r.h);
  }

  update(change: Change): void {
    if (change.payload) {
      this.#clock = clock(this.store.t, this.#open);
      this.#chosen = null;
    }
    if (change.payload || change.look) {
      this.#inks = null;
      this.#kept = "";
    }
    if (change.payload || change.cursor || change.selection || change.look) {
      this.#marks.update();
      this.#banks.update(this.store, this.#clock);
      this.#soon();
    }
  }

  #soon(): void {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    const c = this.#clock;
    const width = this.#view.clientWidth;
    if (!c || width < 40) return;
    const [from, to] = this.#range ?? [c.from, c.to];
    const v = (this.#at = clockView(c, width, from, to));
    const inks = (this.#inks ??= new Inks(this.#view));
    const key = `${from} ${to} ${width} ${v.height} ${globalThis.devicePixelRatio}`;
    if (key !== this.#kept) {
      this.#kept = key;
      const base = sized(this.#base, width, v.height);
      if (base) mark(this.#view, "data-drawn", paintBase(base, inks, c, v));
      this.#beside(c, v);
    }
    const over = sized(this.#over, width, v.height);
    const { selection, now } = this.store;
    const lit = new Set(now.lit.storages);
    if (selection?.kind === "storage") lit.add(selection.id);
    const there = selection?.kind === "storage" ? c.bar.get(selection.id) : undefined;
    const chosen = there ? c.lanes[there[0]].bars[there[1]] : this.#chosen?.bar.kind === "op" && selection?.kind === "node" ? this.#chosen.bar : null;
    if (over) paintOver(over, inks, c, v, lit, chosen, this.#now());
    const x = xAt(v, this.#now());
    this.#line.hidden = x < -1 || x > width + 1;
    this.#line.style.transform = `translateX(${x.toFixed(1)}px)`;
    this.#line.style.height = `${v.height}px`;
  }

  #beside(c: Clock, v: ClockView): void {
    this.#names.replaceChildren(...c.lanes.map((lane, i) => {
      const name = el("b", { title: lane.rest ? `${lane.rest} more in ${bytes(lane.bytes)}` : null }, lane.name);
      name.style.top = `${v.boxes[i].top - this.#view.scrollTop}px`;
      return name;
    }));
    const gap = ticks(v.to - v.from, Math.max(1, Math.floor(v.width / 110)))[1] ?? v.to - v.from;
    const parts: HTMLElement[] = [];
    for (let at = Math.ceil(v.from / gap) * gap; at <= v.to && xAt(v, at) < v.width - 30; at += gap) parts.push(tick(time(at), xAt(v, at)));
    this.#axis.replaceChildren(...parts);
  }
}

function time(at: number): string { return `t = ${Number(at.toPrecision(6)).toLocaleString("en-US")}`; }

export default ((host, { store }, signal) => new ClockPane(host, store, signal)) satisfies MakePane;
