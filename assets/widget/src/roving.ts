// One tab stop for each part of the page: Tab comes to the button that was used last there, arrows go on from it.
// Where the focus came by the mouse, arrows keep moving the cursor.
import { on } from "./dom.js";

/** Parts, and the arrows that lead through them; what stands in a row leaves up and down to what it is. */
const PARTS: [selector: string, back: string, ahead: string][] = [
  [".kv-bar, .kv-verdict, .kv-story", "ArrowLeft", "ArrowRight"],
  [".kv-graph, .kv-side, .kv-map, .kv-panel, .kv-status", "ArrowUp", "ArrowDown"],
];
const PART = PARTS.map(([selector]) => selector).join();
const ITEMS = "button:not([role=tab], .kv-word), .kv-bar :is(select, input)";
const LATER = 200; // ms: nothing of this is needed for a drawing

function partOf(item: Element): HTMLElement | null {
  if (item.closest(".kv-map-tools[role=toolbar]")) return null; // it moves within itself
  const part = item.closest<HTMLElement>(`.kv-pop, ${PART}`);
  return part?.classList.contains("kv-pop") ? null : part;
}

export function roving(root: HTMLElement, signal: AbortSignal): void {
  const used = new WeakMap<HTMLElement, HTMLElement>();
  let pressed = false;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const settle = () => {
    clearTimeout(timer);
    timer = undefined;
    const first = new Map<HTMLElement, HTMLElement>();
    const all: [HTMLElement, HTMLElement][] = [];
    for (const item of root.querySelectorAll<HTMLElement>(ITEMS)) {
      const part = partOf(item);
      if (!part) continue;
      all.push([item, part]);
      const good = !(item as HTMLButtonElement).disabled && !item.closest("[hidden]");
      if (good && (!first.has(part) || item.classList.contains("kv-go") || item === used.get(part))) first.set(part, item);
    }
    settleBars();
    // what the status line offers has keys
    for (const [item, part] of all) item.tabIndex = first.get(part) === item && !part.classList.contains("kv-status") ? 0 : -1;
  };
  // the bars between panes are one stop, too; their arrows are taken
  const splitters = () => [...root.querySelectorAll<HTMLElement>(".kv-splitter")].filter((bar) => !bar.closest("[hidden]"));
  let bar: HTMLElement | null = null;
  const settleBars = () => {
    const all = splitters();
    const stop = bar && all.includes(bar) ? bar : all[0];
    for (const one of all) one.tabIndex = one === stop ? 0 : -1;
  };
  const soon = () => void (timer ??= setTimeout(settle, LATER));
  const watch = new MutationObserver(soon);
  watch.observe(root, { childList: true, subtree: true });
  signal.addEventListener("abort", () => {
    watch.disconnect();
    clearTimeout(timer);
  });
  soon();

  on(root, "pointerdown", () => void (pressed = true), signal);
  on(root, "focusin", (event) => {
    const item = event.target as HTMLElement;
    if (item.matches(".kv-splitter")) bar = item;
    const part = item.matches(ITEMS) && partOf(item);
    if (!part) return soon();
    used.set(part, item);
    soon();
  }, signal);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Tab") {
      pressed = false;
      settle();
    }
    const item = event.target as HTMLElement;
    const page = { PageUp: -1, PageDown: 1 }[event.key];
    if (page && item.matches(".kv-splitter")) {
      const all = splitters();
      event.preventDefault();
      event.stopPropagation();
      return all[(all.indexOf(item) + page + all.length) % all.length].focus();
    }
    if (pressed || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !item.matches(ITEMS)) return;
    const part = partOf(item);
    const [, back, ahead] = PARTS.find(([selector]) => part?.matches(selector)) ?? [];
    const by = event.key === ahead ? 1 : event.key === back ? -1 : 0;
    if (!part || !by) return;
    const there = [...part.querySelectorAll<HTMLElement>(ITEMS)].filter((n) => partOf(n) === part && n.offsetParent !== null && !(n as HTMLButtonElement).disabled);
    event.preventDefault();
    event.stopPropagation();
    there[there.indexOf(item) + by]?.focus();
  }, { capture: true, signal });
}
