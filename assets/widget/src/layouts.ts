// Layouts of the panes, and the splitters between them. Manual sizes are kept by layout; see layout.css.
import { el, mark, on, onDrag, onKey, set } from "./dom.js";

export const LAYOUTS = ["Debug", "Memory", "Cache", "Compare", "Lanes"] as const;
export type Layout = (typeof LAYOUTS)[number];
const LISTS: Record<Layout, string> = { Debug: "steps", Memory: "buffers", Cache: "caches", Compare: "compare", Lanes: "clock" };

export interface Panes { app: HTMLElement; main: HTMLElement; side: HTMLElement; map: HTMLElement; lists: HTMLElement; panels: HTMLElement }

export class Workspace {
  readonly choice = el("select", { "aria-label": "Layout", title: "Layout: which panes are large", "data-kv": "layout" }, ...LAYOUTS.map((name) => el("option", { value: name }, name)));
  #layout: Layout = "Debug";
  #splitters: Splitter[];

  constructor(private panes: Panes, private openList: (id: string) => void, signal: AbortSignal) {
    const { app, main, side, map, lists, panels } = panes;
    const kept = new Kept("kvviz.sizes");
    const layout = () => this.#layout;
    this.#splitters = [
      new Splitter(app, side, { name: "side", label: "Width of the inspector", vertical: true, unit: "%", sign: -1, least: 240, most: 0.75 }, kept, layout, signal),
      new Splitter(app, map, { name: "map", label: "Height of the memory map", vertical: false, unit: "px", sign: -1, least: 0, most: 0.7 }, kept, layout, signal),
      new Splitter(app, panels, { name: "lists", label: "Height of the lists", vertical: false, unit: "px", sign: -1, least: 0, most: 0.7 }, kept, layout, signal),
    ];
    const [between, above, over] = this.#splitters;
    main.insertBefore(between.bar, side);
    map.before(above.bar);
    lists.before(over.bar);
    on(this.choice, "change", () => this.show(this.choice.value as Layout), signal);
    mark(app, "data-layout", this.#layout);
  }

  show(layout: Layout): void {
    this.#layout = layout;
    this.choice.value = layout;
    mark(this.panes.app, "data-layout", layout);
    for (const splitter of this.#splitters) splitter.apply();
    this.openList(LISTS[layout]);
  }

  offer(layout: Layout, there: boolean): void {
    this.choice.querySelector<HTMLOptionElement>(`option[value="${layout}"]`)!.hidden = !there;
    if (!there && this.#layout === layout) this.show("Debug");
  }

}

/** Toggle full screen; some hosts do not allow it. */
export async function fullScreen(root: HTMLElement): Promise<void> {
  await (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.())?.catch(() => {});
}

/** `unit`: px, or % of the host's width. `sign`: 1 if the pane grows as the splitter moves right or down. */
interface Split { name: string; label: string; vertical: boolean; unit: "px" | "%"; sign: 1 | -1; least: number; most: number }

const STEP = 16; // px an arrow key moves the bar

/** Numbers kept in local storage, or else as long as the page lives. */
class Kept {
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

class Splitter {
  readonly bar: HTMLElement;
  /** `pane`: its size is set by the custom property `--kv-NAME` of `app`. */
  constructor(private app: HTMLElement, private pane: HTMLElement, private split: Split, private kept: Kept, private layout: () => string, signal: AbortSignal) {
    const { vertical, label } = split;
    this.bar = el("div.kv-splitter", { role: "separator", tabindex: 0, "data-kv": "splitter", "data-id": split.name, "data-vertical": vertical ? 1 : null, "aria-orientation": vertical ? "vertical" : "horizontal", "aria-label": label, title: `${label}: drag, or use the arrow keys; double click for the usual size; Page Up and Page Down go to the other bars` });
    let [from, size] = [0, 0];
    onDrag(this.bar, (event, moving) => {
      const at = vertical ? event.clientX : event.clientY;
      if (moving) return this.#set(size + this.split.sign * (at - from));
      event.preventDefault();
      [from, size] = [at, this.#size()];
    }, signal);
    on(this.bar, "dblclick", () => {
      kept.put(this.#key, undefined);
      this.apply();
    }, signal);
    onKey(this.bar, (key) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[key];
      if (!by || /Left|Right/.test(key) !== vertical) return false;
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

  /** Apply the remembered size of the layout, or its default. */
  apply(): void {
    const value = this.kept.get(this.#key);
    if (value === undefined) this.app.style.removeProperty(`--kv-${this.split.name}`);
    else set(this.app, `--kv-${this.split.name}`, `${value}${this.split.unit}`);
    this.bar.ariaValueNow = String(value ?? 0);
    this.bar.ariaValueText = value === undefined ? "the usual size" : `${value} ${this.split.unit}`;
  }
}
