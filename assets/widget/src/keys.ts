// The keyboard. It listens on the root only, and a key that was used goes no further: the notebook has keys of its own.
import type { Commands } from "./commands.js";
import type { Toolbar } from "./toolbar.js";

export interface Actions { commands: Commands; toolbar: Toolbar; search(): void; help(): void; escape(): void; fit(): void; chooseSelected(): boolean }

/** For the help panel and for aria-keyshortcuts; F5 and F9 stay free, they belong to the browser and to JupyterLab. */
export const KEYS: [string, string][] = [
  ["→ or n", "next op"], ["← or p", "previous op"], ["i", "into an If, Loop or function"], ["o", "out: to the end of this body or block"],
  ["c", "continue to the next breakpoint"], ["C", "continue backwards"], [". and ,", "same op, next or previous decode step"],
  ["Home, End", "first, last step"], ["g", "go to a step by number"], ["b", "breakpoint on the selection"], ["w", "why? explain the decision"],
  ["Enter", "run the selected frontier op next"], ["Space", "play, pause"], ["/", "search"], ["f", "fit the graph, or true size"], ["?", "this help"], ["Esc", "clear, close"],
];

export function keys(root: HTMLElement, a: Actions, signal: AbortSignal): void {
  const { commands } = a;
  const moves: Record<string, () => void> = {
    ArrowRight: () => commands.next(), n: () => commands.next(), F10: () => commands.next(),
    ArrowLeft: () => commands.back(), p: () => commands.back(), "Shift+F10": () => commands.back(),
    i: () => commands.into(), F11: () => commands.into(), o: () => commands.out(), "Shift+F11": () => commands.out(),
    c: () => commands.continue(), C: () => commands.reverse(), ".": () => commands.nextRun(), ",": () => commands.previousRun(),
    Home: () => commands.first(), End: () => commands.last(), g: () => a.toolbar.focusGoto(), b: () => commands.toggleSelected(),
    w: () => commands.why(), " ": () => commands.play(), "/": () => a.search(), f: () => a.fit(), "?": () => a.help(), Escape: () => a.escape(),
  };
  root.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const tag = target.tagName;
    const range = tag === "INPUT" && (target as HTMLInputElement).type === "range";
    const typing = (tag === "INPUT" && !range && (target as HTMLInputElement).type !== "checkbox") || tag === "SELECT" || tag === "TEXTAREA";
    const { key } = event;
    if (typing) {
      // keys that are being typed are nobody else's either
      event.stopPropagation();
      if (key === "Escape") {
        a.escape();
        root.focus({ preventScroll: true });
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (range && /^(Arrow|Home|End|Page)/.test(key)) return event.stopPropagation(); // a slider moves itself
    if ((key === " " || key === "Enter") && tag === "BUTTON") return event.stopPropagation(); // a button presses itself
    if (key === "Enter" && a.chooseSelected()) return stop(event);
    if (/^Page|^Arrow(Up|Down)$/.test(key)) return event.stopPropagation(); // scrolls the pane under the focus
    const move = moves[event.shiftKey && key.startsWith("F") ? `Shift+${key}` : key];
    if (!move) return;
    if (key !== " ") commands.pause();
    stop(event);
    move();
  }, { signal });
}

function stop(event: KeyboardEvent): void {
  event.preventDefault();
  event.stopPropagation();
}
