// Small helpers to make elements. Text from models only ever becomes a text node or an attribute, never markup.
import { ending } from "./format.js";

type Attributes = Record<string, string | number | boolean | null | undefined>;

function fill(node: Element, attributes: Attributes, children: (Node | string)[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") (node as HTMLElement).style.cssText = String(value); // an attribute is what strict pages refuse
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
}

type Tag = keyof HTMLElementTagNameMap;
type TagOf<T> = T extends `${infer K extends Tag}.${string}` ? K : T extends Tag ? T : never;

/** An element; `"p.kv-soft"` gives it a class. A button submits no form. */
export function el<T extends Tag | `${Tag}.${string}`>(tag: T, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[TagOf<T>] {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  if (name === "button") (node as HTMLButtonElement).type = name;
  fill(node, attributes, children);
  return node as HTMLElementTagNameMap[TagOf<T>];
}

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}

export function td(shown: string | Node, className?: string, attributes: Attributes = {}): HTMLElement {
  return el("td", { class: className, ...attributes }, shown);
}

const TAIL = 14; // letters at the end of a name that are never cut

/**
 * A name that loses its middle where there is no room, as `elide` does on a canvas. The two ends are drawn from attributes, so that the
 * text, and what a screen reader says, is the name.
 */
export function name(text: string, title = text): HTMLElement {
  const tail = ending(text, Math.min(TAIL, text.length >> 1));
  return el("span.kv-cut", { title, "data-head": text.slice(0, text.length - tail), "data-tail": text.slice(text.length - tail) }, el("span.kv-unseen", {}, text));
}

export const NUMBER = "kv-num";

/** A table with headings; `"step#"` is a column of numbers. Narrow layouts drop columns by their headings. */
export function table(label: string, className: string, heads: string[], body: HTMLElement): HTMLTableElement {
  const head = heads.map((h) => {
    const text = h.replace("#", "");
    return el("th", { scope: "col", class: text === h ? null : NUMBER, "data-column": text }, text);
  });
  return el("table", { class: `kv-table ${className}`, "aria-label": label }, el("thead", {}, el("tr", {}, ...head)), body);
}

/** An id that is unique in the page. */
export function uid(name: string): string { return `kv-${name}-${Math.random().toString(36).slice(2)}`; }

/** Set a text only if it differs: a change costs a layout, a comparison does not. */
export function say(node: Element, text: string, title?: string): void {
  if (node.textContent !== text) node.textContent = text;
  if (title !== undefined) (node as HTMLElement).title = title;
}

export function mark(node: Element, name: string, value: string | number | null): void {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Set a custom property only if it differs: setting it restyles everything below. */
export function set(node: HTMLElement, property: string, value: string): void {
  if (node.style.getPropertyValue(property) !== value) node.style.setProperty(property, value);
}

/** The button of a pane or the toolbar: `kv` is the hook of browser tests, `keys` goes into aria-keyshortcuts. */
export function button(text: string, title: string, kv: string, click: () => void, signal: AbortSignal, keys?: string): HTMLButtonElement {
  const node = el("button", { title, "data-kv": kv, "aria-keyshortcuts": keys }, text);
  on(node, "click", click, signal);
  return node;
}

/** A toggle button. */
export function toggle(text: string, title: string, kv: string, changed: (on: boolean) => void, signal: AbortSignal): HTMLButtonElement {
  const node: HTMLButtonElement = button(text, title, kv, () => {
    mark(node, "aria-pressed", String(node.ariaPressed !== "true"));
    changed(node.ariaPressed === "true");
  }, signal);
  mark(node, "aria-pressed", "false");
  return node;
}

/** The nearest ancestor of the target with this data-kv hook. */
export function hit(event: Event, kv: string): HTMLElement | null {
  return (event.target as Element | null)?.closest<HTMLElement>(`[data-kv="${kv}"]`) ?? null;
}

export function on<K extends keyof HTMLElementEventMap>(node: HTMLElement, event: K, call: (event: HTMLElementEventMap[K]) => void, signal: AbortSignal): void {
  node.addEventListener(event, call, { signal });
}

/** Handle an event on descendants with this data-kv hook. */
export function onHit(node: HTMLElement, kv: string, call: (found: HTMLElement) => void, signal: AbortSignal, event: "click" | "dblclick" | "pointerover" = "click"): void {
  on(node, event, (e) => {
    const found = hit(e, kv);
    if (found) call(found);
  }, signal);
}

export function stop(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

/** Keys without Ctrl, Cmd or Alt. If `act` returns false, the event goes on. */
export function onKey(node: HTMLElement, act: (key: string, event: KeyboardEvent) => boolean | void, signal: AbortSignal, first = false): void {
  const look = (event: KeyboardEvent) => {
    if (first && !event.composedPath().includes(node)) return;
    if (!event.ctrlKey && !event.metaKey && !event.altKey && act(event.key, event) !== false) stop(event);
  };
  // Notebook 7.6 goes to the next cell at an arrow, whatever a shortcut may do: so the key is taken before it gets there.
  if (first) addEventListener("keydown", look, { capture: true, signal });
  else on(node, "keydown", look, signal);
}

/** A press, and with `moving` every move while it is held. */
export function onDrag(node: HTMLElement, call: (event: PointerEvent, moving: boolean) => void, signal: AbortSignal): void {
  on(node, "pointerdown", (event) => {
    if (event.button !== 0) return;
    node.setPointerCapture(event.pointerId);
    call(event, false);
  }, signal);
  on(node, "pointermove", (event) => { if (node.hasPointerCapture(event.pointerId)) call(event, true); }, signal);
}

/** The place of an event in what a view has scrolled, px from its left and top edge. */
export function placeIn(view: HTMLElement, event: MouseEvent): [x: number, y: number] {
  const box = view.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top + view.scrollTop];
}

const NEAR = 4; // px that a click may tremble

/** What a pointer does, by places. `press`: the directions in which it may be dragged, null: it is not meant; `over`: null outside. */
interface Pointed {
  press(event: PointerEvent): "x" | "xy" | null;
  drag(from: [number, number], to: [number, number]): void;
  click(at: [number, number]): void;
  double(at: [number, number]): void;
  over(at: [number, number] | null): void;
}

export function onPointer(view: HTMLElement, does: Pointed, signal: AbortSignal): void {
  let held: { from: [number, number]; way: string; moved: boolean } | null = null;
  on(view, "pointerdown", (event) => {
    const way = event.button > 1 ? null : does.press(event);
    if (!way) return;
    held = { from: placeIn(view, event), way, moved: false };
    view.setPointerCapture(event.pointerId);
  }, signal);
  on(view, "pointermove", (event) => {
    const at = placeIn(view, event);
    // what moves under a pointer at rest is not pointed at
    if (!held) return !event.buttons && (event.movementX || event.movementY) ? does.over(at) : undefined;
    if (!held.moved && Math.hypot(at[0] - held.from[0], held.way === "x" ? 0 : at[1] - held.from[1]) < NEAR) return;
    held.moved = true;
    does.drag(held.from, at);
  }, signal);
  on(view, "pointerup", (event) => {
    const pressed = held && !held.moved;
    held = null;
    if (pressed) does.click(placeIn(view, event));
  }, signal);
  on(view, "lostpointercapture", () => { held = null; }, signal);
  on(view, "pointerleave", () => { if (!held) does.over(null); }, signal);
  on(view, "dblclick", (event) => does.double(placeIn(view, event)), signal);
}

/** Place a tip under a part of a view, or over it where there is no room; `out`: px by which it may stand out. */
export function placeTip(tip: HTMLElement, view: HTMLElement, x: number, y: number, h: number, out = 0): void {
  const left = Math.max(0, Math.min(view.clientWidth - tip.offsetWidth - 4, x));
  const top = y + h + 6 + tip.offsetHeight < view.clientHeight + out ? y + h + 6 : Math.max(-out, y - tip.offsetHeight - 6);
  tip.style.transform = `translate(${Math.round(left + view.offsetLeft)}px, ${Math.round(top + view.offsetTop)}px)`;
}

/** A text at a place of an axis. */
export function tick(text: string, left: number, attributes: Attributes = {}): HTMLElement {
  const node = el("span", attributes, text);
  node.style.transform = `translateX(${left.toFixed(0)}px)`;
  return node;
}

/** Runs something after a while; a new start replaces what waits, and the signal ends it. */
export class Delay {
  #timer: ReturnType<typeof setTimeout> | undefined;
  constructor(signal: AbortSignal) { signal.addEventListener("abort", () => this.stop()); }
  get waits(): boolean { return this.#timer !== undefined; }

  start(ms: number, run: () => void): void {
    this.stop();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      run();
    }, ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

export function onResize(node: HTMLElement, call: () => void, signal: AbortSignal): void {
  const watch = new ResizeObserver(call);
  watch.observe(node);
  signal.addEventListener("abort", () => watch.disconnect());
}

export function onMutation(node: Node, what: MutationObserverInit, call: () => void, signal: AbortSignal): void {
  const watch = new MutationObserver(call);
  watch.observe(node, what);
  signal.addEventListener("abort", () => watch.disconnect());
}

/** Make `nodes` the children of `parent`, moving only those out of place. */
export function place(parent: Element, nodes: Element[]): void {
  nodes.forEach((node, i) => {
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
  });
  while (parent.children.length > nodes.length) parent.lastElementChild!.remove();
}

/** Measures how to scroll `box` just enough to show `node`, without moving the page; returns what scrolls. */
export function reveal(box: HTMLElement, node: Element): (() => void)[] {
  if (!node.isConnected) return [];
  const moves: (() => void)[] = [];
  const outer = box.getBoundingClientRect();
  const inner = node.getBoundingClientRect();
  if (box.scrollHeight > box.clientHeight && (inner.top < outer.top + 4 || inner.bottom > outer.bottom - 4)) {
    const by = inner.top - outer.top - (inner.top < outer.top ? 8 : outer.height - inner.height - 8);
    moves.push(() => (box.scrollTop += by));
  }
  // sideways, scroll the nearest box that overflows, such as the body of a card
  let at = node.parentElement;
  while (at && box.contains(at) && at.scrollWidth <= at.clientWidth) at = at.parentElement;
  if (!at || !box.contains(at)) return moves;
  const [edge, sideways] = [at.getBoundingClientRect(), at];
  const margin = Math.min(40, edge.width / 8);
  const by = inner.left - edge.left - (edge.width - inner.width) / 2;
  if (inner.left < edge.left + margin || inner.right > edge.right - margin) moves.push(() => (sideways.scrollLeft += by));
  return moves;
}
