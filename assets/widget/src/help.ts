// The help panel: keys, and what the signs and borders of the graph and the bars mean.
import { keysOf, type Action } from "./actions.js";
import { el } from "./dom.js";
import { letter } from "./sketchview.js";
import type { State } from "./replay.js";
import type { Codes, QueryTable } from "./wire.js";

const CACHE = "a cache: dark valid rows, bright written in this run, pale reserved";
/** More on owners than the payload says. */
const OWNED: Record<string, string> = { weights: ", all in one bar W", donated: ": the run may overwrite it", caller: ": read only" };
const NOTES = [
  "B12 is a buffer; B12.3 is the same buffer after its contents were overwritten three times.",
  "The graph shows the frame of the op that just ran. Recorded steps need no kernel; past the end the kernel runs more.",
];

/** The fields of queries, as the payload tells them. */
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
  const pressed = actions.filter((action) => action.keys.length).map((action): [string, string] => [keysOf(action), action.title]);
  const box = panel(codes, pressed, state.map(([name, , about]) => [name, about]), [el("h4", {}, "Buffers"), el("ul", {}, ...bars), el("h4", {}, "Bytes"), el("dl", {}, ...Object.values(codes.figure ?? {}).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))], NOTES);
  box.append(el("div.kv-language", {}, ...language(query)));
  return box;
}

/** Keys on one side; on the other the signs of the graph's boxes, more of the like, and notes. */
export function panel(codes: Codes, pressed: [string, string][], words: [string, string][], more: Node[], notes: string[]): HTMLElement {
  const states = words.map(([s, text]) => el("li", {}, el("span.kv-sample", { "data-state": s }, letter(codes, s as State) || "\u00A0"), text));
  return el("div.kv-pop.kv-help", { role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...pressed.flatMap(([k, text]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, text)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), ...more, ...notes.map((n) => el("p.kv-soft", {}, n))));
}
