// How the states of rows are drawn: each has its own fill, its own pattern and its own border, so none rests on colour.

export interface Look { about: string; fill: string; mark: "" | "hatch" | "back" | "cross" | "dots"; ink: string; dash: number[]; line: number }

/** By the name that the payload has for a state, from what may be covered to what must be seen. */
const LOOKS: Record<string, Look> = {
  reserved: { about: "reserved, never written", fill: "--kv-line", mark: "", ink: "--kv-edge", dash: [1, 2], line: 1 },
  pending: { about: "empty: a later op of this run writes it", fill: "--kv-accent-pale", mark: "", ink: "--kv-accent", dash: [3, 2], line: 1.5 },
  valid: { about: "holds a token", fill: "--kv-view-mid", mark: "", ink: "--kv-view", dash: [], line: 1 },
  wrapped: { about: "holds a token of a later round", fill: "--kv-view-pale", mark: "dots", ink: "--kv-view", dash: [], line: 2 },
  outside: { about: "holds a token that attention no longer sees", fill: "--kv-done", mark: "cross", ink: "--kv-soft", dash: [3, 2], line: 1 },
  stale: { about: "stale: holds something, but no live token", fill: "--kv-missed-pale", mark: "hatch", ink: "--kv-missed", dash: [5, 2], line: 1.5 },
  written: { about: "written by this run", fill: "--kv-accent", mark: "", ink: "--kv-ink", dash: [], line: 2 },
};
const NAMES = Object.keys(LOOKS);

/** How a state is drawn; one that is not known here plainly, by its name. */
export function lookOf(state: string): Look {
  return LOOKS[state] ?? { about: state, fill: "--kv-pane", mark: "", ink: "--kv-ink", dash: [], line: 1 };
}

/** Which of two states is drawn first, as for `sort`; what is not known here before all others. */
export function above(a: string, b: string): number {
  return NAMES.indexOf(a) - NAMES.indexOf(b);
}

/** Colours and patterns of one look of the page; made anew when that changes. */
export class Inks {
  #known = new Map<string, string>();
  #patterns = new Map<string, CanvasPattern | null>();
  readonly family: string;
  readonly dark: boolean;
  #style: CSSStyleDeclaration;

  constructor(host: HTMLElement, readonly ratio = globalThis.devicePixelRatio || 1) {
    this.#style = getComputedStyle(host);
    this.dark = host.closest(".kvviz")?.getAttribute("data-theme") === "dark";
    this.family = this.#style.fontFamily || "sans-serif";
  }

  colour(name: string): string {
    let value = this.#known.get(name);
    if (value === undefined) this.#known.set(name, (value = this.#style.getPropertyValue(name).trim() || "#888"));
    return value;
  }

  /** A tile of 6 px with the mark of a state. */
  pattern(look: Look): CanvasPattern | null {
    let found = this.#patterns.get(look.mark + look.ink);
    if (found !== undefined) return found;
    const tile = document.createElement("canvas");
    const size = (tile.width = tile.height = Math.round(6 * this.ratio));
    const context = tile.getContext("2d")!;
    context.strokeStyle = context.fillStyle = this.colour(look.ink);
    context.lineWidth = this.ratio * (look.mark === "hatch" || look.mark === "back" ? 1.5 : 0.9);
    context.beginPath();
    // drawn beyond the tile, so that lines go on in the next one
    for (const at of look.mark === "dots" ? [] : [-size, 0, size]) {
      if (look.mark !== "back") {
        context.moveTo(at - 2, size + 2);
        context.lineTo(at + size + 2, -2);
      }
      if (look.mark !== "cross" && look.mark !== "back") continue;
      context.moveTo(at - 2, -2);
      context.lineTo(at + size + 2, size + 2);
    }
    if (look.mark === "dots") context.arc(size / 2, size / 2, 1.3 * this.ratio, 0, 7);
    if (look.mark === "dots") context.fill();
    else context.stroke();
    found = context.createPattern(tile, "repeat");
    found?.setTransform(new DOMMatrix().scale(1 / this.ratio));
    this.#patterns.set(look.mark + look.ink, found);
    return found;
  }
}

/** A box with fill and pattern of a state; `border` where there is room for one. */
export function box(context: CanvasRenderingContext2D, inks: Inks, state: string, x: number, y: number, w: number, h: number, border = true): void {
  const look = lookOf(state);
  context.fillStyle = inks.colour(look.fill);
  context.fillRect(x, y, w, h);
  const pattern = look.mark ? inks.pattern(look) : null;
  if (pattern) {
    context.fillStyle = pattern;
    context.fillRect(x, y, w, h);
  }
  if (border) outline(context, inks, look, x, y, w, h);
}

export function outline(context: CanvasRenderingContext2D, inks: Inks, look: Look, x: number, y: number, w: number, h: number): void {
  const line = Math.min(look.line, w / 3, h / 3);
  context.strokeStyle = inks.colour(look.ink);
  context.lineWidth = line;
  context.setLineDash(look.dash);
  context.strokeRect(x + line / 2, y + line / 2, Math.max(0.5, w - line), Math.max(0.5, h - line));
  context.setLineDash([]);
}

/** Sharp on any screen: the canvas gets as many pixels as the screen has there. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): CanvasRenderingContext2D | null {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context?.scale(ratio, ratio);
  return context;
}
