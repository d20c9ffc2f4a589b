// A block's drawing with the nodes and values of its boxes, lines and ends: hit tests, looks of lines, and arrow keys.
import { ensure } from "./arrays.js";
import { cacheOf, outcome, type State, type StateWords } from "./replay.js";
import type { Lit } from "./select.js";
import { bounds, distance, type Row } from "./level.js";
import type { Block, Drawing, Graph, Payload } from "./wire.js";

/** The state of the shown drawings; `steps`: by node of the frame. */
export interface Scene {
  states: State[]; steps: Int32Array; cursor: number; lit: Lit;
  captions?: string[]; // second lines of the boxes, in place of shapes
  words?: StateWords;
}
/** `text` and `look`: of a line whose drawing says them. */
export interface Line { from: number; to: number; points: number[]; value: number; x0: number; y0: number; x1: number; y1: number; text?: string; look?: LineLook }
export interface End { box: number; value: number; x: number; y: number; ix: number; iy: number; cache: number }
type Hit = { kind: "node"; node: number } | { kind: "value"; value: number } | null;

/** `pills`: the values of the first boxes; `names`, `under`, `note`: texts of boxes, and below them, that the drawing says. */
export interface Sketch { nodes: number[]; boxes: Drawing["boxes"]; pills: number[]; lines: Line[]; ends: End[]; names?: string[]; under?: string[]; note?: string; h?: number }

const known = new WeakMap<Block, Sketch>();
export function sketchOf(p: Payload, g: Graph, block: Block): Sketch { return ensure(known, block, () => make(p, g, block, p.drawings[block.drawing])); }

function make(p: Payload, g: Graph, { nodes }: Block, { boxes, edges, stubs, pills = [] }: Drawing): Sketch {
  const first = pills.length;
  const slots = (box: number) => {
    const [, , , inputs, , captures] = g.nodes[nodes[box - first]];
    return [...inputs, ...captures]; // captures stand behind the inputs
  };
  const values = pills.map(([box, slot]) => slots(box)[slot] ?? -1);
  const lines = edges.map(([from, to, points]) => {
    const made = from < first ? [values[from]] : g.nodes[nodes[from - first]][4];
    const reads = slots(to);
    return { from, to, points, value: made.find((v) => v >= 0 && reads.includes(v)) ?? -1, ...bounds(points) };
  });
  const ends = stubs.map(([box, side, x, y, slot]) => {
    const value = (side === "in" ? slots(box) : g.nodes[nodes[box - first]][4])[slot] ?? -1;
    const [bx, by, w, h] = boxes[box];
    return { box, value, x, y, ix: Math.max(bx + 4, Math.min(x, bx + w - 4)), iy: side === "in" ? by : by + h, cache: cacheOf(p, g.values[value]) };
  });
  return { nodes, boxes, pills: values, lines, ends };
}

export function boxOf(s: Sketch, node: number): Drawing["boxes"][number] | undefined {
  const at = s.nodes.indexOf(node);
  return at < 0 ? undefined : s.boxes[at + s.pills.length];
}

/** The node or value at a point; `reach`: tolerance of lines. */
export function hitIn(s: Sketch, x: number, y: number, reach: number): Hit {
  for (let i = s.boxes.length - 1; i >= 0; i--) {
    const [bx, by, w, h] = s.boxes[i];
    if (x < bx || x > bx + w || y < by || y > by + h) continue;
    return i < s.pills.length ? { kind: "value", value: s.pills[i] } : { kind: "node", node: s.nodes[i - s.pills.length] };
  }
  const end = s.ends.find((e) => Math.hypot(e.x - x, e.y - y) < 2 * reach);
  if (end) return { kind: "value", value: end.value };
  let best = reach;
  let value = -1;
  for (const line of s.lines) {
    if (x < line.x0 - reach || x > line.x1 + reach || y < line.y0 - reach || y > line.y1 + reach) continue;
    const d = distance(line.points, x, y);
    if (d < best) [best, value] = [d, line.value];
  }
  return value < 0 ? null : { kind: "value", value };
}

/** `way`: where a buffer goes. */
export type LineLook = "future" | "past" | "ready" | "own" | "copied" | "now" | "lit" | "way";

/** The look of a line; copied values come first, then values taken over in place. */
export function lineLook(p: Payload, g: Graph, s: Sketch, line: Line, { states, steps, cursor }: Scene, chosen: number): LineLook {
  if (line.value >= 0 && line.value === chosen) return "lit";
  if (line.look) return line.look;
  const first = s.pills.length;
  const from = s.nodes[line.from - first];
  const to = s.nodes[line.to - first];
  const ran = (n: number) => steps[n] >= 0 && steps[n] <= cursor;
  if (to === undefined) return "past";
  if (!ran(to)) return from === undefined || ran(from) ? "ready" : "future";
  const step = steps[to];
  const inputs = g.nodes[to][3];
  if (p.step.copied[step] > 0) {
    for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) if (inputs[p.block.input[k]] === line.value) return "copied";
  }
  const taken = p.step.taken[step] ?? 0;
  if (p.step.flags[step] & p.flag.inPlace && inputs.some((v, slot) => (taken >> slot) & 1 && v === line.value)) return "own";
  return states[to] === "running" ? "now" : "past";
}

/** The outcome of the op that just ran; "" for others, and in plans. */
export function ended(p: Payload, { states, steps }: Scene, node: number): State | "" {
  const flags = states[node] === "running" ? p.step.flags[steps[node]] : undefined;
  return flags === undefined ? "" : outcome(p, flags);
}

/** `node` -1: the head of a block, or of a card if `block` is -1, too. */
export interface Place { card: number; block: number; node: number }

export function step(rows: Row[], sketch: (row: Row) => Sketch, from: Place | null, key: string): Place | null {
  const at = from ? rows.findIndex((r) => r.block === from.block && r.card === from.card) : -1;
  const head = (i: number): Place | null => {
    const r = rows[Math.max(0, Math.min(i, rows.length - 1))];
    return r ? { card: r.card, block: r.block, node: -1 } : null;
  };
  if (!from || at < 0) return head(0);
  const row = rows[at];
  const inside = row.open && row.block >= 0 ? sketch(row) : null;
  const to = (node: number): Place => ({ ...from, node });
  const down = key === "ArrowDown";
  if (from.node < 0) {
    if (down && inside) {
      const place = (i: number) => inside.boxes[i + inside.pills.length];
      return to(inside.nodes[nearest(inside.nodes.map((_, i) => i), (i) => place(i)[1] * 1000 + place(i)[0])] ?? -1);
    }
    return key === "ArrowUp" ? head(at - 1) : down ? head(at + 1) : from;
  }
  if (!inside) return head(at);
  const first = inside.pills.length;
  const box = inside.nodes.indexOf(from.node) + first;
  const middle = (i: number) => inside.boxes[i][0] + inside.boxes[i][2] / 2;
  if (key === "ArrowUp" || down) {
    const ends = inside.lines.filter((l) => (down ? l.from : l.to) === box).map((l) => (down ? l.to : l.from)).filter((i) => i >= first);
    const next = nearest(ends, (i) => Math.abs(middle(i) - middle(box)));
    if (next >= 0) return to(inside.nodes[next - first]);
    return down ? head(at + 1) : to(-1);
  }
  const [x, y, , h] = inside.boxes[box];
  const sign = key === "ArrowRight" ? 1 : -1;
  const beside = inside.nodes.map((_, i) => i + first).filter((i) => sign * (inside.boxes[i][0] - x) > 0 && Math.abs(inside.boxes[i][1] - y) < 1.5 * h);
  const next = nearest(beside, (i) => Math.abs(inside.boxes[i][0] - x) + 3 * Math.abs(inside.boxes[i][1] - y));
  return next >= 0 ? to(inside.nodes[next - first]) : from;
}

function nearest(list: number[], far: (i: number) => number): number {
  return list.reduce((best, i) => (best < 0 || far(i) < far(best) ? i : best), -1);
}
