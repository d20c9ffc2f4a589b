// One tab stop for many: Tab comes to the item that was used last, arrows go on from there.
import { on } from "./dom.js";

const AHEAD = ["ArrowRight", "ArrowDown"];
const BACK = ["ArrowLeft", "ArrowUp"];

/** Whether it can be seen and pressed. */
const there = (item: HTMLElement) => item.offsetParent !== null && !(item as HTMLButtonElement).disabled;

function neighbour(host: HTMLElement, items: string, key: string): HTMLElement | null {
  const by = AHEAD.includes(key) ? 1 : BACK.includes(key) ? -1 : 0;
  if (!by) return null;
  const all = [...host.querySelectorAll<HTMLElement>(items)].filter(there);
  const focused = (host.getRootNode() as Document | ShadowRoot).activeElement;
  const at = all.findIndex((item) => item === focused);
  return all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by] ?? null;
}

/**
 * A bar of buttons. Arrows move the focus only where it came by the keyboard: whoever pressed a button with the mouse goes on
 * stepping with them. `first`: the item that has the tab stop until one is used.
 */
export function bar(host: HTMLElement, items: string, first: HTMLElement, signal: AbortSignal): void {
  let pressed = false;
  let stop = first;
  const settle = (to: HTMLElement) => {
    stop = to;
    for (const item of host.querySelectorAll<HTMLElement>(items)) item.tabIndex = item === stop ? 0 : -1;
  };
  settle(first);
  on(host, "pointerdown", () => void (pressed = true), signal);
  on(host, "focusout", (event) => {
    if (!host.contains(event.relatedTarget as Node | null)) pressed = false;
  }, signal);
  on(host, "focusin", (event) => {
    const item = (event.target as HTMLElement).closest<HTMLElement>(items);
    if (item) settle(item);
  }, signal);
  on(host, "keydown", (event) => {
    if (pressed || event.ctrlKey || event.metaKey || event.altKey || !(event.target as HTMLElement).matches(items)) return;
    const next = neighbour(host, items, event.key);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  }, signal);
}

/**
 * A list whose items come and go: the list itself has the tab stop, its items none. Up and down move from item to item, Enter
 * presses one.
 */
export function list(host: HTMLElement, items: string, signal: AbortSignal): void {
  host.tabIndex = 0;
  on(host, "keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    if (event.key === "Enter" && target !== host && target.matches(items)) {
      event.preventDefault();
      event.stopPropagation();
      return target.click();
    }
    if (!/Arrow(Up|Down)/.test(event.key)) return;
    const next = neighbour(host, items, event.key);
    event.stopPropagation();
    if (!next) return;
    event.preventDefault();
    next.tabIndex = -1;
    next.focus();
  }, signal);
}
