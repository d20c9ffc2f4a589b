// The line over the memory map: what is shown, its colours, the peak of the window, sorting, colouring and zoom.
import { button, el, mark, on, say, set } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { addressed, type Layout, type Sort } from "./mapbands.js";
import { COLOURS, type Class, type Colour } from "./mapcolours.js";
import { ORDERS } from "./mapstack.js";
import { peakText } from "./maptell.js";
import { numberOf } from "./steps.js";
import type { Store } from "./store.js";

const SAID: Record<Sort | Colour, string> = { address: "address", lifetime: "lifetime", bytes: "bytes", birth: "birth", owner: "owner", cache: "cache", op: "op", size: "size" };

/** `zoom`: by how much, 0 = all, -1 = the window. */
export interface Heard { sort(sort: Sort): void; colour(colour: Colour): void; zoom(by: number): void }

export class MapHead {
  readonly root: HTMLElement;
  #count = el("span.kv-hint");
  #legend = el("span.kv-map-legend");
  #window = el("span.kv-map-window", { "data-kv": "map-window" });
  #range = el("span");
  #peak: HTMLButtonElement;
  #sort = el("select", { "aria-label": "Sort: what lies lowest, and first in the list", title: "Sort: what lies lowest, and first in the list", "data-kv": "map-sort" });
  #colour = el("select", { "aria-label": "Colour by", title: "Colour by", "data-kv": "map-colour" });
  #sorts = "";
  #legendKey = "";
  #step = -1;

  constructor(private store: Store, heard: Heard, signal: AbortSignal) {
    this.#peak = button("", "Go to the step with the peak of this window", "map-peak", () => store.seek(this.#step), signal);
    this.#peak.className = "kv-link";
    const fit = button("zoom", "Show only the window (z)", "map-zoom-window", () => heard.zoom(-1), signal);
    const clear = button("×", "Forget the window (Esc)", "map-clear", () => store.setWindow(null), signal);
    clear.ariaLabel = "Forget the window";
    this.#window.append(this.#range, this.#peak, fit, clear);
    for (const value of COLOURS) this.#colour.append(el("option", { value }, `colour: ${SAID[value]}`));
    on(this.#sort, "change", () => heard.sort(this.#sort.value as Sort), signal);
    on(this.#colour, "change", () => heard.colour(this.#colour.value as Colour), signal);
    const out = button("−", "Zoom out (−, Ctrl and the wheel)", "map-out", () => heard.zoom(2), signal);
    const into = button("+", "Zoom in (+, Ctrl and the wheel)", "map-in", () => heard.zoom(0.5), signal);
    const all = button("all", "Show all steps (0)", "map-all", () => heard.zoom(0), signal);
    out.ariaLabel = "Zoom out";
    into.ariaLabel = "Zoom in";
    const tools = el("span.kv-map-tools", { role: "toolbar", "aria-label": "How the map is drawn" }, this.#sort, this.#colour, out, into, all);
    this.root = el("div.kv-map-head", {}, el("h3", {}, "Memory map"), this.#count, this.#legend, this.#window, tools);
    roving(tools, signal);
  }

  /** `most`: bytes to the top of what is shown. */
  show(layout: Layout, sort: Sort, all: Class[], colour: (c: Class) => string): void {
    const { t } = this.store;
    const sorts = [...(addressed(t) ? ["address" as const] : []), ...ORDERS];
    if (this.#sorts !== sorts.join()) {
      this.#sorts = sorts.join();
      this.#sort.replaceChildren(...sorts.map((value) => el("option", { value }, `sort: ${SAID[value]}`)));
    }
    this.#sort.value = sort;
    say(this.#count, `${plural(layout.l.n, "buffer")}${t.x.weights ? ` above ${bytes(t.x.weights)} of weights` : ""}`);
    this.#count.title = `Up: bytes. Right: steps. Drag over steps for the peak among them; Shift and drag to move; the wheel with Ctrl zooms steps, with Alt bytes${t.x.weights ? "; the weights, alive all the time, are not drawn" : ""}.`;
    const key = all.map((c) => c.name + colour(c)).join();
    if (key === this.#legendKey) return;
    this.#legendKey = key;
    const chips = all.slice(0, 7).map((c) => {
      const i = el("i");
      set(i, "background", colour(c));
      return el("span", {}, i, c.name);
    });
    if (all.length > 7) chips.push(el("span", {}, `and ${count(all.length - 7)} more`));
    chips.push(el("span", {}, el("i", { "data-mark": "notch" }), "overwritten in place"), el("span", {}, el("i", { "data-mark": "held" }), "held past last use"));
    this.#legend.replaceChildren(...chips);
  }

  window(): void {
    const { window, t } = this.store;
    this.#window.hidden = !window;
    mark(this.root, "data-window", window ? 1 : null);
    if (!window) return;
    const { text, step } = peakText(t, ...window);
    this.#step = step;
    say(this.#range, `steps ${count(numberOf(t, Math.floor(window[0])))}–${count(numberOf(t, Math.min(t.p.steps, Math.ceil(window[1])) - 1))}: peak `);
    say(this.#peak, `${text} at step ${count(numberOf(t, step))}`);
  }
}

/** One tab stop for a group: the arrow keys move within it. */
function roving(group: HTMLElement, signal: AbortSignal): void {
  const all = () => Array.from(group.children as HTMLCollectionOf<HTMLElement>);
  const stop = (node: Element) => { for (const one of all()) one.tabIndex = one === node ? 0 : -1; };
  stop(group.children[0]);
  on(group, "focusin", (event) => stop(event.target as Element), signal);
  on(group, "keydown", (event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const list = all();
    list[(list.indexOf(event.target as HTMLElement) + by + list.length) % list.length].focus();
  }, signal);
}
