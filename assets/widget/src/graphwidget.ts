// The debugger's graph pane, a module of its own.
import { el } from "./dom.js";
import { GraphPane } from "./graph.js";
import type { MakePane } from "./lazypane.js";
import type { State } from "./replay.js";
import { copyButton } from "./sharing.js";
import { letter } from "./sketchview.js";
import type { Codes } from "./wire.js";

export default ((host, { store, commands, share }, signal) => {
  const pane = new GraphPane(host, store, (node) => commands.choose(node, store.now.graph), signal);
  host.querySelector(".kv-tools")!.append(copyButton(host, "graph", share, signal));
  host.append(graphLegend(store.t.p.codes));
  return pane;
}) satisfies MakePane;

const PLAIN = new Set(["waiting", "done"]); // look like what they are: nothing yet, and nothing more to say

function graphLegend(codes: Codes): HTMLElement {
  const signs = codes.state.filter(([name]) => !PLAIN.has(name)).map(([name, , about]) =>
    el("span", {}, el("i.kv-sample", { "data-state": name }, letter(codes, name as State) || "\u00A0"), about));
  return el("p.kv-graph-legend", { "data-kv": "graph-legend" }, ...signs);
}
