// Rows of a cache that sequences share, in the hue of their sequence; what is wrong with them is a pattern over it.
import { ownedOf, type CacheData } from "./cachedata.js";
import { Inks, type Look } from "./looks.js";
import { xOf, type Axis } from "./rowaxis.js";

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
