// All that a person can have done, once: the toolbar, the keys, the help panel and the palette read this.
import type { Commands } from "./commands.js";

/** `keys`: as `KeyboardEvent.key` has them, `Shift+` in front of function keys; the first one is shown. */
export interface Action { id: string; title: string; keys: string[]; run(): void }

/** What is not a command over the trace: parts of the page. */
export interface Places {
  search(): void; help(): void; breakpoints(): void; palette(): void; goto(): void; fit(): void; full(): void;
  wasBack(): void; wasForward(): void; close(): void; nextHit(by: 1 | -1): void; choose(): void;
}

export function actions(commands: Commands, places: Places): Action[] {
  const list: Action[] = [];
  const add = (id: string, title: string, keys: string, run: () => void) => list.push({ id, title, keys: keys ? keys.split(" ").map((key) => KEYS[key] ?? key) : [], run });
  add("next", "Next op; a body counts as one", "ArrowRight n F10", () => commands.next());
  add("back", "Previous op", "ArrowLeft p Shift+F10", () => commands.back());
  add("into", "Into the If, Loop or function that comes next, or run one op", "i F11", () => commands.into());
  add("out", "Out: run to the end of this body or block", "o Shift+F11", () => commands.out());
  add("continue", "Continue to the next breakpoint", "c", () => commands.continue());
  add("reverse", "Continue backwards", "C", () => commands.reverse());
  add("next-token", "The same op, one decode step on", ".", () => commands.nextRun());
  add("previous-token", "The same op, one decode step earlier", ",", () => commands.previousRun());
  add("first", "First step", "Home", () => commands.first());
  add("last", "Last step", "End", () => commands.last());
  add("go", "Go to a step by its number", "g", places.goto);
  add("breakpoint", "Breakpoint on the selection", "b", () => commands.toggleSelected());
  add("breakpoints", "Breakpoints: what Continue stops at", "", places.breakpoints);
  add("breakpoint-query", "Breakpoint where the query finds a step", "", () => (commands.store.query && !commands.store.wrong ? commands.toggle("query", commands.store.query) : commands.store.tell("write a query first")));
  add("why", "Why? Explain the decision", "w", () => commands.why());
  add("choose", "Run the selected op of the frontier next", "Enter", places.choose);
  add("play", "Play, pause", "Space", () => commands.play());
  add("search", "Search and filter by a query", "/", places.search);
  add("next-hit", "Next step that the query finds", "", () => places.nextHit(1));
  add("previous-hit", "Previous step that the query finds", "", () => places.nextHit(-1));
  add("was-back", "Back to where one was", "u", places.wasBack);
  add("was-forward", "Forward again", "U", places.wasForward);
  add("fit", "Fit the graph, or true size", "f", places.fit);
  add("full", "Full screen", "F", places.full);
  add("palette", "All commands", "Ctrl+k :", places.palette);
  add("help", "Keys and signs", "?", places.help);
  add("close", "Clear, close", "Escape", places.close);
  return list;
}

const KEYS: Record<string, string> = { Space: " " };
const SHOWN: Record<string, string> = { ArrowRight: "→", ArrowLeft: "←", " ": "Space", Escape: "Esc", "Ctrl+k": "Ctrl-K" };

/** A key as it is written for people. */
export function shown(key: string): string {
  return SHOWN[key] ?? key;
}

/** Keys of an action for people; those for debuggers' habits are left out. */
export function keysOf({ keys }: Action): string {
  return keys.filter((key) => !/F\d/.test(key)).map(shown).join(" or ");
}

/** What every key does; Enter is not a plain one, see keys.ts. */
export function movesOf(list: Action[]): Record<string, () => void> {
  return Object.fromEntries(list.flatMap((action) => action.keys.filter((key) => key !== "Enter").map((key) => [key, () => action.run()])));
}
