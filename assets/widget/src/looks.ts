// How rows of a cache are drawn: their axis, the states, and the sequences that share them. Each has its own fill, pattern and
// border, so that nothing rests on colour.
import { ownedOf, type CacheData } from "./cachedata.js";
import type { Inks, Pattern } from "./canvas.js";
import { round } from "./format.js";

export interface Look { about: string; fill: string; mark: Pattern; ink: string; dash: number[]; line: number }

/** By the name that the payload has for a state, from what may be covered to what must be seen. */
const LOOKS: Record<string, Look> = {
  reserved: { about: "reserved, never written", fill: "line", mark: "", ink: "edge", dash: [1, 2], line: 1 },
  pending: { about: "empty: a later op of this run writes it", fill: "accent-pale", mark: "", ink: "accent", dash: [3, 2], line: 1.5 },
  valid: { about: "holds a token", fill: "view-mid", mark: "", ink: "view", dash: [], line: 1 },
  wrapped: { about: "holds a token of a later round", fill: "view-pale", mark: "dots", ink: "view", dash: [], line: 2 },
  outside: { about: "holds a token that attention no longer sees", fill: "done", mark: "cross", ink: "soft", dash: [3, 2], line: 1 },
  stale: { about: "stale: holds something, but no live token", fill: "missed-pale", mark: "hatch", ink: "missed", dash: [5, 2], line: 1.5 },
  written: { about: "written by this run", fill: "accent", mark: "", ink: "ink", dash: [], line: 2 },
};
const NAMES = Object.keys(LOOKS);

/** How a state is drawn; one that is not known here plainly, by its name. */
export function lookOf(state: string): Look {
  return LOOKS[state] ?? { about: state, fill: "pane", mark: "", ink: "ink", dash: [], line: 1 };
}

/** Which of two states is drawn first, as for `sort`; what is not known here before all others. */
export function above(a: string, b: string): number { return NAMES.indexOf(a) - NAMES.indexOf(b); }

/** A box with fill and pattern of a state; `border` where there is room for one. */
export function box(context: CanvasRenderingContext2D, inks: Inks, state: string, x: number, y: number, w: number, h: number, border = true): void {
  const look = lookOf(state);
  context.fillStyle = inks.colour(look.fill);
  context.fillRect(x, y, w, h);
  const pattern = look.mark ? inks.pattern(look.mark, look.ink) : null;
  if (pattern) {
    context.fillStyle = pattern;
    context.fillRect(x, y, w, h);
  }
  if (border) outline(context, inks, look, x, y, w, h);
}

export function outline(context: CanvasRenderingContext2D, inks: Inks, look: Look, x: number, y: number, w: number, h: number): void {
  const line = Math.min(look.line, w / 3, h / 3);
  context.strokeStyle = inks.colour(look.ink);
  context.lineWidth = line;
  context.setLineDash(look.dash);
  context.strokeRect(x + line / 2, y + line / 2, Math.max(0.5, w - line), Math.max(0.5, h - line));
  context.setLineDash([]);
}

export const LEFT = 46; // px for the names of heads and runs
const GAP = 8; // px between numbers
export const CLOSE = 64; // rows of a close-up

export interface Axis { first: number; rows: number; width: number }

/** All rows, or `CLOSE` of them around one. */
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
  const step = Math.max(1, round((wide * a.rows) / a.width));
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

const LETTERS = 13; // px that a number needs

/** The hue of a sequence on the present ground; they come again, and rows name their sequences. */
export function hueOf(d: CacheData, sequence: number, inks: Inks): string {
  const hues = d.owners!.hues[inks.dark ? 1 : 0];
  return hues[sequence % hues.length];
}

/** A box of rows: a band for each sequence, over it the mark of the state, around it a border that is dashed where cell and row disagree. */
export function ownerBox(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, sequences: number[], state: string, x: number, y: number, w: number, h: number, border = true): void {
  const how = d.owners!.states.find((one) => one.name === state);
  context.fillStyle = inks.colour("pane");
  context.fillRect(x, y, w, h);
  // what is ahead of its data is pale: there is a cell, and no key
  context.globalAlpha = how?.mark === "dots" ? 0.16 : 0.5;
  sequences.forEach((one, i) => {
    context.fillStyle = hueOf(d, one, inks);
    context.fillRect(x, y + (h * i) / sequences.length, w, h / sequences.length);
  });
  context.globalAlpha = 1;
  if (how?.mark) {
    context.fillStyle = inks.pattern(how.mark, sequences.length ? "ink" : "soft") ?? "transparent";
    context.globalAlpha = 0.65;
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
  }
  if (!border) return;
  context.strokeStyle = sequences.length ? hueOf(d, sequences[0], inks) : inks.colour("soft");
  context.lineWidth = Math.min(1.5, w / 3, h / 3);
  context.setLineDash(how?.dashed ? [3, 2] : []);
  context.strokeRect(x + 0.75, y + 0.75, Math.max(0.5, w - 1.5), Math.max(0.5, h - 1.5));
  context.setLineDash([]);
}

/** All rows of a stream after a run; each with the numbers of its sequences where there is room. */
export function drawOwners(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, stream: number, run: number, axis: Axis, y: number, h: number): void {
  const [from, to] = ownedOf(d, stream, run);
  const one = axis.width / axis.rows;
  for (let i = from; i < to; i++) {
    const { start, stop, of, table } = d.owners!;
    const first = Math.max(start[i], axis.first);
    const last = Math.min(stop[i], axis.first + axis.rows);
    if (first >= last) continue;
    const [sequences, state] = table[of[i]];
    const apart = one >= 6 && h >= 6;
    for (let row = first; row < last; row += apart ? 1 : last - first) {
      const x = xOf(axis, row);
      const wide = Math.max(xOf(axis, apart ? row + 1 : last) - x - (apart ? 1 : 0), 1.5);
      ownerBox(context, inks, d, sequences, state, x, y, wide, h, apart);
      if (!sequences.length || wide < LETTERS || h < LETTERS) continue;
      context.font = `10.5px ${inks.family}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      const text = sequences.join(",");
      const room = context.measureText(text).width;
      if (room > wide - 2) continue;
      context.fillStyle = inks.colour("pane");
      if (state) context.fillRect(x + wide / 2 - room / 2 - 2, y + h / 2 - 6, room + 4, 12);
      context.fillStyle = inks.colour("ink");
      context.fillText(text, x + wide / 2, y + h / 2 + 0.5);
    }
  }
}
