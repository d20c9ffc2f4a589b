// A bar between two panes that is dragged, or moved with the arrow keys; sizes are remembered by layout.
import { el, on, set } from "./dom.js";

/** `unit`: px, or % of the host's width. `sign`: 1 where the pane grows as the bar moves right or down. */
export interface Split { name: string; label: string; vertical: boolean; unit: "px" | "%"; sign: 1 | -1; least: number; most: number }

const STEP = 16; // px an arrow key moves the bar

/** Numbers by name that this browser keeps; where it keeps nothing they last as long as the page. */
export class Kept {
  #numbers: Record<string, number> = {};
  constructor(private key: string) {
    try {
      this.#numbers = JSON.parse(localStorage.getItem(key) ?? "{}") ?? {};
    } catch { /* nothing is kept here */ }
  }

  get(name: string): number | undefined {
    const n = this.#numbers[name];
    return Number.isFinite(n) ? n : undefined;
  }

  put(name: string, value: number | undefined): void {
    if (value === undefined) delete this.#numbers[name];
    else this.#numbers[name] = value;
    try {
      localStorage.setItem(this.key, JSON.stringify(this.#numbers));
    } catch { /* nothing is kept here */ }
  }
}

export class Splitter {
  readonly bar: HTMLElement;
  /** `pane`: whose size it changes, through the custom property `--kv-NAME` of `app`. */
  constructor(private app: HTMLElement, private pane: HTMLElement, private split: Split, private kept: Kept, private layout: () => string, signal: AbortSignal) {
    const { vertical, label } = split;
    this.bar = el("div.kv-splitter", { role: "separator", tabindex: 0, "data-kv": "splitter", "data-id": split.name, "data-vertical": vertical ? 1 : null, "aria-orientation": vertical ? "vertical" : "horizontal", "aria-label": label, title: `${label}: drag, or use the arrow keys; double click for the usual size; Page Up and Page Down go to the other bars` });
    on(this.bar, "pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      this.bar.setPointerCapture(event.pointerId);
      const from = vertical ? event.clientX : event.clientY;
      const size = this.#size();
      const move = (e: PointerEvent) => this.#set(size + this.split.sign * ((vertical ? e.clientX : e.clientY) - from));
      this.bar.addEventListener("pointermove", move, { signal });
      this.bar.addEventListener("lostpointercapture", () => this.bar.removeEventListener("pointermove", move), { once: true, signal });
    }, signal);
    on(this.bar, "dblclick", () => {
      kept.put(this.#key, undefined);
      this.apply();
    }, signal);
    on(this.bar, "keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by || /Left|Right/.test(event.key) !== vertical) return;
      event.preventDefault();
      event.stopPropagation();
      this.#set(this.#size() + this.split.sign * by * STEP);
    }, signal);
    this.apply();
  }

  get #key(): string { return `${this.layout()}.${this.split.name}`; }
  #size(): number { return this.split.vertical ? this.pane.offsetWidth : this.pane.offsetHeight; }

  #set(px: number): void {
    const { split } = this;
    const whole = split.vertical ? this.app.clientWidth : this.app.clientHeight;
    const size = Math.max(split.least, Math.min(split.most * whole, px));
    this.kept.put(this.#key, split.unit === "%" ? Math.round((1000 * size) / whole) / 10 : Math.round(size));
    this.apply();
  }

  /** Use what is remembered for the present layout, or the layout's own size. */
  apply(): void {
    const value = this.kept.get(this.#key);
    if (value === undefined) this.app.style.removeProperty(`--kv-${this.split.name}`);
    else set(this.app, `--kv-${this.split.name}`, `${value}${this.split.unit}`);
    this.bar.ariaValueNow = String(value ?? 0);
    this.bar.ariaValueText = value === undefined ? "the usual size" : `${value} ${this.split.unit}`;
  }
}
