// The cells of the matrix of layers on a canvas: thousands of them cost one drawing.
import { Inks, sized } from "./looks.js";
import { isOdd, type Cell, type RoleRow } from "./rolematrix.js";

export const ROW = 18; // px; the style sheet says the same
export const CELL = 16;

export interface Picture {
  rows: RoleRow[]; columns: number; size: number; colour: "reason" | "decision";
  at: { row: number; column: number };
  here: (cell: Cell, column: number) => boolean; // the step at the cursor
}

/** Reasons that have a hue of their own; the others share one. */
const HUES: Record<string, string> = {
  NO_CAPACITY: "view", NOT_LAST_USE: "missed", ALIASED: "accent", NOT_CONTIGUOUS: "foreign", BORROWED_INPUT: "accent", POLICY: "soft",
  "in place": "inplace", "called in place": "elsewhere", view: "view", missed: "missed", "new memory": "soft", "": "none",
};

export function hueOf(name: string): string {
  return HUES[name] ?? "edge";
}

function decision(cell: Cell): string {
  if (cell.elsewhere && cell.elsewhere >= cell.missed) return "called in place";
  if (cell.missed) return "missed";
  return cell.inPlace ? "in place" : cell.views ? "view" : "new memory";
}

export function drawCells(canvas: HTMLCanvasElement, host: HTMLElement, { rows, columns, size, colour, at, here }: Picture): void {
  const inks = new Inks(host);
  canvas.style.width = `${columns * size}px`;
  const context = sized(canvas, columns * size, rows.length * ROW, inks.ratio);
  if (!context) return;
  const most = Math.max(1, ...rows.flatMap((row) => row.cells.map((cell) => cell?.bytes ?? 0)));
  rows.forEach((row, y) => row.cells.forEach((cell, x) => {
    if (!cell) return;
    const [left, top, w, h] = [x * size + 1, y * ROW + 2, size - 2, ROW - 4];
    const key = colour === "decision" ? decision(cell) : cell.codes[0] ?? "";
    const plain = colour === "reason" && !cell.missed;
    if (plain) {
      context.strokeStyle = inks.colour("--kv-edge");
      context.lineWidth = 1;
      context.strokeRect(left + w / 2 - 2, top + h / 2 - 2, 4, 4);
    } else {
      context.globalAlpha = colour === "decision" ? 0.75 : 0.35 + 0.65 * Math.sqrt(cell.bytes / most);
      context.fillStyle = inks.colour(`--kv-${hueOf(key)}`);
      context.fillRect(left, top, w, h);
      context.globalAlpha = 1;
    }
    if (isOdd(row, x)) outline(context, inks.colour("--kv-ink"), 1.5, [2, 2], left, top, w, h);
    if (here(cell, x)) outline(context, inks.colour("--kv-accent"), 2, [], left, top, w, h);
  }));
  if (rows[at.row]) outline(context, inks.colour("--kv-ink"), 2, [], at.column * size + 1, at.row * ROW + 1, size - 2, ROW - 2);
}

function outline(context: CanvasRenderingContext2D, ink: string, line: number, dash: number[], x: number, y: number, w: number, h: number): void {
  context.strokeStyle = ink;
  context.lineWidth = line;
  context.setLineDash(dash);
  context.strokeRect(x + line / 2, y + line / 2, w - line, h - line);
  context.setLineDash([]);
}
