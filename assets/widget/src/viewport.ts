// The part of a level that is seen: pan, zoom, fit, the window of the minimap. Pure; px of the level and of the screen.
import { CARDS_ONLY, HEAD, type Level, type Row } from "./level.js";

export interface Port { x: number; y: number; w: number; h: number } // left top corner in the level, and size
export interface Rect { x: number; y: number; w: number; h: number }
/** A place that stays where it is when the level is laid out anew: in a row, from its head or in its drawing. */
export interface Anchor { row: Row; x: number; y: number; zoom: number; at: [number, number] }

export const ZOOMS = { least: CARDS_ONLY, most: 3, step: 1.25 };
const EDGE = 12;

export function clampZoom(zoom: number): number {
  return Math.max(ZOOMS.least, Math.min(ZOOMS.most, zoom));
}

/** A level that is smaller than the port stands in the middle, and at the top. */
export function clampPort(port: Port, level: { w: number; h: number }): Port {
  const axis = (at: number, size: number, room: number, middle: boolean) =>
    size <= room ? (middle ? (size - room) / 2 : 0) : Math.max(0, Math.min(at, size - room));
  return { ...port, x: axis(port.x, level.w, port.w, true), y: axis(port.y, level.h, port.h, false) };
}

export function anchorAt(row: Row, port: Port, zoom: number, sx: number, sy: number): Anchor {
  return { row, x: (port.x + sx - row.bx) / zoom, y: port.y + sy - row.y, zoom, at: [sx, sy] };
}

/** Where the port is so that the anchor is where it was on the screen; null where its row is gone. */
export function keep(anchor: Anchor, level: Level, zoom: number, port: Port): Port | null {
  const { row, at } = anchor;
  const now = level.rows.find((r) => r.block === row.block && r.card === row.card && r.member === row.member);
  if (!now) return null;
  const below = anchor.y - HEAD;
  const y = row.open && now.open && row.block >= 0 && below > 0 ? HEAD + (below / anchor.zoom) * zoom : Math.min(anchor.y, now.h);
  return { ...port, x: now.bx + anchor.x * zoom - at[0], y: now.y + y - at[1] };
}

/** The port moved just enough to show a rectangle; unmoved where it is shown already. `above`: px at the top that hide it. */
export function show(port: Port, { x, y, w, h }: Rect, above = 0): Port {
  const axis = (at: number, room: number, from: number, size: number, share: number, hidden: number) => {
    if (from >= at + EDGE + hidden && from + size <= at + room - EDGE) return at;
    return from - hidden - Math.max(EDGE, (room - hidden - size) * share);
  };
  return { ...port, x: axis(port.x, port.w, x, w, 0.5, 0), y: axis(port.y, port.h, y, h, 0.38, above) };
}

/** The largest zoom, at most 1, at which what is laid out fits the port: heads keep their size. */
export function fit(lay: (zoom: number) => { w: number; h: number }, port: Port): number {
  let low = ZOOMS.least + 0.02; // bodies are still drawn
  let high = 1;
  for (let i = 0; i < 12; i++) {
    const middle = (low + high) / 2;
    const level = lay(middle);
    if (level.w <= port.w + 1 && level.h <= port.h) low = middle;
    else high = middle;
  }
  const whole = lay(1);
  return whole.w <= port.w + 1 && whole.h <= port.h ? 1 : low;
}

/** From the level to the minimap: each axis has a scale of its own, so that cards are seen as bars. */
export interface Mini { kx: number; ky: number; w: number; h: number }
export function mini(level: Level, width: number, height: number): Mini {
  const ky = Math.min(0.25, height / Math.max(1, level.h));
  return { kx: width / Math.max(1, level.w), ky, w: width, h: Math.max(1, level.h * ky) };
}
export function windowOf(m: Mini, port: Port): Rect {
  const x = Math.max(0, port.x * m.kx);
  const y = Math.max(0, port.y * m.ky);
  return { x, y, w: Math.min(m.w - x, port.w * m.kx), h: Math.min(m.h - y, port.h * m.ky) };
}
/** The port whose middle is at a place of the minimap. */
export function fromMini(m: Mini, port: Port, x: number, y: number): Port {
  return { ...port, x: x / m.kx - port.w / 2, y: y / m.ky - port.h / 2 };
}

/** Distance from a point to a poly-line. */
export function distance(points: number[], x: number, y: number): number {
  let best = Infinity;
  for (let i = 0; i + 3 < points.length; i += 2) {
    const [ax, ay, bx, by] = [points[i], points[i + 1], points[i + 2], points[i + 3]];
    const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
    const k = Math.max(0, Math.min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length));
    best = Math.min(best, Math.hypot(x - ax - k * (bx - ax), y - ay - k * (by - ay)));
  }
  return best;
}

