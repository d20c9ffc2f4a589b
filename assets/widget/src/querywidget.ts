// The entry of the module "query": loaded when somebody asks something.
import type { Engine } from "./engine.js";
import { find, test } from "./query.js";
import { read } from "./queryread.js";

export default { read, find, test } satisfies Engine;
