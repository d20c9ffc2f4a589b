// Everything that is recorded of one value: its numbers, its histogram, and a picture of one of its heads.
import { el, on } from "./dom.js";
import { count } from "./format.js";
import { sized } from "./looks.js";
import { bars, numeral, oddities } from "./valuecard.js";
import type { Picture, ValueCodes, ValueData } from "./valuedata.js";

const LARGE = 168; // px of the longer side of a picture, at most
const CELL = 14; // px of a cell, at most

/** Which axes a picture shows, and of how many numbers a cell is the mean. */
export function pictureText({ down, across, axis, heads, each, rows, columns }: Picture, head: number): string {
  const cell = each[0] * each[1];
  const mean = cell > 1 ? `, a cell is the mean of ${down < 0 ? count(cell) : `${each[0]} × ${each[1]}`}` : "";
  if (down < 0) return `axis ${across}, read row by row${mean}`;
  return `${heads > 1 ? `entry ${head} of ${heads} on axis ${axis}; ` : ""}axis ${down} down, axis ${across} across: ${rows} × ${columns} cells${mean}`;
}

/** The number that a cell stands for; in words where it is none. */
export function cellText(p: Picture, codes: ValueCodes, at: number): string {
  const shade = p.cells[at];
  const words: Record<number, string> = { [codes.empty]: "", [codes.below]: "−∞", [codes.above]: "+∞", [codes.nan]: "NaN" };
  if (shade in words) return words[shade];
  return `about ${numeral(p.low + (shade / codes.shades) * (p.high - p.low))}`;
}

/** A colour for every shade: from the colour of what is below zero, by the ground at zero, to that of what is above. */
function inkOf(p: Picture, codes: ValueCodes, colour: (name: string) => string): (shade: number) => string {
  const far = Math.max(Math.abs(p.low), Math.abs(p.high), 1e-300);
  const signed = p.low < 0 && p.high > 0;
  return (shade) => {
    if (shade === codes.nan) return colour("--kv-view");
    if (shade === codes.above || shade === codes.below) return colour("--kv-edge");
    const v = p.low + (shade / codes.shades) * (p.high - p.low);
    const share = signed ? Math.abs(v) / far : p.high > p.low ? shade / codes.shades : 0.5;
    const full = signed && v < 0 ? "--kv-missed" : "--kv-accent";
    return `color-mix(in srgb, ${colour(full)} ${Math.round(8 + 92 * share)}%, ${colour("--kv-pane")})`;
  };
}

export function drawPicture(canvas: HTMLCanvasElement, p: Picture, codes: ValueCodes): void {
  const one = Math.max(3, Math.min(CELL, Math.floor(LARGE / Math.max(p.rows, p.columns))));
  const style = getComputedStyle(canvas);
  const context = sized(canvas, p.columns * one, p.rows * one, globalThis.devicePixelRatio || 1);
  canvas.style.width = `${p.columns * one}px`;
  canvas.style.height = "auto"; // narrower where there is no room
  if (!context) return;
  const known = new Map<number, string>();
  const ink = inkOf(p, codes, (name) => style.getPropertyValue(name).trim() || "#888");
  p.cells.forEach((shade, at) => {
    if (shade === codes.empty) return;
    if (!known.has(shade)) known.set(shade, ink(shade));
    const [x, y] = [(at % p.columns) * one, Math.floor(at / p.columns) * one];
    context.fillStyle = known.get(shade)!;
    context.fillRect(x, y, one, one);
    if (shade < codes.below) return;
    // a stroke, so that it is not told by colour alone
    context.strokeStyle = style.getPropertyValue("--kv-pane").trim();
    context.beginPath();
    context.moveTo(x + 1, y + one - 1);
    context.lineTo(x + one - 1, y + 1);
    context.stroke();
  });
}

/** `redraw` is called when another head was chosen; the canvas can be drawn only once it is on the page: call `draw`. */
export interface Full { root: HTMLElement; draw(): void }

export function fullCard(v: ValueData, entry: number, title: (Node | string)[], head: number, choose: (head: number) => void, signal: AbortSignal): Full {
  const [low, high, mean] = v.numbers.subarray(3 * entry, 3 * entry + 3);
  const odd = oddities(v, entry);
  const root = el("div.kv-value-card", {}, el("p.kv-value-title", {}, ...title));
  const line = (name: string, told: string) => [el("dt", {}, name), el("dd", {}, told)];
  const facts = el("div.kv-value-facts");
  root.append(facts);
  facts.append(el("dl.kv-value-numbers", { "data-kv": "value-numbers" },
    ...(Number.isNaN(low) ? [] : [...line("min", numeral(low)), ...line("max", numeral(high)), ...line("mean", numeral(mean))]),
    ...line("not finite", odd || "none")));
  const histogram = v.histogram.get(entry);
  if (histogram && !Number.isNaN(low)) {
    const counts = Array.from(histogram);
    facts.append(el("figure.kv-value-histogram", { role: "img", "aria-label": `Histogram from ${numeral(low)} to ${numeral(high)}: ${counts.join(", ")}`, title: `how many numbers in ${counts.length} equal parts: ${counts.map(count).join(" ")}` },
      bars(histogram, 208, 44), el("figcaption", {}, el("span", {}, low === high ? "" : numeral(low)), el("span", {}, low === high ? `all ${numeral(low)}` : ""), el("span", {}, low === high ? "" : numeral(high)))));
  } else if (!histogram) facts.append(el("p.kv-hint", {}, "Its histogram is beyond the budget."));
  const pictures = v.pictures.get(entry) ?? [];
  const chosen = Math.min(head, pictures.length - 1);
  const shown = pictures[chosen];
  if (!shown) return { root, draw: () => {} };
  const canvas = el("canvas", { "data-kv": "value-picture", role: "img", "aria-label": pictureText(shown, chosen) });
  const tip = el("p.kv-hint", {}, pictureText(shown, chosen));
  const tools = el("span.kv-tools");
  if (pictures.length > 1) {
    const select = el("select", { "aria-label": "Head", "data-kv": "value-head" }, ...pictures.map((_, i) => el("option", { value: i, selected: i === chosen }, `head ${i}`)));
    on(select, "change", () => choose(Number(select.value)), signal);
    tools.append(select, ` of ${shown.heads}`);
  }
  root.append(el("figure.kv-value-picture", {}, canvas, el("figcaption", {}, tools, tip)));
  on(canvas, "pointermove", (event) => {
    const one = canvas.clientWidth / shown.columns;
    const [x, y] = [Math.floor(event.offsetX / one), Math.floor(event.offsetY / one)];
    if (x < 0 || y < 0 || x >= shown.columns || y >= shown.rows) return;
    tip.textContent = `row ${y}, column ${x}: ${cellText(shown, v.codes, y * shown.columns + x) || "nothing"}`;
  }, signal);
  on(canvas, "pointerleave", () => (tip.textContent = pictureText(shown, chosen)), signal);
  return { root, draw: () => drawPicture(canvas, shown, v.codes) };
}
