// The graph pane as a module: it is wanted at once, but the page is there a little before it.
import { GraphPane } from "./graph.js";
import type { MakePane } from "./lazypane.js";

export default ((host, { store, commands }, signal) => new GraphPane(host, store, (node) => commands.choose(node, store.now.graph), signal)) satisfies MakePane;
