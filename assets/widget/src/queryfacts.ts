// What a query can ask of a step, from the payload's columns: one function a field, as kvviz/query/step_facts.py has them.
import { opName, shape } from "./format.js";
import { pairsOf, pairState } from "./hiddenpairs.js";
import { freedBytes, outcome, placeOf, stack, type Trace } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Graph } from "./wire.js";

/** A number or null; texts; or [storage, generation] of buffers. */
export type Told = number | null | string[] | [number, number][];

// -- of nodes

function names(g: Graph, node: number): string[] {
  return [...g.nodes[node][3], ...g.nodes[node][4]].filter((v) => v >= 0).map((v) => g.values[v]);
}

const block = ({ p, x }: Trace, graph: number, node: number) => p.graphs[graph].blocks[x.graphs[graph].block[node]];

const role = ({ p }: Trace, graph: number, node: number) => p.graphs[graph].roles[p.graphs[graph].role[node]];

/** All that a bare word is looked for in. */
export function texts(t: Trace, graph: number, node: number): string {
  const g = t.p.graphs[graph];
  const [name, op, scope, inputs, outputs] = g.nodes[node];
  const values = [...inputs, ...outputs].map((v) => g.values[v] ?? "").join(" ");
  return `${op} ${name} ${scope} ${block(t, graph, node)?.title ?? ""} ${role(t, graph, node)} ${values}`.toLowerCase();
}

export const OF_NODE: Record<string, (t: Trace, graph: number, node: number) => Told> = {
  op: (t, graph, node) => [opName(t.p.graphs[graph].nodes[node][1]), t.p.graphs[graph].nodes[node][1]],
  name: (t, graph, node) => [t.p.graphs[graph].nodes[node][0]],
  scope: (t, graph, node) => [t.p.graphs[graph].nodes[node][2]],
  block: (t, graph, node) => [block(t, graph, node)?.title].filter((title) => title !== undefined),
  layer: (t, graph, node) => (t.p.graphs[graph].layer[node] < 0 ? null : t.p.graphs[graph].layer[node]),
  role: (t, graph, node) => [role(t, graph, node)],
  value: (t, graph, node) => names(t.p.graphs[graph], node),
};

// -- of steps

function reads(t: Trace, step: number): [number, number][] {
  const { p } = t;
  const f = p.step.frame[step];
  return p.graphs[p.frame.graph[f]].nodes[p.step.node[step]][3].flatMap((v) => {
    const place = placeOf(t, f, v, step - 1);
    return place ? [[place.storage, place.gen] as [number, number]] : [];
  });
}

function outs<T>({ p }: Trace, step: number, told: (out: number) => T): T[] {
  return Array.from({ length: p.step.out[step + 1] - p.step.out[step] }, (_, i) => told(p.step.out[step] + i));
}

const writes = (t: Trace, step: number): [number, number][] => outs(t, step, (o) => [t.p.out.storage[o], t.p.out.gen[o]]);

function caches(t: Trace, step: number): string[] {
  const { p, x } = t;
  if (!p.caches.length) return [];
  const touched = new Set([...reads(t, step), ...writes(t, step)].map(([storage]) => storage));
  const run = x.run[step];
  const main = stack(t, p.step.frame[step])[0];
  const { values } = p.graphs[p.frame.graph[main]];
  return p.caches.filter((cache) => {
    const value = values.indexOf(cache.input);
    for (let b = p.frame.bind[main]; b < p.frame.bind[main + 1]; b++) {
      if (value >= 0 && p.bind.value[b] === value && touched.has(p.bind.storage[b])) return true;
    }
    return touched.has(cache.storage[run] ?? -1);
  }).map((cache) => cache.name);
}

function iteration(t: Trace, step: number): number | null {
  const { frame } = t.p;
  for (let f = t.p.step.frame[step]; f >= 0; f = frame.parent[f]) if (frame.iteration[f] >= 0) return frame.iteration[f];
  return null;
}

function path(t: Trace, step: number): string[] {
  const labels = stack(t, t.p.step.frame[step]).slice(1).map((f) => t.p.strings[t.p.frame.label[f]]);
  return [labels.join(" › ") || "main"];
}

/** The word that a run made; a number where no text is known. */
export function wordOf({ p }: Trace, run: number): string {
  const made = p.runs[run];
  return made?.text.trim() || (made?.token === null || made?.token === undefined ? "" : String(made.token));
}

function codes({ p }: Trace, step: number): string[] {
  const found = new Set<string>();
  for (let b = p.step.block[step]; b < p.step.block[step + 1]; b++) found.add(p.strings[p.block.code[b]]);
  return [...found];
}

/** Of the pairs that a step takes part in: kinds, and whether it is hidden or broken. */
function hazards({ p }: Trace, step: number): string[] {
  const found = new Set(pairsOf(p, step).flatMap((pair) => [p.strings[p.pair.kind[pair]], pairState(p, pair)]));
  return p.query.fields.find((f) => f.name === "hazard")!.choices.filter((name) => found.has(name));
}

const ENDS: Record<string, string> = { done: "new" };
const info = (t: Trace, o: number) => t.p.strings[t.p.out.info[o]];

export const OF_STEP: Record<string, (t: Trace, step: number) => Told> = {
  step: numberOf,
  run: (t, step) => t.x.run[step],
  word: (t, step) => [wordOf(t, t.x.run[step])].filter(Boolean),
  buffer: (t, step) => [...writes(t, step), ...reads(t, step)],
  reads, writes,
  frees: ({ p }, step) => Array.from(p.free.storage.subarray(p.step.free[step], p.step.free[step + 1]), (s): [number, number] => [s, -1]),
  cache: caches,
  decision: ({ p }, step) => {
    const end = outcome(p, p.step.flags[step]);
    return [ENDS[end] ?? end];
  },
  blocker: codes,
  hazard: hazards,
  how: (t, step) => outs(t, step, (o) => t.p.codes.how[t.p.out.how[o]]),
  allocated: ({ p }, step) => p.step.alloc[step],
  copied: ({ p }, step) => p.step.copied[step],
  written: ({ p }, step) => p.step.written[step],
  live: ({ p }, step) => p.step.live[step],
  freed: freedBytes,
  bytes: (t, step) => outs(t, step, (o) => t.p.out.bytes[o]).reduce((sum, n) => sum + n, 0),
  missed: ({ p }, step) => (p.step.flags[step] & p.flag.missed ? Math.max(p.step.alloc[step], p.step.copied[step]) : 0),
  frame: path,
  iteration,
  depth: ({ p, x }, step) => x.depth[p.step.frame[step]],
  shape: (t, step) => outs(t, step, (o) => (info(t, o).includes("[") ? shape(info(t, o)) : "")),
  dtype: (t, step) => outs(t, step, (o) => info(t, o).replace(/ ?\[.*$/s, "")),
};

export function valueOf(t: Trace, field: string, step: number): Told {
  const { p } = t;
  const graph = p.frame.graph[p.step.frame[step]];
  return OF_NODE[field] ? OF_NODE[field](t, graph, p.step.node[step]) : OF_STEP[field](t, step);
}
