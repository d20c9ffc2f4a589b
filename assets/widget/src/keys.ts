// The keyboard: what keys do, which keys belong to the host, where Tab leads, and that the focus is never lost.
// A handled key is not propagated, since the notebook has keys of its own.
import { Delay, on, onMutation, stop } from "./dom.js";

// JupyterLab handles its shortcuts before a key reaches the page, and respects only this attribute: so it is set key by key.
const SUPPRESS = "data-lm-suppress-shortcuts";
const INSIDE = { childList: true, subtree: true };
const EDITS = /^([acvxyz]|Arrow\w+|Home|End|Backspace|Delete|Insert)$/i;

function typing(target: HTMLElement): boolean {
  const { tagName, isContentEditable } = target;
  if (tagName === "INPUT") return !/^(range|checkbox|radio|button)$/.test((target as HTMLInputElement).type);
  return tagName === "SELECT" || tagName === "TEXTAREA" || isContentEditable;
}

/** Whether a key is for the page: plain keys are; those with Ctrl, Alt or Cmd are not, except for the palette and for editing text. */
export function ours(event: KeyboardEvent): boolean {
  const { key, shiftKey } = event;
  const write = typing(event.composedPath()[0] as HTMLElement);
  if (event.ctrlKey || event.metaKey) {
    if (key.toLowerCase() === "k" && !shiftKey) return true;
    if (write && event.getModifierState("AltGraph")) return true;
    return write && !event.altKey && EDITS.test(key) && (!shiftKey || key.length > 1 || key.toLowerCase() === "z");
  }
  if (event.altKey) return false;
  return !(key === "Enter" && shiftKey); // runs the cell
}

export function shareKeys(root: HTMLElement, signal: AbortSignal): void {
  root.setAttribute(SUPPRESS, "true");
  const look = (event: KeyboardEvent) => {
    if (!event.composedPath().includes(root)) return;
    if (ours(event)) root.setAttribute(SUPPRESS, "true");
    else root.removeAttribute(SUPPRESS);
  };
  let listening: AbortController | null = null;
  const leave = () => {
    listening?.abort();
    listening = null;
    root.setAttribute(SUPPRESS, "true");
  };
  on(root, "focusin", () => {
    if (listening) return;
    listening = new AbortController();
    addEventListener("keydown", look, { capture: true, signal: listening.signal });
  }, signal);
  on(root, "focusout", (event) => {
    if (!root.contains(event.relatedTarget as Node | null)) leave();
  }, signal);
  signal.addEventListener("abort", leave);
}

/** What keys do, by `KeyboardEvent.key`; `Shift+` in front of function keys. */
export interface Keys {
  moves: Record<string, () => void>;
  enter?(): boolean; // whether there was something to do
  pause(): void; // called before any other move than Space
}

export function keys(root: HTMLElement, { moves, enter, pause }: Keys, signal: AbortSignal): void {
  on(root, "keydown", (event) => {
    const target = event.target as HTMLElement;
    const tag = target.tagName;
    const range = tag === "INPUT" && (target as HTMLInputElement).type === "range";
    const { key } = event;
    if (!ours(event)) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && key === "k" && moves["Ctrl+k"]) {
      stop(event);
      return moves["Ctrl+k"]();
    }
    if (typing(target)) {
      // typed keys are not for the host either
      event.stopPropagation();
      if (key === "Escape") {
        moves.Escape();
        root.focus({ preventScroll: true });
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (range && /^(Arrow|Home|End|Page)/.test(key)) return event.stopPropagation(); // a slider moves itself
    if ((key === " " || key === "Enter") && tag === "BUTTON") return event.stopPropagation(); // a button presses itself
    if (key === "Enter" && enter?.()) return stop(event);
    if (/^Page|^Arrow(Up|Down)$/.test(key)) return event.stopPropagation(); // scrolls the pane under the focus
    const move = moves[event.shiftKey && key.startsWith("F") ? `Shift+${key}` : key];
    if (!move) return;
    if (key !== " ") pause();
    stop(event);
    move();
  }, signal);
}

/** If the focused element disappears, its list or else the debugger gets the focus, never the page around it. */
export function keepFocus(root: HTMLElement, signal: AbortSignal): void {
  let path: HTMLElement[] = []; // what had the focus, and all around it
  let pressed = false; // elsewhere: then it is to go
  on(root, "focusin", (event) => {
    path = [];
    for (let at = event.target as HTMLElement | null; at && at !== root; at = at.parentElement) path.push(at);
    path.push(root);
  }, signal);
  const mend = () => {
    const [gone] = path;
    const focused = (root.getRootNode() as Document | ShadowRoot).activeElement;
    if (!gone || pressed || !root.isConnected || (focused && focused !== document.body)) return;
    if (gone.isConnected && gone.offsetParent !== null) return;
    const left = path.find((node) => node !== gone && node.isConnected && root.contains(node) && node.offsetParent !== null && (node === root || node.hasAttribute("tabindex")));
    (left ?? root).focus({ preventScroll: true });
  };
  on(root, "focusout", (event) => {
    if (!event.relatedTarget) requestAnimationFrame(mend);
  }, signal);
  onMutation(root, INSIDE, () => { if (path.length && !path[0].isConnected) mend(); }, signal);
  document.addEventListener("pointerdown", (event) => {
    pressed = !event.composedPath().includes(root);
    if (pressed) path = [];
  }, { capture: true, signal });
}

/** Parts of the page, and the arrow keys that move within them. */
const PARTS: [selector: string, back: string, ahead: string][] = [
  [".kv-bar, .kv-story, .kv-map-tools[role=toolbar]", "ArrowLeft", "ArrowRight"],
  [".kv-findings, .kv-graph, .kv-side, .kv-map, .kv-panel, .kv-status", "ArrowUp", "ArrowDown"],
];
const PART = PARTS.map(([selector]) => selector).join();
const ITEMS = "button:not([role=tab], .kv-word), :is(.kv-bar, .kv-map-tools) :is(select, input)";
const LATER = 200; // ms: nothing of this is needed for a drawing

function partOf(item: Element): HTMLElement | null {
  const part = item.closest<HTMLElement>(`.kv-pop, ${PART}`);
  return part?.classList.contains("kv-pop") ? null : part;
}

/**
 * One tab stop for each part of the page: Tab leads to the button that was used last there, arrows go on from it. Where the focus
 * came by the mouse, arrows keep moving the cursor.
 */
export function roving(root: HTMLElement, signal: AbortSignal): void {
  const used = new WeakMap<HTMLElement, HTMLElement>();
  let pressed = false;
  const later = new Delay(signal);

  const settle = () => {
    later.stop();
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
    // the status line is reached by keys of its own
    for (const [item, part] of all) item.tabIndex = first.get(part) === item && !part.classList.contains("kv-status") ? 0 : -1;
  };
  // the splitters are one stop together
  const splitters = () => [...root.querySelectorAll<HTMLElement>(".kv-splitter")].filter((bar) => !bar.closest("[hidden]"));
  let bar: HTMLElement | null = null;
  const settleBars = () => {
    const all = splitters();
    const stop = bar && all.includes(bar) ? bar : all[0];
    for (const one of all) one.tabIndex = one === stop ? 0 : -1;
  };
  const soon = () => { if (!later.waits) later.start(LATER, settle); };
  onMutation(root, INSIDE, soon, signal);
  soon();

  on(root, "pointerdown", () => void (pressed = true), signal);
  on(root, "focusin", (event) => {
    const item = event.target as HTMLElement;
    if (item.matches(".kv-splitter")) bar = item;
    const part = item.matches(ITEMS) && partOf(item);
    if (part) used.set(part, item);
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
      stop(event);
      return all[(all.indexOf(item) + page + all.length) % all.length].focus();
    }
    if (pressed || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !item.matches(ITEMS)) return;
    const part = partOf(item);
    const [, back, ahead] = PARTS.find(([selector]) => part?.matches(selector)) ?? [];
    const by = event.key === ahead ? 1 : event.key === back ? -1 : 0;
    if (!part || !by) return;
    const there = [...part.querySelectorAll<HTMLElement>(ITEMS)].filter((n) => partOf(n) === part && n.offsetParent !== null && !(n as HTMLButtonElement).disabled);
    stop(event);
    there[there.indexOf(item) + by]?.focus();
  }, { capture: true, signal });
}
