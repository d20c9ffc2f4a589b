// Walking over the graph with arrow keys: down and up along lines, left and right to the neighbour; heads lie between.
import type { Row } from "./level.js";
import type { Sketch } from "./sketchview.js";

/** `node` -1: at the head of a block, or of a card where `block` is -1 too. */
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
    if (down && inside) return to(top(inside));
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

function top({ nodes, boxes, pills }: Sketch): number {
  const at = nearest(nodes.map((_, i) => i), (i) => boxes[i + pills.length][1] * 1000 + boxes[i + pills.length][0]);
  return nodes[at] ?? -1;
}

function nearest(list: number[], far: (i: number) => number): number {
  return list.reduce((best, i) => (best < 0 || far(i) < far(best) ? i : best), -1);
}
