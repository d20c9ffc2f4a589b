// How cache rows are drawn: axis, states, and owning sequences. Each has its own fill, pattern and border, since colour alone
// carries no meaning.
import { ownedOf, type CacheData } from "./cachedata.js";
import { filled, label, outline, type Inks, type Pattern } from "./canvas.js";
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

/** The look of a state; an unknown one is plain. */
export function lookOf(state: string): Look { return LOOKS[state] ?? { about: state, fill: "pane", mark: "", ink: "ink", dash: [], line: 1 }; }

/** Sort key of drawing: unknown states first. */
export function above(a: string, b: string): number { return NAMES.indexOf(a) - NAMES.indexOf(b); }

/** A box with the fill and pattern of a state. */
export function box(context: CanvasRenderingContext2D, inks: Inks, state: string, x: number, y: number, w: number, h: number, border = true): void {
  const look = lookOf(state);
  filled(context, inks.colour(look.fill), x, y, w, h);
  const pattern = look.mark ? inks.pattern(look.mark, look.ink) : null;
  if (pattern) filled(context, pattern, x, y, w, h);
  if (border) outline(context, inks.colour(look.ink), look.line, look.dash, x, y, w, h);
}

export const LEFT = 46; // px for the names of heads and runs
const GAP = 8; // px between numbers
export const CLOSE = 64; // rows of a close-up

export const MARGIN = 96; // px right of the rows, for what is said of a run

/** `margin`: px right of the rows. */
export interface Axis { first: number; rows: number; width: number; margin?: number }

/** The width of a picture of these rows, names and margin included. */
export function wideOf(a: Axis): number { return LEFT + a.width + (a.margin ?? 0) + 2; }

/** All rows, or `CLOSE` rows around one. */
export function axisOf(most: number, width: number, around: number | null, margin = 0): Axis {
  const rows = around === null ? most : Math.min(CLOSE, most);
  const first = around === null ? 0 : Math.max(0, Math.min(around - (rows >> 1), most - rows));
  return { first, rows: Math.max(1, rows), width: Math.max(1, width - LEFT - margin - 2), margin };
}

export function xOf(a: Axis, row: number): number {
  return LEFT + (Math.max(0, Math.min(row - a.first, a.rows)) / a.rows) * a.width;
}

/** The row under a pixel, or -1. */
export function rowAt(a: Axis, x: number): number {
  const row = Math.floor(((x - LEFT) / a.width) * a.rows);
  return row < 0 || row >= a.rows ? -1 : a.first + row;
}

/** Rows to label, so that their numbers do not touch. */
export function ticks(a: Axis): number[] {
  const wide = 10 + 7 * String(a.first + a.rows).length;
  const step = Math.max(1, round((wide * a.rows) / a.width));
  const found = [];
  for (let row = Math.ceil(a.first / step) * step; row < a.first + a.rows; row += step) found.push(row);
  return found;
}

/** Draw the labels. The last one is moved inside; a label that would touch another is left out. */
export function drawAxis(context: CanvasRenderingContext2D, inks: Inks, a: Axis, y: number): void {
  context.font = `10.5px ${inks.family}`;
  const half = a.width / a.rows / 2;
  let end = -Infinity;
  for (const row of ticks(a)) {
    const text = String(row);
    const wide = context.measureText(text).width;
    const x = Math.max(LEFT, Math.min(xOf(a, row) + (half > 4 ? half - wide / 2 : -wide / 2 + half), LEFT + a.width - wide));
    if (x < end + GAP) continue;
    label(context, inks, text, x, y, { size: 10.5, base: "top" });
    end = x + wide;
  }
}

const LETTERS = 13; // px that a number needs

/** The hue of a sequence in the present theme; hues repeat. */
export function hueOf(d: CacheData, sequence: number, inks: Inks): string {
  const hues = d.owners!.hues[inks.dark ? 1 : 0];
  return hues[sequence % hues.length];
}

/** A box of rows: a band for each sequence, the mark of the state, and a border, dashed if cell and row disagree. */
export function ownerBox(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, sequences: number[], state: string, x: number, y: number, w: number, h: number, border = true): void {
  const how = d.owners!.states.find((one) => one.name === state);
  filled(context, inks.colour("pane"), x, y, w, h);
  // cells ahead of their keys are pale
  context.globalAlpha = how?.mark === "dots" ? 0.16 : 0.5;
  sequences.forEach((one, i) => {
    filled(context, hueOf(d, one, inks), x, y + (h * i) / sequences.length, w, h / sequences.length);
  });
  context.globalAlpha = 1;
  if (how?.mark) {
    context.globalAlpha = 0.65;
    filled(context, inks.pattern(how.mark, sequences.length ? "ink" : "soft") ?? "transparent", x, y, w, h);
    context.globalAlpha = 1;
  }
  if (border) outline(context, sequences.length ? hueOf(d, sequences[0], inks) : inks.colour("soft"), 1.5, how?.dashed ? [3, 2] : [], x, y, w, h);
}

/** Draw all rows with owners after a run, with the numbers of sequences if there is room. */
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
      const text = sequences.join(",");
      context.font = `10.5px ${inks.family}`;
      const room = context.measureText(text).width;
      if (room > wide - 2) continue;
      if (state) filled(context, inks.colour("pane"), x + wide / 2 - room / 2 - 2, y + h / 2 - 6, room + 4, 12);
      label(context, inks, text, x + wide / 2, y + h / 2 + 0.5, { size: 10.5, ink: "ink", align: "center" });
    }
  }
}
