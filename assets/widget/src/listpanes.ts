// Panes that are not there at opening, as one module: they share most of what they need.
import layers from "./layers.js";
import type { MakePane } from "./lazypane.js";
import buffers from "./bufferlist.js";
import missed from "./missedpane.js";
import { TotalsPane } from "./totals.js";

const totals: MakePane = (host, { store, commands, ask }, signal) => new TotalsPane(host, store, commands, ask, signal);
const panes: Record<string, MakePane> = { buffers, layers, missed, totals };
export default panes;
