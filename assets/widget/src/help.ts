// The help panel: keys, and what the signs and borders of the graph and the bars mean.
import { el } from "./dom.js";
import { LETTER, STATE_WORDS } from "./drawing.js";
import { KEYS } from "./keys.js";
import type { State } from "./replay.js";

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
  const states = (Object.keys(LETTER) as State[]).map((s) => el("li", {}, el("span", { class: "kv-sample", "data-state": s }, LETTER[s] || "\u00A0"), STATE_WORDS[s]));
  const bars = BARS.map(([origin, text]) => el("li", { class: "kv-mem-row", "data-origin": origin }, el("span", { class: "kv-track" }, el("i", { class: "kv-fill" })), text));
  return el("div", { class: "kv-pop kv-help", role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...KEYS.flatMap(([k, text]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, text)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), el("h4", {}, "Buffers"), el("ul", {}, ...bars), ...NOTES.map((n) => el("p", { class: "kv-soft" }, n))));
}
