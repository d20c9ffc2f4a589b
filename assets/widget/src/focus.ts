// The focus is never lost to the page: when what had it goes, its list takes it, or else the debugger.
import { on } from "./dom.js";

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
  const watch = new MutationObserver(() => { if (path.length && !path[0].isConnected) mend(); });
  watch.observe(root, { childList: true, subtree: true });
  signal.addEventListener("abort", () => watch.disconnect());
  document.addEventListener("pointerdown", (event) => {
    pressed = !event.composedPath().includes(root);
    if (pressed) path = [];
  }, { capture: true, signal });
}
