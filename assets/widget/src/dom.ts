// Small helpers to make elements. Text from models only ever becomes a text node or an attribute, never markup.

export type Attributes = Record<string, string | number | boolean | null | undefined>;

function fill(node: Element, attributes: Attributes, children: (Node | string)[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
}

export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}

/** Touch the page only when the text differs: a text change costs a layout, a comparison does not. */
export function say(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function mark(node: Element, name: string, value: string | number | null): void {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** The button of a pane or the toolbar: `kv` is the hook of browser tests, `keys` what aria-keyshortcuts tells. */
export function button(text: string, title: string, kv: string, click: () => void, signal: AbortSignal, keys?: string): HTMLButtonElement {
  const node = el("button", { type: "button", title, "data-kv": kv, "aria-keyshortcuts": keys }, text);
  node.addEventListener("click", click, { signal });
  return node;
}

/** Nearest ancestor with this data-kv hook, from an event. */
export function hit(event: Event, kv: string): HTMLElement | null {
  return (event.target as Element | null)?.closest<HTMLElement>(`[data-kv="${kv}"]`) ?? null;
}

/** Scroll `box` just enough that `node` is inside, without moving the page around it. */
export function reveal(box: HTMLElement, node: Element, middle = false): void {
  const outer = box.getBoundingClientRect();
  const inner = node.getBoundingClientRect();
  if (inner.top < outer.top + 4 || inner.bottom > outer.bottom - 4) {
    const at = middle ? outer.height * 0.4 : inner.top < outer.top ? 8 : outer.height - inner.height - 8;
    box.scrollTop += inner.top - outer.top - at;
  }
  // sideways it is the nearest box that overflows, such as the body of a card
  for (let at = node.parentElement; at && box.contains(at); at = at.parentElement) {
    if (at.scrollWidth <= at.clientWidth || at instanceof SVGElement) continue;
    const edge = at.getBoundingClientRect();
    if (inner.left < edge.left || inner.right > edge.right) at.scrollLeft += inner.left - edge.left - (edge.width - inner.width) / 2;
    return;
  }
}
