// The help panel: keys, and what the signs and borders of the graph and the bars mean.
import { el } from "./dom.js";
import { LETTER, STATE_WORDS } from "./drawing.js";
import { KEYS } from "./keys.js";
import type { State, StateWords } from "./replay.js";

const BARS: [string, string][] = [
  ["weights", "weights, all in one bar W"], ["cache", "a cache: dark valid rows, bright written in this run, pale reserved"],
  ["donated", "donated by the caller: the run may overwrite it"], ["caller", "borrowed from the caller: read only"], ["run", "owned by this run"],
];
const NOTES = [
  "B12 is a buffer; B12.3 is the same buffer after its contents were overwritten three times.",
  "The graph shows the frame of the op that just ran. Stepping on recorded steps asks nobody; past the end the kernel runs more.",
  "Bytes: allocated is new capacity, written is what kernels stored, copied is the part of it that existed already, live is what is held while the op runs. Kernel scratch is not counted.",
];

export function help(): HTMLElement {
  const bars = BARS.map(([origin, text]) => el("li.kv-mem-row", { "data-origin": origin }, el("span.kv-track", {}, el("i.kv-fill")), text));
  return panel(KEYS, STATE_WORDS, [el("h4", {}, "Buffers"), el("ul", {}, ...bars)], NOTES);
}

/** Keys on one side; on the other the signs of the graph's boxes, more of the like, and notes. */
export function panel(pressed: [string, string][], words: StateWords, more: Node[], notes: string[]): HTMLElement {
  const states = Object.entries(words).map(([s, text]) => el("li", {}, el("span.kv-sample", { "data-state": s }, LETTER[s as State] || "\u00A0"), text));
  return el("div.kv-pop.kv-help", { role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...pressed.flatMap(([k, text]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, text)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), ...more, ...notes.map((n) => el("p.kv-soft", {}, n))));
}
