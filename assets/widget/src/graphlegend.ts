// What the signs of the graph mean, under it: those of states, and what else is drawn.
import { el } from "./dom.js";
import { letter } from "./sketchview.js";
import type { State } from "./replay.js";
import type { Codes } from "./wire.js";

const PLAIN = new Set(["waiting", "done"]); // look like what they are: nothing yet, and nothing more to say

export function graphLegend(codes: Codes): HTMLElement {
  const signs = codes.state.filter(([name]) => !PLAIN.has(name)).map(([name, , about]) =>
    el("span", {}, el("i.kv-sample", { "data-state": name }, letter(codes, name as State) || "\u00A0"), about));
  return el("p.kv-graph-legend", { "data-kv": "graph-legend" }, ...signs);
}
