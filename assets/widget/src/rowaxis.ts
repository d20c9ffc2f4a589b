// The axis that the heat map and the occupancy share: rows of a cache from left to right.

export const LEFT = 46; // px for the names of heads and runs
const GAP = 8; // px between numbers
export const CLOSE = 64; // rows of a close-up

export interface Axis { first: number; rows: number; width: number }

/** All rows, or so many around one of them. */
export function axisOf(most: number, width: number, around: number | null): Axis {
  const rows = around === null ? most : Math.min(CLOSE, most);
  const first = around === null ? 0 : Math.max(0, Math.min(around - (rows >> 1), most - rows));
  return { first, rows: Math.max(1, rows), width: Math.max(1, width - LEFT - 2) };
}

export function xOf(a: Axis, row: number): number {
  return LEFT + (Math.max(0, Math.min(row - a.first, a.rows)) / a.rows) * a.width;
}

/** The row under a pixel, -1 beside the axis. */
export function rowAt(a: Axis, x: number): number {
  const row = Math.floor(((x - LEFT) / a.width) * a.rows);
  return row < 0 || row >= a.rows ? -1 : a.first + row;
}

/** Rows to be named, so far apart that their numbers do not touch. */
export function ticks(a: Axis): number[] {
  const wide = 10 + 7 * String(a.first + a.rows).length;
  let step = 1;
  for (let i = 0; (step * a.width) / a.rows < wide; i++) step *= [2, 2.5, 2][i % 3];
  const found = [];
  for (let row = Math.ceil(a.first / step) * step; row < a.first + a.rows; row += step) found.push(row);
  return found;
}

/** The names of `ticks`. The last one is moved in from the end; where it would then touch its neighbour it is left out. */
export function drawAxis(context: CanvasRenderingContext2D, a: Axis, y: number, colour: string, family: string): void {
  context.font = `10.5px ${family}`;
  context.fillStyle = colour;
  context.textBaseline = "top";
  context.textAlign = "left";
  const half = a.width / a.rows / 2;
  let end = -Infinity;
  for (const row of ticks(a)) {
    const text = String(row);
    const wide = context.measureText(text).width;
    const x = Math.max(LEFT, Math.min(xOf(a, row) + (half > 4 ? half - wide / 2 : -wide / 2 + half), LEFT + a.width - wide));
    if (x < end + GAP) continue;
    context.fillText(text, x, y);
    end = x + wide;
  }
}
