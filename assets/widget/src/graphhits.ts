// Ops of a graph that the query finds, in whatever run and iteration.
import type { Store } from "./store.js";

const NONE: ReadonlySet<number> = new Set();
let known: { hits: Int32Array; graph: number; nodes: ReadonlySet<number> } | null = null;

export function hitNodes({ hits, t: { p } }: Pick<Store, "hits" | "t">, graph: number): ReadonlySet<number> {
  if (!hits?.length) return NONE;
  if (known?.hits === hits && known.graph === graph) return known.nodes;
  const nodes = new Set<number>();
  for (const step of hits) if (p.frame.graph[p.step.frame[step]] === graph) nodes.add(p.step.node[step]);
  known = { hits, graph, nodes };
  return nodes;
}
