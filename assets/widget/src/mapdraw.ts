// Fills the rectangles of the memory map, pixel by pixel: twenty thousand cost no more than some. What is thinner than a
// pixel is widened to one; those that fall on the same pixels are one.
import type { Layout } from "./mapbands.js";
import type { Trace } from "./replay.js";
import { xOf, yOf, type Sheet } from "./mapview.js";

/** A picture that is filled and then shown on a canvas. */
export class Raster {
  #image: ImageData | null = null;
  #pixels = new Uint32Array();
  #context: CanvasRenderingContext2D | null;
  constructor(readonly canvas: HTMLCanvasElement) {
    this.#context = canvas.getContext("2d");
  }

  /** Clear it; its size is in px of the page. */
  begin(width: number, height: number, ratio: number): CanvasRenderingContext2D | null {
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.canvas.width !== w || this.canvas.height !== h || !this.#image) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.#image = this.#context?.createImageData(w, h) ?? null;
      this.#pixels = new Uint32Array(this.#image?.data.buffer ?? new ArrayBuffer(0));
    } else this.#pixels.fill(0);
    return this.#context;
  }

  fill(x0: number, y0: number, x1: number, y1: number, pixel: number): void {
    const { width, height } = this.canvas;
    const from = Math.max(0, x0);
    const to = Math.min(width, x1);
    if (from >= to) return;
    for (let y = Math.max(0, y0); y < Math.min(height, y1); y++) this.#pixels.fill(pixel, y * width + from, y * width + to);
  }

  show(): void {
    if (this.#image) this.#context?.putImageData(this.#image, 0, 0);
  }
}

/** Lives of which some part is in the drawing; `few`: of these only. */
export function fill(raster: Raster, t: Trace, s: Sheet, layout: Layout, ratio: number, pixel: (k: number) => number, few?: Iterable<number>): number {
  const { l, band, base } = layout;
  const { from, to } = s.range;
  const thin: number[] = []; // four numbers and a colour each
  let drawn = 0;
  const one = (k: number) => {
    if (l.from[k] >= to || l.to[k] <= from) return;
    drawn++;
    const foot = yOf(s, band[k], base[k]) * ratio;
    for (const [begin, end, bytes] of spans(t, layout, k)) {
      const x0 = xOf(s, begin) * ratio;
      const x1 = xOf(s, end) * ratio;
      const head = yOf(s, band[k], base[k] + bytes) * ratio;
      const left = Math.floor(x0);
      const top = Math.floor(head);
      if (x1 - x0 < 1 || foot - head < 1) thin.push(left, top, Math.max(left + 1, Math.round(x1)), Math.max(top + 1, Math.round(foot)), k);
      // a line of the ground between neighbours, where there is room
      else raster.fill(Math.round(x0), Math.round(head) + (foot - head >= 4 * ratio ? ratio : 0), Math.round(x1) - (x1 - x0 >= 4 * ratio ? ratio : 0), Math.round(foot), pixel(k));
    }
  };
  if (few) for (const k of few) one(k);
  else for (let k = 0; k < l.n; k++) one(k);
  for (let i = 0; i < thin.length; i += 5) raster.fill(thin[i], thin[i + 1], thin[i + 2], thin[i + 3], pixel(thin[i + 4]));
  raster.show();
  return drawn;
}

/** From when to when a life has how many bytes: one span, unless its block was made larger. */
export function spans({ p, x }: Trace, { l }: Layout, k: number): [number, number, number][] {
  const s = l.storage[k];
  const found: [number, number, number][] = [];
  let bytes = l.bytes[k];
  let end = l.to[k];
  for (let i = x.grown.start[s + 1] - 1; i >= x.grown.start[s]; i--) {
    const g = x.grown.ids[i];
    const step = p.grow.step[g];
    if (step >= l.to[k]) continue;
    if (step > l.from[k]) found.push([step, end, bytes]);
    end = Math.min(end, Math.max(step, l.from[k]));
    bytes -= p.grow.bytes[g];
  }
  if (end > l.from[k]) found.push([l.from[k], end, bytes]);
  return found;
}
