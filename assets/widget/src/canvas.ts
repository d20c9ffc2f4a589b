// What every canvas of the page needs: its size in pixels of the screen, the page's colours and patterns, and text that fits.
import { ensure, first } from "./arrays.js";

/** A sign over a fill, so that nothing rests on colour. */
export type Pattern = "" | "hatch" | "back" | "cross" | "dots";

/** Sharp on any screen: the canvas gets as many pixels as the screen has there. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number, ratio = globalThis.devicePixelRatio || 1, settings?: CanvasRenderingContext2DSettings): CanvasRenderingContext2D | null {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d", settings);
  context?.scale(ratio, ratio);
  return context as CanvasRenderingContext2D | null;
}

/** Widths of text as it will be drawn; a canvas measures without touching the page. */
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

  /** The text, or as much of it as fits before an ellipsis; "" when not even two letters do. */
  fit(text: string, font: string, room: number): string {
    if (this.width(text, font) <= room) return text;
    if (this.#fitted.size > 5000) this.#fitted.clear();
    return ensure(this.#fitted, `${font}${Math.round(room)} ${text}`, () => {
      const longest = first(1, text.length, (n) => this.width(`${text.slice(0, n)}…`, font) > room) - 1;
      return longest < 2 ? "" : `${text.slice(0, longest)}…`;
    });
  }
}

/** Colours, patterns and font of one look of the page; made anew when that changes. Colours are tokens without `--kv-`. */
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

  colour(name: string): string {
    return ensure(this.#known, name, () => this.#style.getPropertyValue(`--kv-${name}`).trim() || "#888");
  }

  mixed(name: string, share: number): string { return `color-mix(in srgb, ${this.colour(name)} ${Math.round(100 * share)}%, ${this.colour("pane")})`; }

  /** A tile of 6 px with a sign. */
  pattern(sign: Pattern, ink: string): CanvasPattern | null {
    return ensure(this.#patterns, `${sign} ${ink}`, () => {
      const tile = document.createElement("canvas");
      const size = (tile.width = tile.height = Math.round(6 * this.ratio));
      const context = tile.getContext("2d")!;
      context.strokeStyle = context.fillStyle = this.colour(ink);
      context.lineWidth = this.ratio * (sign === "hatch" || sign === "back" ? 1.5 : 0.9);
      context.beginPath();
      // drawn beyond the tile, so that lines go on in the next one
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
