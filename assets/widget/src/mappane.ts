// The memory map: every storage as a rectangle from birth to death. The base picture covers more steps than are visible and is
// moved while panning; a second one above it shows what is alive at the cursor and what is chosen.
import { Inks } from "./canvas.js";
import { Delay, el, mark, on, onDrag, onKey, onPointer, onResize, placeIn, placeTip, stop } from "./dom.js";
import { copyButton, type MakePane } from "./lazypane.js";
import { addressed, clamped, layout, lifeOf, neighbour, raised, rectOf, sheet, under, xOf, zoomed, type Layout, type Range, type Rise, type Sheet, type Sort } from "./mapdata.js";
import { classes, lines, Picture, pixel, type Class, type Colour, type Ink } from "./mappicture.js";
import { MapHead, MapList, Scales } from "./maphead.js";
import type { Change, Store, View } from "./store.js";

const REST = 140; // ms after which a moved picture is drawn anew
const AHEAD = 0.5; // of the width, drawn beyond both edges when not all is seen

const KEYS: Record<string, (map: MapPane) => void> = {
  "+": (map) => map.zoom(0.5), "=": (map) => map.zoom(0.5), "-": (map) => map.zoom(2), "0": (map) => map.zoom(0), z: (map) => map.zoom(-1), PageUp: (map) => map.raise(1.5), PageDown: (map) => map.raise(1 / 1.5),
};

class MapPane implements View {
  readonly slow = false;
  #head: MapHead;
  #list: MapList;
  #picture: Picture;
  #scales = new Scales();
  #sheetBox: HTMLElement;
  #view: HTMLElement;
  #cursor = el("i.kv-map-cursor");
  #window = el("i.kv-map-brush");
  #outline = el("i.kv-map-hover");
  #fixed = false;
  #tip = el("div.kv-map-tip", { role: "status" });
  #sort: Sort | null = null;
  #colour: Colour = "owner";
  #layout!: Layout;
  #ink!: Ink;
  #sheet: Sheet | null = null;
  #range: Range = { from: 0, to: 1 };
  #rise: Rise = { times: 1, off: 0 };
  #whole = true;
  #hover = -1;
  #pointer: [number, number] | null = null; // px in the view
  #walk = -1; // step at which one walks up and down
  #look = "";
  #overAt = 0;
  #overCost = 0;
  #frame = 0;
  #waiting: Delay;
  #rest: Delay;
  #listing: Delay;

  constructor(private host: HTMLElement, private store: Store, signal: AbortSignal) {
    this.#head = new MapHead(store, {
      sort: (sort) => { this.#sort = sort; this.#renew(); },
      colour: (colour) => { this.#colour = colour; this.#renew(); },
      zoom: (by) => this.zoom(by),
    }, signal);
    this.#list = new MapList(store, (k, go) => this.#choose(k, go), (k) => { if (!this.#fixed) this.#point(k); }, signal);
    on(this.#list.root, "pointermove", () => { this.#fixed = false; }, signal);
    this.#picture = new Picture(store);
    this.#sheetBox = el("div.kv-map-sheet", {}, ...this.#picture.canvases, this.#window, this.#outline, this.#cursor);
    this.#view = el("div.kv-map-view", {
      tabindex: 0, role: "application", "data-kv": "memory-map", "aria-label": "Memory map: arrow keys walk from buffer to buffer, Enter goes to where one was made, plus and minus zoom",
    }, this.#sheetBox);
    host.append(this.#head.root, el("div.kv-map-body", {}, el("div.kv-map-plot", {}, this.#scales.words, this.#scales.gutter, this.#view, this.#scales.steps, this.#tip), this.#list.root));
    this.#tip.hidden = this.#outline.hidden = true;
    this.#gestures(signal);
    onResize(this.#view, () => this.#soon(), signal);
    [this.#waiting, this.#rest, this.#listing] = [new Delay(signal), new Delay(signal), new Delay(signal)];
    on(this.#view, "blur", () => this.#point(-1), signal);
  }

  // -- gestures ---------------------------------------------------------------------------------------------------------

  /** A drag selects a window; with Shift or the middle button it pans. The wheel zooms only with Ctrl (steps) or Alt (bytes), so that the notebook still scrolls. */
  #gestures(signal: AbortSignal): void {
    const { store } = this;
    const view = this.#view;
    let [range, pan, height] = [this.#range, false, 0];
    onPointer(view, {
      press: (event) => {
        [range, pan, height] = [this.#range, event.button === 1 || event.shiftKey, placeIn(view, event)[1]];
        view.focus({ preventScroll: true });
        event.preventDefault();
        return pan ? "xy" : "x";
      },
      drag: ([start], [x, y]) => {
        this.#over(null);
        const { from, to } = range;
        const { steps: all } = store.t.p;
        if (pan) {
          const by = ((start - x) / Math.max(1, this.#width)) * (to - from);
          this.#lift(height - y);
          height = y;
          return this.#show(clamped(from + by, to + by, all));
        }
        const [a, b] = [this.#stepAt(Math.min(x, start)), this.#stepAt(Math.max(x, start))];
        const first = Math.max(0, Math.min(Math.floor(a), all - 1));
        store.setWindow([first, Math.max(first + 1, Math.min(Math.ceil(b), all))]);
      },
      click: (at) => this.#choose(this.#at(...at)),
      double: (at) => { if (this.#at(...at) >= 0) this.#choose(this.#at(...at), true); },
      over: (at) => this.#over(at),
    }, signal);
    view.addEventListener("wheel", (event) => {
      const turn = Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode ? 30 : 1)));
      if (event.ctrlKey || event.metaKey) this.zoom(1.0015 ** turn, this.#stepAt(placeIn(view, event)[0]));
      else if (event.altKey) this.raise(1.0015 ** -turn, placeIn(view, event)[1]);
      else if (event.shiftKey || Math.abs(event.deltaX) > 2 * Math.abs(event.deltaY)) {
        const { from, to } = this.#range;
        if (to - from >= store.t.p.steps) return;
        this.#pan(((event.deltaX || event.deltaY) / Math.max(1, this.#width)) * (to - from));
      } else return; // the page's own
      stop(event);
    }, { signal, passive: false });
    onKey(view, (key, event) => {
      if (/^Arrow/.test(key)) {
        const { from, to } = this.#range;
        if (!event.shiftKey) this.#walkTo(key);
        else if (/Left|Right/.test(key)) this.#pan(((to - from) / 8) * (key === "ArrowRight" ? 1 : -1));
        else this.#lift(key === "ArrowUp" ? -40 : 40);
      } else if (key === "Enter" && this.#chosen >= 0) this.#choose(this.#chosen, true);
      else if (key === "Escape" && store.window) store.setWindow(null);
      else if (KEYS[key]) KEYS[key](this);
      else return false;
    }, signal);
    onDrag(this.#scales.steps, (event, moving) => store.seek(Math.floor(this.#stepAt(placeIn(view, event)[0])), "person", moving), signal);
  }

  get #width(): number { return this.#view.clientWidth; }
  #stepAt(x: number): number { return this.#range.from + (x / Math.max(1, this.#width)) * (this.#range.to - this.#range.from); }
  #at(x: number, y: number): number { return this.#sheet ? under(this.#sheet, this.#layout, x + this.#shift(), y) : -1; }

  #show(range: Range): void {
    const linked = this.#linked();
    this.#range = range;
    this.#whole = range.to - range.from >= this.store.t.p.steps - 1e-6;
    if (linked) this.store.setWindow(this.#whole ? null : [range.from, range.to]);
    this.#soon();
  }

  /** Whether the map shows exactly the window: then they move together. */
  #linked(): boolean {
    const { window } = this.store;
    return !!window && !this.#whole && Math.abs(window[0] - this.#range.from) < 0.5 && Math.abs(window[1] - this.#range.to) < 0.5;
  }

  zoom(by: number, around?: number): void {
    const { window, cursor, t: { p: { steps } } } = this.store;
    if (by === 0) {
      this.#rise = { times: 1, off: 0 };
      this.#sheet = null;
      return this.#show({ from: 0, to: steps });
    }
    if (by < 0) return window ? this.#show(clamped(...window, steps)) : undefined;
    const middle = cursor >= this.#range.from && cursor < this.#range.to ? cursor + 0.5 : (this.#range.from + this.#range.to) / 2;
    this.#show(zoomed(this.#range, by, around ?? middle, steps));
  }

  #pan(steps: number): void {
    const { from, to } = this.#range;
    this.#show(clamped(from + steps, to + steps, this.store.t.p.steps));
  }

  /** Scale the bytes by a factor; `y`: the fixed height. */
  raise(by: number, y = this.#view.clientHeight): void {
    this.#rise = raised(this.#rise, by, y, this.#view.clientHeight);
    this.#sheet = null;
    this.#soon();
  }

  /** Scroll vertically by px. */
  #lift(px: number): void {
    const { times, off } = this.#rise;
    if (times <= 1) return;
    this.#rise = { times, off: Math.max(0, Math.min(this.#view.clientHeight * (times - 1), off + px)) };
    this.#sheet = null;
    this.#soon();
  }

  #choose(k: number, go = false): void {
    const { store } = this;
    if (k < 0) return store.select(null);
    store.select({ kind: "storage", id: this.#layout.l.storage[k] });
    if (go) store.seek(Math.min(this.#layout.l.from[k], store.t.p.steps - 1));
  }

  /** Show the tooltip of a life; `fixed`: by keys, so that rows which scroll away under a resting mouse do not hide it. */
  #point(k: number, fixed = false): void {
    this.#fixed = fixed;
    if (k === this.#hover && !fixed) return;
    this.#hover = k;
    this.#tip.hidden = this.#outline.hidden = k < 0;
    if (k >= 0 && this.#sheet) {
      const [first, ...rest] = lines(this.store.t, this.#layout, k, this.store.cursor);
      this.#tip.replaceChildren(el("b", {}, first), ...rest.map((line) => el("span", {}, line)));
      const r = rectOf(this.#sheet, this.#layout, k);
      const x = Math.max(-3, r.x);
      this.#outline.style.transform = `translate(${x - 1}px, ${r.y - 1}px)`;
      this.#outline.style.width = `${Math.min(this.#sheet.width + 3, r.x + r.w) - x + 2}px`;
      this.#outline.style.height = `${r.h + 2}px`;
      placeTip(this.#tip, this.#view, r.x - this.#shift(), r.y, r.h, 14);
    }
  }

  /** Point at a place; kept, since the map may be redrawn under the pointer. */
  #over(at: [number, number] | null): void {
    this.#pointer = at;
    this.#point(at ? this.#at(...at) : -1);
  }

  #walkTo(key: string): void {
    const { store } = this;
    if (!this.#sheet) return;
    this.#pointer = null;
    const { l } = this.#layout;
    let k = this.#chosen;
    if (k < 0) {
      const { from, to } = this.#range;
      const middle = Math.max(from, Math.min(store.cursor, to - 1));
      for (let o = 0; o < l.n; o++) if (l.from[o] <= middle && l.to[o] > middle && (k < 0 || l.bytes[o] > l.bytes[k])) k = o;
      this.#walk = middle;
    } else {
      if (this.#walk < l.from[k] || this.#walk >= l.to[k]) this.#walk = Math.floor((l.from[k] + l.to[k]) / 2);
      k = neighbour(this.#sheet, this.#layout, k, key, this.#walk);
    }
    if (k < 0) return;
    if (/Left|Right/.test(key)) this.#walk = Math.max(l.from[k], Math.min(this.#walk, l.to[k] - 1));
    this.#choose(k);
    const { from, to } = this.#range;
    if (l.from[k] >= to || l.to[k] <= from) this.#show(clamped(l.from[k] - (to - from) / 3, l.from[k] + (2 * (to - from)) / 3, store.t.p.steps));
    this.#point(k, true);
  }

  get #chosen(): number {
    const { selection, cursor, t } = this.store;
    return selection?.kind === "storage" ? lifeOf(t, selection.id, cursor) : -1;
  }

  // -- drawing ------------------------------------------------------------------------------------------------------------

  update(change: Change): void {
    if (change.payload) {
      const was = this.#whole;
      const { steps } = this.store.t.p;
      this.#range = was ? { from: 0, to: steps } : clamped(this.#range.from, this.#range.to, steps);
      this.#list.forget();
    }
    if (change.look) this.#follow();
    // moving the window counts as a look and redraws nothing
    if (change.payload || (change.look && this.#look !== this.#tokens())) return this.#renew();
    if (change.look) {
      this.#move();
      this.#soon();
    }
    if (change.cursor || change.selection) {
      this.#move();
      this.#scales.now(this.store.run);
      this.#soonOver();
    }
    if (change.selection && this.#layout) this.#rows();
  }

  /** The colours in use, to notice a change of theme. */
  #tokens(): string {
    const inks = new Inks(this.host);
    return ["pane", "ink", "accent", "view"].map((name) => inks.colour(name)).join();
  }

  /** Follow a window that was moved out of sight. */
  #follow(): void {
    const { window, t: { p: { steps } } } = this.store;
    if (!window || this.#whole) return;
    const { from, to } = this.#range;
    const same = Math.abs(window[1] - window[0] - (to - from)) < 0.5;
    if (same) this.#range = { from: window[0], to: window[1] };
    else if (window[0] < from) this.#range = clamped(window[0], window[0] + to - from, steps);
    else if (window[1] > to) this.#range = clamped(window[1] - (to - from), window[1], steps);
  }

  #renew(): void {
    const { t } = this.store;
    const inks = new Inks(this.host);
    this.#look = this.#tokens();
    const sort = this.#sort ?? (addressed(t) ? "address" : "lifetime");
    this.#layout = layout(t, sort);
    const found = classes(t, this.#layout.l, this.#colour);
    const pixels = (of: (c: Class) => string) => Uint32Array.from(found.all, (c) => pixel(of(c)));
    const pale = (c: Class) => inks.mixed(c.hue, c.share);
    const full = (c: Class) => inks.colour(c.hue);
    this.#ink = { inks, classes: found, pale: pixels(pale), full: pixels(full) };
    this.#head.show(this.#layout, sort, found.all, this.#colour === "size" ? pale : full);
    this.#sheet = null;
    this.#soon();
  }

  /** `what`: 1: everything, 2: what is alive. */
  #soon(what = 1): void {
    if (!this.#frame) requestAnimationFrame(() => this.#flush());
    this.#frame |= what;
  }

  /** Drawing what is alive may lag behind the cursor if it takes most of a frame. */
  #soonOver(): void {
    const wait = this.#overAt + 4 * this.#overCost - performance.now();
    if (wait <= 0) this.#soon(2);
    else if (!this.#waiting.waits) this.#waiting.start(wait, () => this.#soonOver());
  }

  #flush(): void {
    const all = this.#frame & 1;
    this.#frame = 0;
    if (!this.#layout || !this.store.t.p.steps || this.#view.clientHeight < 8 || this.#width < 40) return;
    if (all) this.#draw();
    else {
      const began = performance.now();
      if (this.#sheet) this.#picture.over(this.#sheet, this.#layout, this.#ink);
      this.#overAt = performance.now();
      this.#overCost = this.#overAt - began;
    }
  }

  /** px from the left end of the drawing to the visible part. */
  #shift(): number { return this.#sheet ? xOf(this.#sheet, this.#range.from) : 0; }

  #draw(): void {
    const { t } = this.store;
    const width = this.#width;
    const height = this.#view.clientHeight;
    const { from, to } = this.#range;
    const px = width / Math.max(1e-6, to - from);
    const old = this.#sheet;
    const inside = old && Math.abs(old.px - px) < 1e-9 && old.height === height && from >= old.range.from - 1e-6 && to <= old.range.to + 1e-6;
    if (!inside) {
      const more = this.#whole ? 0 : (to - from) * AHEAD;
      const wide = { from: Math.max(0, from - more), to: Math.min(t.p.steps, to + more) };
      this.#sheet = sheet(this.#layout, wide, this.#range, (wide.to - wide.from) * px, height, this.#rise);
      const shift = this.#shift();
      mark(this.#view, "data-drawn", this.#picture.base(this.#sheet, this.#layout, this.#ink, [shift, shift + width]));
      this.#scales.axis(this.#sheet, this.#layout);
      this.#picture.over(this.#sheet, this.#layout, this.#ink);
    } else {
      // redrawn after panning, with visible names and a fitting scale
      this.#rest.start(REST, () => { this.#sheet = null; this.#soon(); });
    }
    this.#later();
    this.#sheetBox.style.transform = `translateX(${-this.#shift()}px)`;
    mark(this.#view, "data-range", `${from.toFixed(1)} ${to.toFixed(1)}`);
    this.#move();
    // another life may now be under the pointer
    if (this.#pointer) this.#hover = this.#at(...this.#pointer);
    if (this.#hover >= 0 || this.#pointer) this.#point(this.#hover, true);
    this.#scales.along(t, this.#range, width);
    this.#scales.now(this.store.run);
  }

  /** Update the list when the map comes to rest. */
  #later(): void {
    this.#listing.stop();
    if (!this.#list.filled) this.#rows();
    else this.#listing.start(REST, () => this.#rows());
  }

  /** Move the cursor and the window, which are elements, so that nothing is redrawn. */
  #move(): void {
    const s = this.#sheet;
    const { store } = this;
    this.#head.window();
    if (!s) return;
    this.#cursor.hidden = store.bare >= 0;
    this.#cursor.style.transform = `translateX(${(store.cursor < 0 ? xOf(s, 0) : xOf(s, store.cursor + 0.5)).toFixed(1)}px)`;
    // a window that covers the view would show only its ends
    this.#window.hidden = !store.window || this.#linked();
    if (store.window) {
      const [a, b] = store.window.map((step) => xOf(s, step));
      this.#window.style.transform = `translateX(${a.toFixed(1)}px)`;
      this.#window.style.width = `${Math.max(1, b - a).toFixed(1)}px`;
    }
  }

  #rows(): void {
    const { window, t: { p: { steps } } } = this.store;
    if (!this.#list.root.clientWidth) return;
    const within = window ? { from: window[0], to: window[1] } : this.#whole ? { from: 0, to: steps } : this.#range;
    this.#list.show(this.#layout, this.#sort && this.#sort !== "address" ? this.#sort : "lifetime", within, window ? " of the window" : this.#whole ? "" : " in view");
  }
}

export default ((host, { store, share }, signal) => {
  const pane = new MapPane(host, store, signal);
  host.querySelector(".kv-map-tools")!.append(copyButton(host, "memory map", share, signal));
  return pane;
}) satisfies MakePane;
