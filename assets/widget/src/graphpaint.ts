// Paints the visible part of a level on a canvas. A state is a fill, a border and a letter, never a colour alone; text below
// 11 px is left out.
import { bordered, filled, polygon, stroked, traced, type Inks, type Ruler } from "./canvas.js";
import { badgeOf } from "./pair.js";
import { crossing, ended, HEAD, headAt, headSpan, lineLook, type BlockFacts, type Card, type Level, type Line, type LineLook, type Port, type Rect, type Row, type Scene, type Sketch } from "./level.js";
import { opName, shape, shortName } from "./format.js";
import { paintRed, type RedEdge } from "./rededges.js";
import { pillText } from "./participants.js";
import { letter, placeFrom, type State } from "./replay.js";
import type { Lit } from "./select.js";
import type { Store } from "./store.js";

type Look = [fill: string, line: string, width: number, dash: number[], ink: string];
const LOOKS: Record<string, Look> = {
  waiting: ["pane", "edge", 0.8, [], "soft"],
  frontier: ["frontier-pale", "ink", 1.4, [5, 3], "ink"],
  done: ["done", "edge", 1, [], "ink"],
  in_place: ["inplace-pale", "inplace", 1.5, [], "inplace-ink"],
  elsewhere: ["elsewhere-pale", "elsewhere", 2.4, [7, 3], "elsewhere-ink"],
  missed: ["missed-pale", "missed", 2.4, [], "missed-ink"],
  view: ["pane", "view", 1.4, [2, 2.5], "view"],
  foreign: ["done", "foreign", 1.4, [8, 2], "foreign"],
  path: ["accent-pale", "accent", 1.4, [], "accent"],
  listed: ["pane", "edge", 1.4, [2, 2.5], "soft"],
  running: ["accent", "ink", 1.8, [], "on-accent"],
};
const LINES: Record<LineLook, [string, number]> = {
  future: ["line", 1.1], past: ["edge", 1.1], ready: ["ink", 1.3], own: ["inplace", 2], now: ["accent", 2.2], copied: ["missed", 3.2], way: ["view", 3.2], lit: ["accent", 3.2],
};
/** Colours of a strip that stands for many nodes; the first state that occurs wins. */
const STRIP: [State, string][] = [["running", "accent"], ["missed", "missed"], ["elsewhere", "elsewhere"], ["frontier", "frontier"], ["path", "accent"], ["in_place", "inplace"], ["foreign", "foreign"], ["view", "view-mid"], ["done", "edge"], ["listed", "edge"], ["waiting", "line"]];
export const TINT = Object.fromEntries(STRIP);
const RANK = new Map(STRIP.map(([state], i) => [state, i]));

export function worst(states: State[], nodes: Iterable<number>): State {
  let best = STRIP.length - 1;
  for (const n of nodes) best = Math.min(best, RANK.get(states[n]) ?? best);
  return STRIP[best][0];
}

/** Radius of the circle that touches both legs of a corner at distance 1 from it. */
function bend(points: number[], i: number): number {
  const [ax, ay] = [points[i] - points[i - 2], points[i + 1] - points[i - 1]];
  const [bx, by] = [points[i + 2] - points[i], points[i + 3] - points[i + 1]];
  const turn = Math.abs(Math.atan2(ax * by - ay * bx, ax * bx + ay * by));
  return 1 / Math.max(0.05, Math.tan(turn / 2));
}

const OPS_FROM = 430; // px of a head from which there is a strip of its ops
const CELL = 14; // px of a member in the strip of a card, at most

/** Position of the strip in the head of a card, and the width of a cell. */
export function stripOf(row: Row, cells: number, port: Port): { x: number; cell: number } {
  const [from, to] = headSpan(row, port);
  const room = to - from;
  const cell = row.block < 0 ? Math.max(1, Math.min(CELL, (room * 0.45) / cells)) : room > OPS_FROM ? Math.min(5, 130 / cells) : 0;
  return { x: to - 10 - cell * cells, cell };
}

/** `way`: where the chosen buffer goes; everything else is faint. */
export interface Painted { way: Lit | null; sketch(row: Row): Sketch; nodes(row: Row): number[]; hits: ReadonlySet<number>; level: Level; cards: Card[]; graph: number; port: Port; zoom: number; scene: Scene; focus: { block: number; card: number; node: number } | null; chosen: number; facts: BlockFacts; red: RedEdge[] }

/** Where a line leaves the pane, and the box that it leads to. */
export interface Exit { x: number; y: number; row: Row; box: number }
const FAINT = 0.22;

export class Painter {
  exits: Exit[] = [];
  #ruler: Ruler;
  constructor(private context: CanvasRenderingContext2D, private store: Store, private inks: Inks) { this.#ruler = inks.ruler; }

  colour(name: string): string { return this.inks.colour(name); }

  paint(v: Painted): void {
    const { context } = this;
    const { port, level } = v;
    filled(context, this.colour("ground"), 0, 0, port.w, port.h);
    this.exits = [];
    for (const row of level.rows) {
      if (row.y > port.y + port.h || row.y + row.h < port.y || row.x > port.x + port.w || row.x + row.w < port.x) continue;
      this.#frame(row, v);
      if (row.open && row.block >= 0) {
        context.save();
        context.beginPath();
        context.rect(row.x - port.x, row.by - port.y, row.w, row.h - HEAD);
        context.clip();
        this.#body(row, v.sketch(row), v);
        context.restore();
      }
      this.#head(row, v);
    }
    if (v.red.length) paintRed(context, this.inks, v.red, port);
  }

  #font(weight: number, size: number): string { return `${weight} ${Math.round(size * 2) / 2}px`; }

  #say(text: string, x: number, y: number, font: string, ink: string, align: CanvasTextAlign = "left"): void {
    if (!text) return;
    const { context } = this;
    context.font = `${font} ${this.inks.family}`;
    context.textAlign = align;
    context.fillStyle = this.colour(ink);
    context.fillText(text, x, y);
  }

  #box(x: number, y: number, w: number, h: number, r: number, ink = ""): void {
    const { context } = this;
    context.beginPath();
    if (r > 1) context.roundRect(x, y, w, h, r);
    else context.rect(x, y, w, h);
    if (!ink) return;
    context.fillStyle = this.colour(ink);
    context.fill();
  }

  #frame(row: Row, { port, scene, nodes, focus }: Painted): void {
    const { context } = this;
    const { x, y } = { x: row.x - port.x, y: row.y - port.y };
    const here = nodes(row).some((n) => scene.states[n] === "running");
    context.setLineDash([]);
    this.#box(x + 0.5, y + 0.5, row.w - 1, row.h - 1, 6, row.block < 0 ? "ground" : "pane");
    const focused = focus && focus.node < 0 && focus.block === row.block && focus.card === row.card;
    stroked(context, this.colour(here || focused ? "accent" : "line"), focused ? 3 : 1);
  }

  #head(row: Row, v: Painted): void {
    const { context } = this;
    const { port, scene, cards } = v;
    const { blocks } = this.store.t.p.graphs[v.graph];
    const card = cards[row.card];
    const left = headSpan(row, port)[0] - port.x;
    const top = headAt(row, port.y) - port.y;
    const base = top + 18;
    const nodes = v.nodes(row);
    const state = worst(scene.states, nodes);
    const lit = nodes.some((n) => (v.way ?? scene.lit).nodes.has(n));
    if (top > row.y - port.y) {
      filled(context, this.colour("pane"), row.x - port.x + 1, top, row.w - 2, HEAD);
      filled(context, this.colour("line"), row.x - port.x + 1, top + HEAD, row.w - 2, 1);
    }
    if (lit) filled(context, this.colour("accent"), left, top + 3, 3, HEAD - 6);
    const corners = row.open ? [[9, 12], [17, 12], [13, 17]] : [[11, 10], [16, 14], [11, 18]];
    polygon(context, this.colour("edge"), corners.map(([dx, dy]) => [left + dx, top + dy]));
    const cells = row.block < 0 ? card.members.length : nodes.length;
    const strip = stripOf(row, cells, port);
    let end = strip.x - port.x;
    if (strip.cell) {
      const shown = v.level.rows.find((r) => r.card === row.card && r.member >= 0)?.member ?? -1;
      const single = shown >= 0 && v.level.rows.every((r) => r.card !== row.card || r.member === shown || r.member < 0);
      for (let i = 0; i < cells; i++) {
        const at = row.block < 0 ? worst(scene.states, card.members[i].blocks.flatMap((b) => blocks[b].nodes)) : scene.states[nodes[i]];
        const x = strip.x - port.x + i * strip.cell;
        const gap = strip.cell > 3 ? 1 : 0;
        filled(context, this.colour(TINT[at] ?? "line"), x, top + 9, strip.cell - gap, 10);
        if (v.hits.size && (row.block < 0 ? card.members[i].blocks.some((b) => blocks[b].nodes.some((n) => v.hits.has(n))) : v.hits.has(nodes[i]))) {
          filled(context, this.colour("ink"), x, top + 20, Math.max(2, strip.cell - gap), 2);
        }
        if (row.block < 0 && single && i === shown) bordered(context, this.colour("ink"), 2, x - 1, top + 8, strip.cell + 1, 12);
      }
    }
    const strong = this.#font(600, 12);
    const small = this.#font(400, 11);
    const done = nodes.reduce((n, i) => n + (scene.steps[i] >= 0 && scene.steps[i] <= scene.cursor ? 1 : 0), 0);
    const right = `${done} of ${nodes.length} ran`; // in this run
    this.#say(right, end - 8, base, small, "soft", "right");
    end -= 16 + this.#ruler.width(right, small);
    const title = row.block < 0 ? card.title : blocks[row.block].title || "graph";
    const cut = this.#ruler.fit(title, strong, end - left - 26);
    this.#say(cut, left + 22, base, strong, state === "running" ? "accent" : state === "waiting" ? "soft" : "ink");
    let from = left + 34 + this.#ruler.width(cut, strong);
    if (row.block < 0) return void this.#say(this.#ruler.fit(v.facts.card(row), small, end - from), from, base, small, "soft");
    const { about, missed } = v.facts.block(row);
    const warn = missed && this.#ruler.width(missed, small) < end - from ? missed : "";
    if (warn) this.#say(warn, end, base, small, "missed-ink", "right");
    const room = end - from - (warn ? this.#ruler.width(warn, small) + 12 : 0);
    if (this.#ruler.width(about, small) < room) this.#say(about, from, base, small, "soft");
  }

  #body(row: Row, s: Sketch, v: Painted): void {
    const { port, zoom } = v;
    // the visible part, in the drawing's px
    const ox = row.bx - port.x;
    const oy = row.by - port.y;
    const seen = { x0: -ox / zoom, y0: -oy / zoom, x1: (port.w - ox) / zoom, y1: (port.h - oy) / zoom };
    this.#lines(s, v, ox, oy, seen);
    const first = s.pills.length;
    for (let i = 0; i < s.boxes.length; i++) {
      const [x, y, w, h] = s.boxes[i];
      if (x > seen.x1 || y > seen.y1 || x + w < seen.x0 || y + h < seen.y0) continue;
      const rect: [number, number, number, number] = [ox + x * zoom, oy + y * zoom, w * zoom, h * zoom];
      if (v.way && !(i < first ? v.way.values.has(s.pills[i]) : v.way.nodes.has(s.nodes[i - first]))) this.context.globalAlpha = FAINT;
      if (i < first) this.#pill(s.pills[i], rect, v, s.names && [s.names[i], s.under?.[i] ?? ""]);
      else this.#node(s.nodes[i - first], rect, v, s.under?.[i]);
      this.context.globalAlpha = 1;
    }
    if (s.note) this.#say(s.note, port.w / 2, oy + s.h! * zoom + 6, this.#font(400, 11), "soft", "center");
    if (zoom > 0.45) {
      for (const line of s.lines) this.#exits(line, row, s, v, ox, oy);
      const taken: Rect[] = [];
      for (const line of s.lines) if (line.text) this.#caption(line, line.text, ox, oy, zoom, taken);
    }
  }

  #lines(s: Sketch, v: Painted, ox: number, oy: number, seen: { x0: number; y0: number; x1: number; y1: number }): void {
    const { context } = this;
    const { zoom, scene } = v;
    const { p } = this.store;
    const g = p.graphs[v.graph];
    const paths = new Map<LineLook, Path2D>();
    const radius = 14 * zoom;
    for (const line of s.lines) {
      if (line.x0 > seen.x1 || line.y0 > seen.y1 || line.x1 < seen.x0 || line.y1 < seen.y0) continue;
      const look = v.way?.values.has(line.value) ? "way" : lineLook(p, g, s, line, scene, v.chosen);
      let path = paths.get(look);
      if (!path) paths.set(look, (path = new Path2D()));
      const { points } = line;
      const at = (i: number): [number, number] => [ox + points[i] * zoom, oy + points[i + 1] * zoom];
      path.moveTo(...at(0));
      for (let i = 2; i + 3 < points.length; i += 2) {
        // at most half of the shorter leg
        const leg = Math.min(Math.hypot(points[i] - points[i - 2], points[i + 1] - points[i - 1]), Math.hypot(points[i + 2] - points[i], points[i + 3] - points[i + 1]));
        if (radius > 5) path.arcTo(...at(i), ...at(i + 2), Math.min(radius, (leg * zoom) / 2 * bend(points, i)));
        else path.lineTo(...at(i));
      }
      path.lineTo(...at(points.length - 2));
    }
    context.setLineDash([]);
    for (const look of Object.keys(LINES) as LineLook[]) {
      const path = paths.get(look);
      if (!path) continue;
      context.strokeStyle = this.colour(LINES[look][0]);
      context.lineWidth = LINES[look][1] * Math.max(0.6, Math.min(1, zoom));
      context.globalAlpha = v.way && look !== "way" ? FAINT : 1;
      context.stroke(path);
      context.globalAlpha = 1;
    }
    if (zoom < 0.45) return;
    for (const e of s.ends) {
      if (e.x > seen.x1 || e.y > seen.y1 || e.x < seen.x0 || e.y < seen.y0) continue;
      const chosen = (v.way ?? scene.lit).values.has(e.value);
      const [strong, ink] = [chosen || e.cache >= 0, this.colour(chosen ? "accent" : e.cache < 0 ? "edge" : "view")];
      traced(context, ink, strong ? 1.8 : 1, [[ox + e.x * zoom, oy + e.y * zoom], [ox + e.ix * zoom, oy + e.iy * zoom]], strong ? [] : [2, 2]);
      context.fillStyle = ink;
      context.beginPath();
      context.arc(ox + e.x * zoom, oy + e.y * zoom, e.cache < 0 ? 2 : 3.5, 0, 7);
      context.fill();
    }
  }

  /** Arrows where a line is cut by the border of the pane. */
  #exits(line: Line, row: Row, s: Sketch, { port, zoom }: Painted, ox: number, oy: number): void {
    const top = headAt(row, port.y) - port.y + HEAD;
    const pane: Rect = { x: 0, y: top, w: port.w, h: port.h - top };
    for (const [box, points] of [[line.to, line.points], [line.from, [...line.points].reverse()]] as const) {
      const [bx, by, bw, bh] = s.boxes[box];
      const [x, y] = [ox + bx * zoom, oy + by * zoom];
      if (x < port.w && y < port.h && x + bw * zoom > 0 && y + bh * zoom > top) continue;
      // reversed points are pairs of y and x
      const at = crossing(points.map((c, i) => ((i % 2 === 1) === (box === line.to) ? oy : ox) + c * zoom), pane, box !== line.to);
      if (!at || this.exits.some((e) => Math.hypot(e.x - at.x, e.y - at.y) < 14)) continue;
      this.exits.push({ x: at.x, y: at.y, row, box });
      const [dx, dy] = [Math.cos(at.turn), Math.sin(at.turn)];
      polygon(this.context, this.colour("soft"), [[at.x, at.y], [at.x - 8 * dx - 5 * dy, at.y - 8 * dy + 5 * dx], [at.x - 8 * dx + 5 * dy, at.y - 8 * dy - 5 * dx]]);
    }
  }

  /** What happened on a line, in the middle of it or where there is room beside the words of other lines. */
  #caption({ points, look }: Line, text: string, ox: number, oy: number, zoom: number, taken: Rect[]): void {
    // a long line has its words beside the box that it passes first
    const k = points.length > 8 ? 4 : points.length > 4 ? 2 : 0;
    const font = this.#font(look === "copied" ? 600 : 400, Math.max(11, 11 * zoom));
    const [w, h] = [this.#ruler.width(text, font) + 8, 16 * Math.max(1, zoom)];
    const place = (share: number): Rect => ({
      x: ox + (points[k] * (1 - share) + points[k + 2] * share) * zoom - w / 2, y: oy + (points[k + 1] * (1 - share) + points[k + 3] * share) * zoom - h / 2, w, h,
    });
    const free = (a: Rect) => !taken.some((b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h);
    const at = [0.5, 0.15, 0.85].map(place).find(free);
    if (!at) return;
    taken.push(at);
    filled(this.context, this.colour("pane"), at.x, at.y, w, h);
    this.#say(text, at.x + w / 2, at.y + h * 0.75, font, look === "copied" ? "missed-ink" : look === "way" ? "view" : "soft", "center");
  }

  #pill(value: number, [x, y, w, h]: [number, number, number, number], v: Painted, says?: [name: string, under: string]): void {
    const { context } = this;
    this.#box(x, y, w, h, Math.min(5, h / 5), "view-pale");
    context.setLineDash([]);
    stroked(context, this.colour(v.scene.lit.values.has(value) ? "accent" : "view"), v.scene.lit.values.has(value) ? 3 : 1.5);
    const { t, now, cursor } = this.store;
    const [name, under] = says ?? pillText(t, now.frame, value, placeFrom(t, now.frame, value, cursor));
    this.#two(name, under, "", [x, y, w, h], "ink", "soft", "");
  }

  #node(node: number, rect: [number, number, number, number], v: Painted, under?: string): void {
    const { context } = this;
    const { p } = this.store;
    const { scene } = v;
    const [x, y, w, h] = rect;
    const state = scene.states[node] ?? "waiting";
    const look = LOOKS[state] ?? LOOKS.waiting;
    const end = ended(p, scene, node);
    const lit = scene.lit.nodes.has(node);
    this.#box(x, y, w, h, Math.min(5, h / 5), look[0]);
    // the op that just ran shows its outcome, too
    const border = end === "missed" || end === "in_place" || end === "elsewhere" ? LOOKS[end] : look;
    context.setLineDash(lit ? [] : look[3]);
    stroked(context, this.colour(lit ? (state === "running" ? "ink" : "accent") : border[1]), (lit ? 3 : border === look ? look[2] : 3) * Math.max(0.6, Math.min(1, h / 30)));
    // outside of the box, so that its border stays readable
    const ring = (by: number, ink: string, width: number) => {
      context.setLineDash([]);
      this.#box(x - by, y - by, w + 2 * by, h + 2 * by, by + 3);
      stroked(context, this.colour(ink), width);
    };
    if (v.hits.has(node)) ring(3, "ink", 1.5);
    if (v.focus?.node === node) ring(4, "accent", 2);
    if (h < 13) return;
    const g = p.graphs[v.graph];
    const ink = state === "running" ? "on-accent" : state === "waiting" ? "soft" : "ink";
    const step = scene.steps[node];
    const out = step >= 0 ? p.step.out[step] : 0;
    const info = scene.captions ? scene.captions[node] : step >= 0 && p.step.out[step + 1] > out ? shape(p.strings[p.out.info[out]]) : "";
    const { versus } = this.store;
    const wide = step < 0 ? "" : badgeOf(versus, this.store.t, step);
    const badge = wide && this.#ruler.width(wide, this.#font(400, 11)) > w - 14 ? versus!.names.join(" ≠ ") : wide;
    this.#two(opName(g.nodes[node][1]), badge || under || info, letter(p.codes, state), rect, ink, state === "running" ? "on-accent" : badge ? "missed-ink" : "soft", look[4], shortName(g, node), end ? letter(p.codes, end) : "");
  }

  /** One or two lines of text in a box, if there is room for 11 px. */
  #two(text: string, under: string, mark: string, [x, y, w, h]: [number, number, number, number], ink: string, soft: string, markInk: string, name = "", second = ""): void {
    if (h < 13) return;
    const zoom = h / 36;
    const big = this.#font(600, Math.max(11, 12 * zoom));
    const small = this.#font(400, Math.max(11, 11 * zoom));
    const pad = Math.max(3, 7 * Math.min(1, zoom));
    const two = h >= 29;
    const line = two ? y + h / 2 - 3 * zoom : y + h / 2 + 4;
    const below = line + 14.5 * Math.max(1, zoom);
    if (second && two) this.#say(second, x + w - pad, below, big, markInk, "right");
    // the name goes before the mark: fill and border show the state, too
    const marked = mark && (two || this.#ruler.width(text, big) <= w - 2 * pad - 13 || this.#ruler.width(text, big) > w - 2 * pad);
    if (marked) this.#say(mark, x + w - pad, line, big, markInk, "right");
    const room = w - 2 * pad - (marked ? 13 : 0);
    const cut = this.#ruler.fit(text, big, room) || (room > 20 ? text.slice(0, 3) : "");
    this.#say(cut, x + pad, line, big, ink);
    const left = room - this.#ruler.width(cut, big) - 5;
    const short = name && cut === text ? this.#ruler.fit(name, small, left) : "";
    if (short === name || short.length > 5) this.#say(short, x + pad + this.#ruler.width(cut, big) + 5, line, small, soft);
    if (two) this.#say(this.#ruler.fit(under, small, w - 2 * pad - (second ? 13 : 0)), x + pad, below, small, soft);
  }
}
