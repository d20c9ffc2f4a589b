// Which keys are ours. JupyterLab takes its shortcuts while a key is still on its way down to the page, and asks nobody but
// the attribute below: so the attribute is set key by key, in front of it.
import { on } from "./dom.js";

const SUPPRESS = "data-lm-suppress-shortcuts";
const EDITS = /^([acvxyz]|Arrow\w+|Home|End|Backspace|Delete|Insert)$/i;

export function typing(target: HTMLElement): boolean {
  const { tagName, isContentEditable } = target;
  if (tagName === "INPUT") return !/^(range|checkbox|radio|button)$/.test((target as HTMLInputElement).type);
  return tagName === "SELECT" || tagName === "TEXTAREA" || isContentEditable;
}

/** Plain keys are ours; those with Ctrl, Alt or Cmd belong to the host, but for the palette's and for editing a text. */
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
  // only while the focus is here
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
