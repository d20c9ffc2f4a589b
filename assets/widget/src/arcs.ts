// Words over the rows of a cache, and arcs from the word that asks to the words that it attends to, wide where it does more.
import type { Inks } from "./looks.js";
import { LEFT, xOf, type Axis } from "./rowaxis.js";

const MOST = 48; // arcs
const SHARE = 0.02; // of the largest weight: what is less has no arc
const SLANT = Math.PI / 3;

/** `high`: px that the words take; `every`: rows from one to the next, 0 = there is no room; `slanted`: they stand over narrow columns. */
export interface WordRow { high: number; every: number; slanted: boolean }

/** How the words of these rows are put: upright where each fits over its column. */
export function wordRow(axis: Axis, words: string[], wide: (text: string) => number): WordRow {
  const one = axis.width / axis.rows;
  if (!words.some(Boolean)) return { high: 0, every: 0, slanted: false };
  const longest = Math.max(...words.map(wide));
  if (longest + 2 <= one) return { high: 15, every: 1, slanted: false };
  return { high: Math.min(44, Math.ceil(longest * Math.sin(SLANT)) + 10), every: Math.max(1, Math.ceil(12 / one)), slanted: true };
}

export function drawWords(context: CanvasRenderingContext2D, inks: Inks, axis: Axis, words: string[], { every, slanted }: WordRow, bottom: number, now: number): void {
  if (!every) return;
  context.textBaseline = slanted ? "middle" : "alphabetic";
  context.textAlign = slanted ? "left" : "center";
  const half = axis.width / axis.rows / 2;
  words.forEach((word, i) => {
    const row = axis.first + i;
    // the word that asks is always there; its neighbours give way where there is no room
    if (!word || (row !== now && (i % every || Math.abs(row - now) < every))) return;
    context.font = `${row === now ? "bold " : ""}11px ${inks.family}`;
    context.fillStyle = inks.colour(row === now ? "--kv-accent" : "--kv-ink");
    context.save();
    context.translate(xOf(axis, row) + half, bottom - 4);
    if (slanted) context.rotate(-SLANT);
    context.fillText(word.length > 9 ? `${word.slice(0, 8)}…` : word, 0, 0);
    context.restore();
  });
}

export interface Arc { row: number; weight: number }

/** The rows that get an arc, the strongest last so that they lie on top. */
export function arcsOf(weights: number[], now: number, axis: Axis): Arc[] {
  const seen = weights.map((weight, row) => ({ row, weight })).filter(({ row }) => row >= axis.first && row < axis.first + axis.rows && row !== now);
  const most = Math.max(0, ...weights);
  return seen.filter(({ weight }) => weight > 0 && weight >= most * SHARE).sort((a, b) => a.weight - b.weight).slice(-MOST);
}

/** Arcs in the strip from `top` to `bottom`. */
export function drawArcs(context: CanvasRenderingContext2D, inks: Inks, axis: Axis, weights: number[], now: number, top: number, bottom: number): void {
  if (now < axis.first || now >= axis.first + axis.rows) return;
  const half = axis.width / axis.rows / 2;
  const most = Math.max(1e-9, ...weights);
  const from = xOf(axis, now) + half;
  const wide = Math.max(1, from - LEFT, axis.width + LEFT - from);
  context.strokeStyle = inks.colour("--kv-accent");
  context.lineCap = "round";
  for (const { row, weight } of arcsOf(weights, now, axis)) {
    const to = xOf(axis, row) + half;
    const high = (bottom - top) * (0.25 + 0.75 * Math.sqrt(Math.abs(to - from) / wide));
    context.globalAlpha = 0.25 + 0.7 * (weight / most);
    context.lineWidth = 0.75 + 4.25 * (weight / most);
    context.beginPath();
    context.moveTo(from, bottom);
    // a cubic curve rises to three quarters of its handles
    context.bezierCurveTo(from, bottom - high * 4 / 3, to, bottom - high * 4 / 3, to, bottom);
    context.stroke();
  }
  context.globalAlpha = 1;
  context.fillStyle = inks.colour("--kv-accent");
  context.beginPath();
  context.arc(from, bottom, 3, 0, 7);
  context.fill();
}
