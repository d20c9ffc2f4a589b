// The dashed red lines of hidden pairs between the ops of the graph.
import { ensure } from "./arrays.js";
import { filled, polygon, stroked, traced, type Inks } from "./canvas.js";
import { pairState, pairText } from "./evidence.js";
import { distance, HEAD, type Level, type Port, type Rect, type Row } from "./level.js";
import type { Trace } from "./replay.js";
import type { Store } from "./store.js";
import type { Payload } from "./wire.js";

/** A line between two places of the graph, and how many pairs it stands for. */
interface RedLine { from: number; to: number; pairs: number[]; state: string; strong: boolean }

/** So many pairs of one frame are all drawn. */
const ALL = 12;

/** Pairs to draw in a frame: all if they are few, those of the cursor's step, and what is alike with the chosen one. */
export function drawn({ p }: Trace, frame: number, cursor: number, chosen: number): number[] {
  const inside: number[] = [];
  for (let k = 0; k < p.pair.first.length; k++) {
    if (p.step.frame[p.pair.first[k]] === frame && p.step.frame[p.pair.second[k]] === frame && pairState(p, k) !== "false") inside.push(k);
  }
  const own = chosen < 0 ? -1 : p.pair.group[chosen];
  const wanted = inside.length <= ALL ? inside : inside.filter((k) => p.pair.group[k] === own || p.pair.first[k] === cursor || p.pair.second[k] === cursor);
  // a pair of another run, or one that is none, is drawn where its ops are
  const there = chosen >= 0 && !wanted.includes(chosen) && [p.pair.first[chosen], p.pair.second[chosen]].every((step) => p.frame.graph[p.step.frame[step]] === p.frame.graph[frame]);
  return there && !wanted.some((k) => p.pair.group[k] === own) ? [...wanted, chosen] : wanted;
}

/** One line for each two places: `place` says where a node is seen, itself (its number) or the card that it is folded into. */
export function lines({ p }: Trace, pairs: number[], chosen: number, place: (node: number) => number): RedLine[] {
  const found = new Map<string, RedLine>();
  for (const k of pairs) {
    const [from, to] = [place(p.step.node[p.pair.first[k]]), place(p.step.node[p.pair.second[k]])];
    const state = pairState(p, k);
    const key = `${from} ${to} ${state} ${p.strings[p.pair.kind[k]]}`;
    const one = ensure(found, key, () => ({ from, to, pairs: [], state, strong: false }));
    one.pairs.push(k);
    one.strong ||= k === chosen;
  }
  return [...found.values()];
}

/** `RAW · 384 B`, or `RAW ×30`. */
export function lineText(p: Payload, line: RedLine): string {
  return line.pairs.length > 1 ? `${p.strings[p.pair.kind[line.pairs[0]]]} ×${line.pairs.length}` : pairText(p, line.pairs[0], "label");
}

/** From one place of the level to another; `within`: both ends are in one head. */
export interface RedEdge { from: Rect; to: Rect; within: boolean; text: string; state: string; strong: boolean; pairs: number[] }

const REACH = 5; // px
const LOOP = 26; // px of a line that leads back to its own head

export function redEdges(store: Store, graph: number, level: Level, rowOf: (block: number) => Row | undefined, rect: (row: Row, node: number) => Rect): RedEdge[] {
  const { t, now, cursor, pair } = store;
  if (!t.p.pair.first.length || graph !== now.graph) return [];
  const { block } = t.x.graphs[graph];
  const found = (node: number) => rowOf(block[node] ?? -1);
  const place = (node: number) => {
    const row = found(node);
    return row?.open && row.block >= 0 ? node : -1 - (row ? level.rows.indexOf(row) : -1);
  };
  const box = (at: number): Rect | null => {
    if (at >= 0) return rect(found(at)!, at);
    const row = level.rows[-1 - at];
    return row ? { x: row.x + row.w * 0.28, y: row.y + 2, w: 8, h: HEAD - 4 } : null; // behind the title of the head
  };
  return lines(t, drawn(t, now.frame, cursor, pair), pair, place).flatMap((line) => {
    const [from, to] = [box(line.from), box(line.to)];
    return from && to ? [{ from, to, within: line.from === line.to, text: lineText(t.p, line), state: line.state, strong: line.strong, pairs: line.pairs }] : [];
  });
}

/** Bezier points of a line: from the sides that face each other, or around the right where one is over the other. */
export function bow({ from, to, within }: Pick<RedEdge, "from" | "to" | "within">): [number, number][] {
  const [ay, by] = [from.y + from.h / 2, to.y + to.h / 2];
  if (within) {
    const x = from.x + from.w;
    return [[x, ay + 3], [x + 4, ay - 14], [x + LOOP - 4, ay - 14], [x + LOOP, ay + 3]];
  }
  const [right, left] = [from.x + from.w, from.x];
  if (Math.abs(by - ay) < from.h / 2) {
    // in one row: under what stands between them, where there is room for the label too
    const [ax, bx, deep] = [from.x + from.w / 2, to.x + to.w / 2, Math.max(from.y + from.h, to.y + to.h)];
    const down = deep + 22 + Math.min(26, Math.abs(bx - ax) / 14);
    return [[ax, from.y + from.h], [ax, down], [bx, down], [bx, to.y + to.h]];
  }
  if (to.x > right) return [[right, ay], [right + (to.x - right) / 2, ay], [to.x - (to.x - right) / 2, by], [to.x, by]];
  const end = to.x + to.w;
  if (end < left) return [[left, ay], [left - (left - end) / 2, ay], [end + (left - end) / 2, by], [end, by]];
  const out = Math.max(right, end) + 22 + Math.min(40, Math.abs(by - ay) / 6);
  return [[right, ay], [out, ay], [out, by], [end, by]];
}

export function pointOf(b: [number, number][], k: number): [number, number] {
  const w = [(1 - k) ** 3, 3 * k * (1 - k) ** 2, 3 * k * k * (1 - k), k ** 3];
  return [0, 1].map((axis) => b.reduce((sum, point, i) => sum + w[i] * point[axis], 0)) as [number, number];
}

const strongFirst = (edges: RedEdge[]) => [...edges].sort((a, b) => Number(b.strong) - Number(a.strong));

/** The line that a point of the level is on, the strong ones first; undefined = none. */
export function redAt(edges: RedEdge[], x: number, y: number): RedEdge | undefined {
  const near = (edge: RedEdge) => distance(Array.from({ length: 25 }, (_, k) => pointOf(bow(edge), k / 24)).flat(), x, y) <= REACH;
  return strongFirst(edges).find(near);
}

/** Where of a line there is room for its label, beside those that are written: its middle, or the part next to it that is seen. */
function labelAt(b: [number, number][], port: Port, w: number, taken: Rect[]): [number, number] | null {
  for (const k of [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9]) {
    const [x, y] = pointOf(b, k);
    if (x <= 0 || x >= port.w || y <= 14 || y >= port.h - 4) continue;
    if (taken.some((one) => Math.abs(one.x - x) * 2 < one.w + w && Math.abs(one.y - y) < one.h)) continue;
    taken.push({ x, y, w, h: 17 });
    return [x, y];
  }
  return null;
}

export function paintRed(context: CanvasRenderingContext2D, inks: Inks, edges: RedEdge[], port: Port): void {
  const red = inks.colour("hidden");
  context.lineJoin = "round";
  const taken: Rect[] = [];
  for (const edge of strongFirst(edges)) {
    const b = bow(edge).map(([x, y]) => [x - port.x, y - port.y] as [number, number]);
    const [[ax, ay], [bx, by], [cx, cy], [dx, dy]] = b;
    if (Math.max(ay, dy) < -40 || Math.min(ay, dy) > port.h + 40) continue;
    context.setLineDash(edge.state === "broken" ? [] : edge.state === "false" ? [1.5, 5] : [6, 4]);
    context.beginPath();
    context.moveTo(ax, ay);
    context.bezierCurveTo(bx, by, cx, cy, dx, dy);
    stroked(context, red, edge.strong ? 2.6 : 1.7);
    context.setLineDash([]);
    const turn = Math.atan2(dy - cy, dx - cx);
    polygon(context, red, [[0, 0], [9, 2.7], [9, -2.7]].map(([r, a]) => [dx + r * Math.cos(turn + a), dy + r * Math.sin(turn + a)]));
    context.font = `${edge.strong ? 700 : 600} 11px ${inks.family}`;
    const w = context.measureText(edge.text).width + 8;
    const at = labelAt(b, port, w, taken);
    if (!at) continue;
    const [x, y] = at;
    if (edge.state === "broken") for (const by of [-6, 6]) traced(context, red, 2.6, [[x - 6, y + by], [x + 6, y - by]]);
    const left = Math.max(2, Math.min(port.w - w - 2, edge.within ? x + LOOP / 2 + 6 : x - w / 2));
    const top = edge.within ? y - 2 : edge.state === "broken" ? y + 10 : y - 8;
    context.globalAlpha = 0.92;
    filled(context, inks.colour("pane"), left, top, w, 16);
    context.globalAlpha = 1;
    context.fillStyle = red;
    context.textAlign = "left";
    context.fillText(edge.text, left + 4, top + 12);
  }
}
