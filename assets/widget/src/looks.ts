// How the states of rows are drawn: each has its own fill, its own pattern and its own border, so none rests on colour.
import { ownedOf, type CacheData } from "./cachedata.js";

export interface Look { about: string; fill: string; mark: "" | "hatch" | "back" | "cross" | "dots"; ink: string; dash: number[]; line: number }

/** By the name that the payload has for a state, from what may be covered to what must be seen. */
const LOOKS: Record<string, Look> = {
  reserved: { about: "reserved, never written", fill: "--kv-line", mark: "", ink: "--kv-edge", dash: [1, 2], line: 1 },
  pending: { about: "empty: a later op of this run writes it", fill: "--kv-accent-pale", mark: "", ink: "--kv-accent", dash: [3, 2], line: 1.5 },
  valid: { about: "holds a token", fill: "--kv-view-mid", mark: "", ink: "--kv-view", dash: [], line: 1 },
  wrapped: { about: "holds a token of a later round", fill: "--kv-view-pale", mark: "dots", ink: "--kv-view", dash: [], line: 2 },
  outside: { about: "holds a token that attention no longer sees", fill: "--kv-done", mark: "cross", ink: "--kv-soft", dash: [3, 2], line: 1 },
  stale: { about: "stale: holds something, but no live token", fill: "--kv-missed-pale", mark: "hatch", ink: "--kv-missed", dash: [5, 2], line: 1.5 },
  written: { about: "written by this run", fill: "--kv-accent", mark: "", ink: "--kv-ink", dash: [], line: 2 },
};
const NAMES = Object.keys(LOOKS);

/** How a state is drawn; one that is not known here plainly, by its name. */
export function lookOf(state: string): Look {
  return LOOKS[state] ?? { about: state, fill: "--kv-pane", mark: "", ink: "--kv-ink", dash: [], line: 1 };
}

/** Which of two states is drawn first, as for `sort`; what is not known here before all others. */
export function above(a: string, b: string): number {
  return NAMES.indexOf(a) - NAMES.indexOf(b);
}

/** Colours and patterns of one look of the page; made anew when that changes. */
export class Inks {
  #known = new Map<string, string>();
  #patterns = new Map<string, CanvasPattern | null>();
  readonly family: string;
  readonly dark: boolean;
  #style: CSSStyleDeclaration;

  constructor(host: HTMLElement, readonly ratio = globalThis.devicePixelRatio || 1) {
    this.#style = getComputedStyle(host);
    this.dark = host.closest(".kvviz")?.getAttribute("data-theme") === "dark";
    this.family = this.#style.fontFamily || "sans-serif";
  }

  colour(name: string): string {
    let value = this.#known.get(name);
    if (value === undefined) this.#known.set(name, (value = this.#style.getPropertyValue(name).trim() || "#888"));
    return value;
  }

  /** A tile of 6 px with the mark of a state. */
  pattern(look: Look): CanvasPattern | null {
    let found = this.#patterns.get(look.mark + look.ink);
    if (found !== undefined) return found;
    const tile = document.createElement("canvas");
    const size = (tile.width = tile.height = Math.round(6 * this.ratio));
    const context = tile.getContext("2d")!;
    context.strokeStyle = context.fillStyle = this.colour(look.ink);
    context.lineWidth = this.ratio * (look.mark === "hatch" || look.mark === "back" ? 1.5 : 0.9);
    context.beginPath();
    // drawn beyond the tile, so that lines go on in the next one
    for (const at of look.mark === "dots" ? [] : [-size, 0, size]) {
      if (look.mark !== "back") {
        context.moveTo(at - 2, size + 2);
        context.lineTo(at + size + 2, -2);
      }
      if (look.mark !== "cross" && look.mark !== "back") continue;
      context.moveTo(at - 2, -2);
      context.lineTo(at + size + 2, size + 2);
    }
    if (look.mark === "dots") context.arc(size / 2, size / 2, 1.3 * this.ratio, 0, 7);
    if (look.mark === "dots") context.fill();
    else context.stroke();
    found = context.createPattern(tile, "repeat");
    found?.setTransform(new DOMMatrix().scale(1 / this.ratio));
    this.#patterns.set(look.mark + look.ink, found);
    return found;
  }
}

/** A box with fill and pattern of a state; `border` where there is room for one. */
export function box(context: CanvasRenderingContext2D, inks: Inks, state: string, x: number, y: number, w: number, h: number, border = true): void {
  const look = lookOf(state);
  context.fillStyle = inks.colour(look.fill);
  context.fillRect(x, y, w, h);
  const pattern = look.mark ? inks.pattern(look) : null;
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

/** Sharp on any screen: the canvas gets as many pixels as the screen has there. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): CanvasRenderingContext2D | null {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context?.scale(ratio, ratio);
  return context;
}

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

const LETTERS = 13; // px that a number needs

/** The hue of a sequence on the present ground; they come again, and rows name their sequences. */
export function hueOf(d: CacheData, sequence: number, inks: Inks): string {
  const hues = d.owners!.hues[inks.dark ? 1 : 0];
  return hues[sequence % hues.length];
}

/** A box of rows: a band for each sequence, over it the mark of the state, around it a border that is dashed where cell and row disagree. */
export function ownerBox(context: CanvasRenderingContext2D, inks: Inks, d: CacheData, sequences: number[], state: string, x: number, y: number, w: number, h: number, border = true): void {
  const how = d.owners!.states.find((one) => one.name === state);
  context.fillStyle = inks.colour("--kv-pane");
  context.fillRect(x, y, w, h);
  // what is ahead of its data is pale: there is a cell, and no key
  context.globalAlpha = how?.mark === "dots" ? 0.16 : 0.5;
  sequences.forEach((one, i) => {
    context.fillStyle = hueOf(d, one, inks);
    context.fillRect(x, y + (h * i) / sequences.length, w, h / sequences.length);
  });
  context.globalAlpha = 1;
  if (how?.mark) {
    const look: Look = { about: "", fill: "", mark: how.mark, ink: sequences.length ? "--kv-ink" : "--kv-soft", dash: [], line: 1 };
    context.fillStyle = inks.pattern(look) ?? "transparent";
    context.globalAlpha = 0.65;
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
  }
  if (!border) return;
  context.strokeStyle = sequences.length ? hueOf(d, sequences[0], inks) : inks.colour("--kv-soft");
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
      context.fillStyle = inks.colour("--kv-pane");
      if (state) context.fillRect(x + wide / 2 - room / 2 - 2, y + h / 2 - 6, room + 4, 12);
      context.fillStyle = inks.colour("--kv-ink");
      context.fillText(text, x + wide / 2, y + h / 2 + 0.5);
    }
  }
}
