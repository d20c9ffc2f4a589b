// Shared by all canvases: size in device pixels, colours and patterns of the page, and text that fits.
import { ensure, first } from "./arrays.js";
import { elide } from "./format.js";

/** A pattern over a fill, since colour alone carries no meaning. */
export type Pattern = "" | "hatch" | "back" | "cross" | "dots";

/** Size a canvas in device pixels. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number, ratio = globalThis.devicePixelRatio || 1, settings?: CanvasRenderingContext2DSettings): CanvasRenderingContext2D | null {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d", settings);
  context?.scale(ratio, ratio);
  return context as CanvasRenderingContext2D | null;
}

export type Point = [x: number, y: number];

/** A filled shape. */
export function polygon(context: CanvasRenderingContext2D, ink: string, points: Point[]): void {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.fillStyle = ink;
  context.fill();
}

/** A line through points. */
export function traced(context: CanvasRenderingContext2D, ink: string, width: number, points: Point[], dash: number[] = []): void {
  context.setLineDash(dash);
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  stroked(context, ink, width);
  context.setLineDash([]);
}

export function filled(context: CanvasRenderingContext2D, ink: string | CanvasPattern, x: number, y: number, w: number, h: number): void {
  context.fillStyle = ink;
  context.fillRect(x, y, w, h);
}

/** Draw the present path. */
export function stroked(context: CanvasRenderingContext2D, ink: string, width: number): void {
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.stroke();
}

export function bordered(context: CanvasRenderingContext2D, ink: string, width: number, x: number, y: number, w: number, h: number): void {
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.strokeRect(x, y, w, h);
}

/** A border inside a box, thinner in a small one. */
export function outline(context: CanvasRenderingContext2D, ink: string, width: number, dash: number[], x: number, y: number, w: number, h: number): void {
  const line = Math.min(width, w / 3, h / 3);
  context.setLineDash(dash);
  bordered(context, ink, line, x + line / 2, y + line / 2, Math.max(0.5, w - line), Math.max(0.5, h - line));
  context.setLineDash([]);
}

interface Letters { size?: number; ink?: string; align?: CanvasTextAlign; base?: CanvasTextBaseline }
/** A text in the page's font; `ink`: a token. */
export function label(context: CanvasRenderingContext2D, inks: Inks, text: string, x: number, y: number, { size = 11, ink = "soft", align = "left", base = "middle" }: Letters = {}): void {
  context.font = `${size}px ${inks.family}`;
  context.fillStyle = inks.colour(ink);
  context.textAlign = align;
  context.textBaseline = base;
  context.fillText(text, x, y);
}

/** Widths of text as it will be drawn, measured without touching the page. */
export class Ruler {
  #context = document.createElement("canvas").getContext("2d");
  #known = new Map<string, number>();
  #fitted = new Map<string, string>();
  constructor(private family: string) {}

  width(text: string, font: string): number {
    return ensure(this.#known, font + text, () => {
      if (!this.#context) return text.length * 6.5;
      this.#context.font = `${font} ${this.family}`;
      return this.#context.measureText(text).width;
    });
  }

  /** The text without its middle, to fit; "" if not even two letters do. */
  fit(text: string, font: string, room: number): string {
    if (this.width(text, font) <= room) return text;
    if (this.#fitted.size > 5000) this.#fitted.clear();
    return ensure(this.#fitted, `${font}${Math.round(room)} ${text}`, () => {
      const longest = first(1, text.length, (n) => this.width(elide(text, n), font) > room) - 1;
      return longest < 3 ? "" : elide(text, longest);
    });
  }
}

/** Colours, patterns and font of the page; renewed when its look changes. Colours are tokens without `--kv-`. */
export class Inks {
  #known = new Map<string, string>();
  #patterns = new Map<string, CanvasPattern | null>();
  #style: CSSStyleDeclaration;
  readonly family: string;
  readonly dark: boolean;
  readonly ruler: Ruler;

  constructor(host: HTMLElement, readonly ratio = globalThis.devicePixelRatio || 1) {
    this.#style = getComputedStyle(host);
    this.dark = host.closest(".kvviz")?.getAttribute("data-theme") === "dark";
    this.family = this.#style.fontFamily || "sans-serif";
    this.ruler = new Ruler(this.family);
  }

  colour(name: string): string { return ensure(this.#known, name, () => this.#style.getPropertyValue(`--kv-${name}`).trim() || "#888"); }

  mixed(name: string, share: number): string { return `color-mix(in srgb, ${this.colour(name)} ${Math.round(100 * share)}%, ${this.colour("pane")})`; }

  pattern(sign: Pattern, ink: string): CanvasPattern | null {
    return ensure(this.#patterns, `${sign} ${ink}`, () => {
      const tile = document.createElement("canvas");
      const size = (tile.width = tile.height = Math.round(6 * this.ratio));
      const context = tile.getContext("2d")!;
      context.strokeStyle = context.fillStyle = this.colour(ink);
      context.lineWidth = this.ratio * (sign === "hatch" || sign === "back" ? 1.5 : 0.9);
      context.beginPath();
      // drawn beyond the tile, so that lines continue in the next one
      for (const at of sign === "dots" ? [] : [-size, 0, size]) {
        if (sign !== "back") {
          context.moveTo(at - 2, size + 2);
          context.lineTo(at + size + 2, -2);
        }
        if (sign !== "cross" && sign !== "back") continue;
        context.moveTo(at - 2, -2);
        context.lineTo(at + size + 2, size + 2);
      }
      if (sign === "dots") context.arc(size / 2, size / 2, 1.3 * this.ratio, 0, 7);
      if (sign === "dots") context.fill();
      else context.stroke();
      const found = context.createPattern(tile, "repeat");
      found?.setTransform(new DOMMatrix().scale(1 / this.ratio));
      return found;
    });
  }
}
