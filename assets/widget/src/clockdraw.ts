// Paints lanes and bars on a canvas: bands of runs, ops, lives of storages, arrows of what moved from one space to another.
import type { Inks } from "./canvas.js";
import { heldAt, place, ROW, xAt, type Bar, type Box, type Clock, type ClockView, type Held, type Move } from "./clockdata.js";
import { bytes, plural } from "./format.js";

const LEAST = 26; // px in which a text is of use
const FONT = "11px";

function write(brush: CanvasRenderingContext2D, { ruler }: Inks, text: string, x: number, y: number, w: number, width: number): void {
  const left = Math.max(4, x + 4);
  const room = Math.min(width, x + w) - left - 3;
  if (room >= LEAST) brush.fillText(ruler.fit(text, FONT, room), left, y);
}

/** What stays while the cursor moves: bars, bytes held, arrows, refused frees. Returns how many bars are drawn. */
export function paintBase(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView): number {
  begin(brush, inks, v);
  let drawn = 0;
  c.lanes.forEach((lane, i) => {
    const box = v.boxes[i];
    brush.fillStyle = inks.colour("ground");
    brush.fillRect(0, box.top - 3, v.width, box.foot - box.top + 4);
    if (lane.held) strip(brush, inks, v, box, lane.held);
    const seen = lane.bars.filter((bar) => bar.end >= v.from && bar.start <= v.to);
    drawn += seen.length;
    for (const bar of seen.sort((a, b) => a.row - b.row)) one(brush, inks, v, i, bar, false);
    if (lane.rest) {
      brush.fillStyle = inks.colour("soft");
      brush.fillText(`and ${plural(lane.rest, lane.kind === "space" ? "smaller tensor" : "op")}`, 4, box.foot - ROW / 2 - 1);
    }
  });
  for (const move of c.moves) if (move.at >= v.from && move.at <= v.to) arrow(brush, inks, c, v, move, false);
  for (const { storage, at } of c.refused) {
    const [lane, k] = c.bar.get(storage) ?? [-1, 0];
    if (lane < 0) continue;
    const r = place(v, lane, c.lanes[lane].bars[k]);
    const x = xAt(v, at);
    brush.strokeStyle = inks.colour("missed");
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

/** What changes with the cursor: bars that are alive, what is chosen. `lit`: storages that are chosen or touched. `now`: the time of the cursor. */
export function paintOver(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView, lit: ReadonlySet<number>, chosen: Bar | null, now: number): void {
  begin(brush, inks, v);
  c.lanes.forEach((lane, i) => {
    if (lane.held) {
      brush.fillStyle = inks.colour("ink");
      write(brush, inks, heldText(lane.held, now), 0, v.boxes[i].top + 6, v.width, v.width);
    }
    for (const bar of lane.bars) {
      const alive = (bar.kind === "op" ? bar.start < now : bar.start <= now) && bar.end >= now;
      if (bar.kind === "run" || bar.end < v.from || bar.start > v.to || !(alive || bar === chosen)) continue;
      if (alive) one(brush, inks, v, i, bar, true);
      if (bar !== chosen && !lit.has(bar.storage)) continue;
      const r = place(v, i, bar);
      brush.strokeStyle = inks.colour("ink");
      brush.lineWidth = bar === chosen ? 2.4 : 1.4;
      brush.strokeRect(r.x - 0.5, r.y - 0.5, r.w + 1, r.h + 1);
    }
  });
  for (const move of c.moves) if (move.at >= v.from && move.at <= v.to && (lit.has(move.from) || lit.has(move.to))) arrow(brush, inks, c, v, move, true);
}

function begin(brush: CanvasRenderingContext2D, inks: Inks, v: ClockView): void {
  brush.clearRect(0, 0, v.width, v.height);
  brush.font = `${FONT} ${inks.family}`;
  brush.textBaseline = "middle";
}

function heldText(held: Held, now: number): string {
  const room = held.room ? ` of ${bytes(held.room)}${held.banks > 1 ? ` in ${held.banks} banks` : ""}` : "";
  return `held ${bytes(heldAt(held, now))}, at most ${bytes(held.most)}${room}`;
}

/** Bytes that are held in a space over time, up to the most of them. */
function strip(brush: CanvasRenderingContext2D, inks: Inks, v: ClockView, box: Box, held: Held): void {
  const foot = box.top + box.strip - 4;
  const tall = box.strip - 18;
  const y = (at: number) => foot - (tall * at) / (held.most || 1);
  brush.beginPath();
  brush.moveTo(0, foot);
  let last = 0;
  held.at.forEach((at, i) => {
    const x = Math.max(0, Math.min(v.width, xAt(v, at)));
    brush.lineTo(x, y(last));
    brush.lineTo(x, y((last = held.bytes[i])));
  });
  brush.lineTo(v.width, y(last));
  brush.lineTo(v.width, foot);
  brush.fillStyle = inks.mixed("accent", 0.22);
  brush.fill();
  brush.strokeStyle = inks.colour("accent");
  brush.lineWidth = 1;
  brush.stroke();
}

function one(brush: CanvasRenderingContext2D, inks: Inks, v: ClockView, lane: number, bar: Bar, alive: boolean): void {
  const r = place(v, lane, bar);
  if (bar.kind === "run") {
    brush.strokeStyle = inks.colour("accent");
    brush.lineWidth = 1;
    brush.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, r.h - 1);
    return;
  }
  const hue = bar.kind === "op" ? "accent" : bar.kind === "weights" ? "soft" : "view";
  brush.fillStyle = alive ? inks.colour(hue) : inks.mixed(hue, 0.32);
  brush.fillRect(r.x, r.y, r.w, r.h);
  brush.fillStyle = alive ? inks.colour("on-accent") : inks.colour("ink");
  if (r.w > LEAST) write(brush, inks, bar.text, r.x, r.y + r.h / 2 + 0.5, r.w, v.width);
  if (!bar.open) return;
  brush.setLineDash([3, 2]);
  brush.strokeStyle = inks.colour("missed");
  brush.lineWidth = 1.5;
  brush.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, r.h - 1);
  brush.setLineDash([]);
}

/** An arrow from where bytes lay to where they went. */
function arrow(brush: CanvasRenderingContext2D, inks: Inks, c: Clock, v: ClockView, move: Move, strong: boolean): void {
  const ends = [c.bar.get(move.from), c.bar.get(move.to)];
  if (!ends[0] || !ends[1]) return;
  const [a, b] = ends.map((end) => place(v, end![0], c.lanes[end![0]].bars[end![1]]));
  const x = xAt(v, move.at);
  const down = b.y > a.y;
  const [from, to] = down ? [a.y + a.h, b.y] : [a.y, b.y + b.h];
  brush.strokeStyle = brush.fillStyle = inks.colour(strong ? "ink" : "edge");
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
