// The keyboard. It listens on the root only, and a key that was used goes no further: the notebook has keys of its own.
import { on } from "./dom.js";
import { ours, typing } from "./hostkeys.js";

/** What keys do, by `KeyboardEvent.key`; `Shift+` in front of function keys. */
export interface Keys {
  moves: Record<string, () => void>;
  enter?(): boolean; // whether there was something to do
  pause(): void; // told before any other move than Space
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
      // keys that are being typed are nobody else's either
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

function stop(event: KeyboardEvent): void {
  event.preventDefault();
  event.stopPropagation();
}
