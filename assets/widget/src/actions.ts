// All commands with their titles and keys, once: toolbar, keys, palette and help panel read this list.
import type { Commands } from "./commands.js";
import { el } from "./dom.js";
import { letter, type State } from "./replay.js";
import type { Codes, QueryTable } from "./wire.js";

/** `keys`: as `KeyboardEvent.key` has them, `Shift+` in front of function keys; the first one is shown. */
export interface Action { id: string; title: string; keys: string[]; run(): void }

/** Commands on parts of the page rather than on the trace. */
export interface Places {
  search(): void; help(): void; breakpoints(): void; palette(): void; goto(): void; fit(): void; full(): void;
  wasBack(): void; wasForward(): void; close(): void; nextHit(by: 1 | -1): void; walk(by: 1 | -1): void; choose(): void;
}

export function action(id: string, title: string, keys: string, run: () => void): Action {
  return { id, title, keys: keys ? keys.split(" ").map((key) => KEYS[key] ?? key) : [], run };
}

export function actions(commands: Commands, places: Places): Action[] {
  const list: Action[] = [];
  const { store } = commands;
  const add = (...given: Parameters<typeof action>) => list.push(action(...given));
  add("next", "Next op; a body counts as one", "ArrowRight n F10", () => commands.next());
  add("back", "Previous op", "ArrowLeft p Shift+F10", () => commands.back());
  add("into", "Into the If, Loop or function that comes next, or run one op", "i F11", () => commands.into());
  add("out", "Out: run to the end of this body or block", "o Shift+F11", () => commands.out());
  add("continue", "Continue to the next breakpoint", "c", () => commands.continue());
  add("reverse", "Continue backwards", "C", () => commands.reverse());
  add("next-token", "The same op, one decode step on", ".", () => commands.nextRun());
  add("previous-token", "The same op, one decode step earlier", ",", () => commands.previousRun());
  add("first", "First step", "Home", () => store.seek(-1));
  add("last", "Last step", "End", () => store.go(store.t.p.total - 1));
  add("go", "Go to a step by its number", "g", places.goto);
  add("breakpoint", "Breakpoint on the selection", "b", () => commands.toggleSelected());
  add("breakpoints", "Breakpoints: what Continue stops at", "", places.breakpoints);
  add("breakpoint-query", "Breakpoint where the query finds a step", "", () => (store.query && !store.wrong ? commands.toggle("query", store.query) : store.tell("write a query first")));
  add("why", "Why? Explain the decision", "w", () => commands.why());
  add("choose", "Run the selected op of the frontier next", "Enter", places.choose);
  add("play", "Play, pause", "Space", () => commands.play());
  add("search", "Search and filter by a query", "/", places.search);
  add("next-hit", "Next step that the query finds", "", () => places.nextHit(1));
  add("previous-hit", "Previous step that the query finds", "", () => places.nextHit(-1));
  add("next-evidence", "Next step of the finding, or back to the finding", "]", () => places.walk(1));
  add("previous-evidence", "Previous step of the finding", "[", () => places.walk(-1));
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

export function shown(key: string): string { return SHOWN[key] ?? key; }

/** The keys of an action as text, without the function keys of other debuggers. */
export function keysOf({ keys }: Action): string {
  return keys.filter((key) => !/F\d/.test(key)).map(shown).join(" or ");
}

/** What each key runs; Enter is handled in keys.ts. */
export function movesOf(list: Action[]): Record<string, () => void> {
  return Object.fromEntries(list.flatMap((action) => action.keys.filter((key) => key !== "Enter").map((key) => [key, () => action.run()])));
}

const CACHE = "a cache: dark valid rows, bright written in this run, pale reserved";
/** Added to what the payload says about owners. */
const OWNED: Record<string, string> = { weights: ", all in one bar W", donated: ": the run may overwrite it", caller: ": read only" };
const NOTES = [
  "B12 is a buffer; B12.3 is the same buffer after its contents were overwritten three times.",
  "The graph shows the frame of the op that just ran. Recorded steps need no kernel; past the end the kernel runs more.",
];

function language({ fields, kinds, examples }: QueryTable): Node[] {
  const about = new Map(kinds.map((kind) => [kind.name, `${kind.about} (${kind.signs.join(" ")})`]));
  return [
    el("h4", {}, "Queries"),
    el("p.kv-soft", {}, "A word finds names, decisions, reasons, decoded words and buffers. A field has a sign and a value. a b: both; a or b: at least one; -a: not a; quotes: exactly this text; a:x|y: x or y; a:2..5: from 2 to 5; sort:-copied; limit:10. For example ", ...examples.flatMap((text, i) => [i ? ", " : "", el("code", {}, text)]), "."),
    el("dl", {}, ...fields.flatMap(({ name, aliases, kind, about: text }) => [el("dt", {}, el("kbd", { title: about.get(kind) }, [name, ...aliases.filter((a) => !a.includes(" "))].slice(0, 3).join(", "))), el("dd", {}, text)])),
  ];
}

export function help(codes: Codes, query: QueryTable, actions: Action[]): HTMLElement {
  const { origin, owner, state } = codes;
  const owners = origin.map((name, i) => [name, `${owner[i]}${OWNED[name] ?? ""}`]);
  const bars = [...owners, ["cache", CACHE]].map(([origin, text]) => el("li.kv-mem-row", { "data-origin": origin }, el("span.kv-track", {}, el("i.kv-fill")), text));
  const box = panel(codes, actions, state.map(([name, , about]) => [name, about]), [el("h4", {}, "Buffers"), el("ul", {}, ...bars), el("h4", {}, "Bytes"), el("dl", {}, ...Object.values(codes.figure ?? {}).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))], NOTES);
  box.append(el("div.kv-language", {}, ...language(query)));
  return box;
}

/** The help panel: keys on the left; states of ops, `more` and notes on the right. */
export function panel(codes: Codes, actions: Action[], words: [string, string][], more: Node[], notes: string[]): HTMLElement {
  const states = words.map(([s, text]) => el("li", {}, el("span.kv-sample", { "data-state": s }, letter(codes, s as State) || "\u00A0"), text));
  return el("div.kv-pop.kv-help", { role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...actions.filter(({ keys }) => keys.length).flatMap((one) => [el("dt", {}, el("kbd", {}, keysOf(one))), el("dd", {}, one.title)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), ...more, ...notes.map((n) => el("p.kv-soft", {}, n))));
}
