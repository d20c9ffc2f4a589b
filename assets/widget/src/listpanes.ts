// Panes that are not there at opening, as one module: they share most of what they need.
import type { MakePane } from "./lazypane.js";
import { MemoryPane } from "./memory.js";
import { TotalsPane } from "./totals.js";

const panes: Record<string, MakePane> = {
  buffers: (host, { store }, signal) => new MemoryPane(host, store, signal),
  totals: (host, { store, commands, ask }, signal) => new TotalsPane(host, store, commands, ask, signal),
};
export default panes;
