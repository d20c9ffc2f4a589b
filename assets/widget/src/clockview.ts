// Where lanes and bars stand on the canvas, and what lies under the pointer. Pure.
import type { Bar, Clock } from "./clockdata.js";

export const ROW = 17;
const GAP = 12; // between lanes
const HEAD = 4;
const STRIP = 34; // above the lives of a space: the bytes that are held there

/** `foot`: px from the top to under the last row. `strip`: px above the first row. */
export interface Box { top: number; foot: number; strip: number }
export interface ClockView { boxes: Box[]; width: number; height: number; from: number; to: number }

export function clockView(c: Clock, width: number, from: number, to: number): ClockView {
  let top = HEAD;
  const boxes = c.lanes.map((lane) => {
    const strip = lane.held ? STRIP : 0;
    const box = { top, foot: top + strip + lane.rows * ROW + (lane.rest ? ROW : 0), strip };
    top = box.foot + GAP;
    return box;
  });
  return { boxes, width, height: top, from, to: to > from ? to : from + 1 };
}

export function xAt(v: ClockView, time: number): number {
  return ((time - v.from) / (v.to - v.from)) * v.width;
}

export function timeAt(v: ClockView, x: number): number {
  return v.from + (x / Math.max(1, v.width)) * (v.to - v.from);
}

/** Where a bar stands; at least two px wide. A band takes the height of its lane. */
export function place(v: ClockView, lane: number, bar: Bar): { x: number; y: number; w: number; h: number } {
  const { top, foot, strip } = v.boxes[lane];
  const x = xAt(v, bar.start);
  const w = Math.max(2, xAt(v, bar.end) - x);
  return bar.row < 0 ? { x: x - 1, y: top - 3, w: w + 2, h: foot - top + 4 } : { x, y: top + strip + bar.row * ROW, w, h: ROW - 3 };
}

/** The bar under a point, bands last; null for none. */
export function barAt(c: Clock, v: ClockView, x: number, y: number): { lane: number; bar: Bar } | null {
  const lane = v.boxes.findIndex((box) => y >= box.top - 3 && y < box.foot + 3);
  if (lane < 0) return null;
  let found: Bar | null = null;
  for (const bar of c.lanes[lane].bars) {
    const r = place(v, lane, bar);
    if (x >= r.x - 2 && x <= r.x + r.w + 2 && y >= r.y && y <= r.y + r.h && (!found || bar.row >= 0)) found = bar;
  }
  return found && { lane, bar: found };
}

/** Zoom around a time, within the whole. */
export function zoomTime(c: Clock, v: ClockView, by: number, around: number): [number, number] {
  const span = Math.min(c.to - c.from, Math.max((c.to - c.from) / 5000, (v.to - v.from) / by));
  const share = (around - v.from) / (v.to - v.from);
  const from = Math.max(c.from, Math.min(c.to - span, around - share * span));
  return [from, from + span];
}

/** The bar that an arrow key leads to: along the lane, or to the one above or below at the same time. */
export function beside(c: Clock, v: ClockView, lane: number, bar: Bar, key: string): { lane: number; bar: Bar } | null {
  const middle = (bar.start + bar.end) / 2;
  const y = place(v, lane, bar).y;
  let best: { lane: number; bar: Bar } | null = null;
  let least = Infinity;
  c.lanes.forEach((other, i) => {
    for (const one of other.bars) {
      if (one === bar || one.row < 0) continue;
      const dx = (one.start + one.end) / 2 - middle;
      const dy = place(v, i, one).y - y;
      const fits = key === "ArrowRight" ? !dy && dx > 0 : key === "ArrowLeft" ? !dy && dx < 0 : key === "ArrowDown" ? dy > 0 : dy < 0;
      const far = /Up|Down/.test(key) ? Math.abs(dy) * 1e6 + Math.max(0, one.start - middle, middle - one.end) / (v.to - v.from) : Math.abs(dx);
      if (fits && far < least) [best, least] = [{ lane: i, bar: one }, far];
    }
  });
  return best;
}
