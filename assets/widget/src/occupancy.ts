// Runs × rows of one cache, a line for every run: how it grows, where its window is, and when it begins again.
import { cellsOf, type CacheData } from "./cachedata.js";
import { Inks, sized } from "./canvas.js";
import { el, on, onDrag } from "./dom.js";
import { bytes } from "./format.js";
import { above, box, drawAxis, drawOwners, LEFT, rowAt, xOf, type Axis } from "./looks.js";

const NAMES = 15; // px under the lines
const LINE = 12; // px of a line at most
const TALL = 12; // px of a text on a line
const OWNED = 16; // the same where rows name their sequences

/** `moved`: runs in which rows of the past went to another place. */
export interface History { d: CacheData; stream: number; run: number; axis: Axis; room: number; moved: { run: number; bytes: number }[] }

export class Occupancy {
  readonly root: HTMLElement;
  #canvas = el("canvas", { "data-kv": "occupancy" });
  #shown: History | null = null;
  #pitch = 1;
  #lines = el("canvas"); // all but the mark at the present run, which is what changes while runs are scrubbed
  #drawn = "";
  #inks: Inks | null = null;

  constructor(go: (run: number, drag: boolean) => void, point: (run: number, row: number) => void, signal: AbortSignal) {
    this.root = el("div.kv-occupancy", { "aria-hidden": "true" }, this.#canvas);
    const run = (event: PointerEvent) => Math.max(0, Math.min(Math.floor(event.offsetY / this.#pitch), (this.#shown?.d.runs.length ?? 1) - 1));
    onDrag(this.#canvas, (event, moving) => go(run(event), moving), signal);
    on(this.#canvas, "pointermove", (event) => {
      if (this.#shown) point(run(event), rowAt(this.#shown.axis, event.offsetX));
    }, signal);
    on(this.#canvas, "pointerleave", () => point(-1, -1), signal);
  }

  draw(history: History, inks: Inks): void {
    const fresh = this.#shown?.d !== history.d || this.#inks !== inks;
    this.#shown = history;
    this.#inks = inks;
    const { d, stream, run, axis, room, moved } = history;
    const n = d.runs.length;
    this.#pitch = Math.min(d.owners ? OWNED : LINE, room / n);
    const high = Math.max(1, Math.ceil(n * this.#pitch));
    const key = `${stream} ${axis.first} ${axis.rows} ${axis.width} ${room}`;
    if (fresh || key !== this.#drawn) this.#draw(history, high, inks);
    this.#drawn = key;
    const context = sized(this.#canvas, LEFT + axis.width + 2, high + NAMES, inks.ratio);
    if (!context) return;
    context.drawImage(this.#lines, 0, 0, LEFT + axis.width + 2, high + NAMES);
    const y = (run + 0.5) * this.#pitch;
    context.strokeStyle = context.fillStyle = inks.colour("ink");
    context.lineWidth = 1.5;
    context.strokeRect(LEFT, y - Math.max(this.#pitch, 3) / 2, axis.width, Math.max(this.#pitch, 3));
    context.beginPath();
    context.moveTo(LEFT - 1, y);
    context.lineTo(LEFT - 8, y - 4);
    context.lineTo(LEFT - 8, y + 4);
    context.fill();
    this.#moves(context, inks, moved);
  }

  #draw({ d, stream, axis }: History, high: number, inks: Inks): void {
    const n = d.runs.length;
    const context = sized(this.#lines, LEFT + axis.width + 2, high + NAMES, inks.ratio);
    if (!context) return;
    const gap = this.#pitch >= 4 ? 1 : 0;
    for (const state of [...d.states].sort(above)) {
      for (let r = 0; r < n; r++) {
        const [from, to] = cellsOf(d, stream, r);
        for (let c = from; c < to; c++) {
          if (d.states[d.state[c]] !== state || d.stop[c] <= axis.first || d.start[c] >= axis.first + axis.rows) continue;
          const x = xOf(axis, d.start[c]);
          const wide = Math.max(xOf(axis, d.stop[c]) - x, state === "reserved" ? 0 : 1.5);
          box(context, inks, state, x, r * this.#pitch, wide, Math.max(this.#pitch - gap, 0.7), false);
        }
      }
    }
    if (d.owners) for (let r = 0; r < n; r++) drawOwners(context, inks, d, stream, r, axis, r * this.#pitch, Math.max(this.#pitch - gap, 0.7));
    context.strokeStyle = inks.colour("line");
    context.lineWidth = 1;
    context.strokeRect(LEFT - 0.5, -0.5, axis.width + 1, high + 1);
    this.#names(context, inks, n);
    drawAxis(context, axis, high + 3, inks.colour("soft"), inks.family);
  }

  /** What a move cost, at the run of the move and over the rows that were moved: a mark, and the bytes unless they would lie on those above. */
  #moves(context: CanvasRenderingContext2D, inks: Inks, moved: History["moved"]): void {
    context.font = `10.5px ${inks.family}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    let free = -Infinity;
    const said: string[] = [];
    for (const { run, bytes: amount } of moved) {
      const y = (run + 0.5) * this.#pitch;
      context.fillStyle = inks.colour("missed");
      context.fillRect(LEFT, y - Math.max(this.#pitch - 1, 1) / 2, 4, Math.max(this.#pitch - 1, 1));
      if (y < free) continue;
      const text = `moved here: ${bytes(amount)}`;
      const at = Math.max(TALL / 2, y);
      const wide = context.measureText(text).width;
      context.fillStyle = inks.colour("pane");
      context.fillRect(LEFT + 4, at - TALL / 2, wide + 8, TALL);
      context.fillStyle = inks.colour("missed-ink");
      context.fillText(text, LEFT + 8, at);
      free = at + TALL;
      said.push(`${run}: ${text}`);
    }
    this.#canvas.dataset.moves = said.join("; ");
  }

  #names(context: CanvasRenderingContext2D, inks: Inks, n: number): void {
    let step = 1;
    for (let i = 0; step * this.#pitch < 13; i++) step *= [2, 2.5, 2][i % 3];
    context.font = `10.5px ${inks.family}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = inks.colour("soft");
    for (let run = 0; run < n; run += step) {
      const y = Math.max(6, (run + 0.5) * this.#pitch);
      context.fillText(run === 0 ? "run 0" : String(run), LEFT - 10, y);
    }
  }
}
