// The debugger's graph pane, a module of its own.
import { GraphPane } from "./graph.js";
import { graphLegend } from "./graphlegend.js";
import type { MakePane } from "./lazypane.js";
import { copyButton } from "./sharing.js";

export default ((host, { store, commands, share }, signal) => {
  const pane = new GraphPane(host, store, (node) => commands.choose(node, store.now.graph), signal);
  host.querySelector(".kv-tools")!.append(copyButton(host, "graph", share, signal));
  host.append(graphLegend(store.t.p.codes));
  return pane;
}) satisfies MakePane;
