// Full screen, and the splitters between the panes; see layout.css.
import { el, on, onDrag, onKey, set } from "./dom.js";

/** Put a bar before or after each of these panes; its size is the custom property `--kv-NAME` of `app`. */
export function splitters(app: HTMLElement, panes: { findings: HTMLElement; side: HTMLElement; map: HTMLElement; lists: HTMLElement }, signal: AbortSignal): void {
  const kept = new Kept("kvviz.sizes");
  const make = (pane: HTMLElement, split: Split) => new Splitter(app, pane, split, kept, signal).bar;
  panes.findings.after(make(panes.findings, { name: "findings", label: "Width of the findings", vertical: true, sign: 1, least: 160, most: 0.4 }));
  panes.side.before(make(panes.side, { name: "side", label: "Width of the inspector", vertical: true, sign: -1, least: 200, most: 0.6 }));
  panes.map.before(make(panes.map, { name: "map", label: "Height of memory", vertical: false, sign: -1, least: 60, most: 0.7 }));
  panes.lists.parentElement!.before(make(panes.lists, { name: "lists", label: "Height of the drawer", vertical: false, sign: -1, least: 60, most: 0.7 }));
}

/** Toggle full screen; some hosts do not allow it. */
export async function fullScreen(root: HTMLElement): Promise<void> {
  await (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.())?.catch(() => {});
}

/** `sign`: 1 if the pane grows as the splitter moves right or down. `least`: px; `most`: of the page. */
interface Split { name: string; label: string; vertical: boolean; sign: 1 | -1; least: number; most: number }

const STEP = 16; // px an arrow key moves the bar

/** Numbers kept in local storage, or else as long as the page lives. */
class Kept {
  #numbers: Record<string, number | undefined> = {};
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
    this.#numbers[name] = value;
    try {
      localStorage.setItem(this.key, JSON.stringify(this.#numbers));
    } catch { /* nothing is kept here */ }
  }
}

class Splitter {
  readonly bar: HTMLElement;
  constructor(private app: HTMLElement, private pane: HTMLElement, private split: Split, private kept: Kept, signal: AbortSignal) {
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
      kept.put(split.name, undefined);
      this.apply();
    }, signal);
    onKey(this.bar, (key) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[key];
      if (!by || /Left|Right/.test(key) !== vertical) return false;
      this.#set(this.#size() + this.split.sign * by * STEP);
    }, signal);
    this.apply();
  }

  #size(): number { return this.split.vertical ? this.pane.offsetWidth : this.pane.offsetHeight; }

  #set(px: number): void {
    const { split } = this;
    const whole = split.vertical ? this.app.clientWidth : this.app.clientHeight;
    const size = Math.max(split.least, Math.min(split.most * whole, px));
    this.kept.put(split.name, Math.round(size));
    this.apply();
  }

  /** Apply the remembered size, or the default. */
  apply(): void {
    const value = this.kept.get(this.split.name);
    if (value === undefined) this.app.style.removeProperty(`--kv-${this.split.name}`);
    else set(this.app, `--kv-${this.split.name}`, `${value}px`);
    this.bar.ariaValueNow = String(value ?? 0);
    this.bar.ariaValueText = value === undefined ? "the usual size" : `${value} px`;
  }
}
