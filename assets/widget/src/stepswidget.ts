// The entry of the module "steps".
import type { MakePane } from "./lazypane.js";
import { StepTable } from "./table.js";

export default ((host, { store, hits }, signal) => new StepTable(host, store, hits, signal)) satisfies MakePane;
