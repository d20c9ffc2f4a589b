// Paints lanes and bars on a canvas: bands of runs, ops, lives of storages, arrows of what moved from one space to another.
import type { Bar, Clock } from "./clockdata.js";
import { place, ROW, xAt, type ClockView } from "./clockview.js";
import type { Palette } from "./mapcolours.js";

const LEAST = 26; // px in which a text is of use

function write(brush: CanvasRenderingContext2D, text: string, x: number, y: number, w: number, width: number): void {
  const left = Math.max(4, x + 4);
  const room = Math.min(width, x + w) - left - 3;
  if (room < LEAST) return;
  let shown = text;
  if (brush.measureText(shown).width > room) {
    shown = text.slice(0, Math.max(1, Math.floor((room / Math.max(1, brush.measureText(text).width)) * text.length) - 1)) + "…";
    if (shown.length < 4) return;
  }
  brush.fillText(shown, left, y);
}

/** `lit`: storages that are chosen or touched at the cursor. `now`: the time of the cursor. Returns how many bars are drawn. */
export function paint(brush: CanvasRenderingContext2D, palette: Palette, c: Clock, v: ClockView, lit: ReadonlySet<number>, chosen: Bar | null, now: number): number {
  const colour = (name: string) => palette.token(`--kv-${name}`);
  brush.clearRect(0, 0, v.width, v.height);
  brush.font = `11px ${palette.family}`;
  brush.textBaseline = "middle";
  let drawn = 0;
  c.lanes.forEach((lane, i) => {
    const box = v.boxes[i];
    brush.fillStyle = colour("ground");
    brush.fillRect(0, box.top - 3, v.width, box.foot - box.top + 4);
    const seen = lane.bars.filter((bar) => bar.end >= v.from && bar.start <= v.to);
    drawn += seen.length;
    for (const bar of [...seen].sort((a, b) => a.row - b.row)) one(brush, colour, palette, v, i, bar, lit, bar === chosen, now);
    if (lane.rest) {
      brush.fillStyle = colour("soft");
      const what = lane.kind === "space" ? "smaller tensors" : "ops";
      brush.fillText(`and ${lane.rest} ${what}`, 4, box.foot - ROW / 2 - 1);
    }
  });
  moves(brush, colour, c, v, lit);
  for (const { storage, at } of c.refused) {
    const [lane, k] = c.bar.get(storage) ?? [-1, 0];
    if (lane < 0) continue;
    const r = place(v, lane, c.lanes[lane].bars[k]);
    const x = xAt(v, at);
    brush.strokeStyle = colour("missed");
    brush.lineWidth = 2;
    brush.beginPath();
    for (const side of [-1, 1]) {
      brush.moveTo(x - 4, r.y + r.h / 2 - 4 * side);
      brush.lineTo(x + 4, r.y + r.h / 2 + 4 * side);
    }
    brush.stroke();
  }
  return drawn;
}

function one(brush: CanvasRenderingContext2D, colour: (name: string) => string, palette: Palette, v: ClockView, lane: number, bar: Bar, lit: ReadonlySet<number>, chosen: boolean, now: number): void {
  const r = place(v, lane, bar);
  const alive = (bar.kind === "op" ? bar.start < now : bar.start <= now) && bar.end >= now;
  if (bar.kind === "run") {
    brush.strokeStyle = colour("accent");
    brush.lineWidth = 1;
    brush.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, r.h - 1);
    return;
  }
  const hue = bar.kind === "op" ? "accent" : "view";
  brush.fillStyle = alive ? colour(hue) : palette.mixed(`--kv-${hue}`, 0.32);
  brush.fillRect(r.x, r.y, r.w, r.h);
  brush.fillStyle = alive ? colour("on-accent") : colour("ink");
  write(brush, bar.text, r.x, r.y + r.h / 2 + 0.5, r.w, v.width);
  if (bar.open) {
    brush.setLineDash([3, 2]);
    brush.strokeStyle = colour("missed");
    brush.lineWidth = 1.5;
    brush.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, r.h - 1);
    brush.setLineDash([]);
  }
  if (chosen || (bar.storage >= 0 && lit.has(bar.storage) && alive)) {
    brush.strokeStyle = colour("ink");
    brush.lineWidth = chosen ? 2.4 : 1.4;
    brush.strokeRect(r.x - 0.5, r.y - 0.5, r.w + 1, r.h + 1);
  }
}

/** Arrows from where bytes lay to where they went; thin where there are many. */
function moves(brush: CanvasRenderingContext2D, colour: (name: string) => string, c: Clock, v: ClockView, lit: ReadonlySet<number>): void {
  for (const move of c.moves) {
    if (move.at < v.from || move.at > v.to) continue;
    const ends = [c.bar.get(move.from), c.bar.get(move.to)];
    if (!ends[0] || !ends[1]) continue;
    const [a, b] = ends.map((end) => place(v, end![0], c.lanes[end![0]].bars[end![1]]));
    const x = xAt(v, move.at);
    const down = b.y > a.y;
    const [from, to] = down ? [a.y + a.h, b.y] : [a.y, b.y + b.h];
    const strong = lit.has(move.from) || lit.has(move.to);
    brush.strokeStyle = brush.fillStyle = colour(strong ? "ink" : "edge");
    brush.lineWidth = strong ? 1.8 : 1;
    brush.beginPath();
    brush.moveTo(x, from);
    brush.lineTo(x, to);
    brush.stroke();
    brush.beginPath();
    brush.moveTo(x, to);
    brush.lineTo(x - 3.5, to + (down ? -6 : 6));
    brush.lineTo(x + 3.5, to + (down ? -6 : 6));
    brush.fill();
  }
}
