// The minimap of a graph: its scale, the part that is shown, and how it is painted.
import { bordered, filled } from "./canvas.js";
import { TINT, worst, type Painted, type Painter } from "./graphpaint.js";
import type { Level, Port, Rect } from "./level.js";

/** The scale of the minimap, separate for each axis. */
interface Mini { kx: number; ky: number; w: number; h: number }
export function mini(level: Level, width: number, height: number): Mini {
  const ky = Math.min(0.25, height / Math.max(1, level.h));
  return { kx: width / Math.max(1, level.w), ky, w: width, h: Math.max(1, level.h * ky) };
}
export function windowOf(m: Mini, port: Port): Rect {
  const x = Math.max(0, port.x * m.kx);
  const y = Math.max(0, port.y * m.ky);
  return { x, y, w: Math.min(m.w - x, port.w * m.kx), h: Math.min(m.h - y, port.h * m.ky) };
}
/** The port centred at a place of the minimap. */
export function fromMini(m: Mini, port: Port, x: number, y: number): Port {
  return { ...port, x: x / m.kx - port.w / 2, y: y / m.ky - port.h / 2 };
}


const MINI_OPS = 400; // in more the minimap would be all that takes time
/** The minimap: cards as bars, the ops of open ones, and the visible part. */
export function paintMini(context: CanvasRenderingContext2D, painter: Painter, { hits, level, scene, zoom, ...v }: Painted, { kx, ky }: { kx: number; ky: number }, window: Rect, size: { w: number; h: number }): void {
  context.clearRect(0, 0, size.w, size.h);
  const open = level.rows.filter((r) => r.open && r.block >= 0);
  const few = open.reduce((n, r) => n + v.nodes(r).length, 0) <= MINI_OPS;
  for (const row of level.rows) {
    if (row.block < 0 && row.open) continue;
    const state = worst(scene.states, v.nodes(row));
    const inside = few && open.includes(row);
    filled(context, painter.colour(state === "running" ? (inside ? "accent-pale" : "accent") : inside || state === "waiting" ? "line" : "edge"), row.x * kx, row.y * ky, Math.max(2, row.w * kx - 1), Math.max(1.5, row.h * ky - 1));
    if (hits.size && v.nodes(row).some((n) => hits.has(n))) {
      filled(context, painter.colour("ink"), size.w - 4, row.y * ky, 4, inside ? Math.max(1.5, row.h * ky - 1) : 2);
    }
    if (!inside) continue;
    const { boxes, pills, nodes } = v.sketch(row);
    boxes.forEach(([x, y, w, h], i) => {
      filled(context, painter.colour(i < pills.length ? "view-mid" : TINT[scene.states[nodes[i - pills.length]]]), (row.bx + x * zoom) * kx, (row.by + y * zoom) * ky, Math.max(1.5, w * zoom * kx), Math.max(1.5, h * zoom * ky));
    });
  }
  bordered(context, painter.colour("ink"), 1.5, window.x + 1, window.y + 1, Math.max(3, window.w - 2), Math.max(3, window.h - 2));
}
