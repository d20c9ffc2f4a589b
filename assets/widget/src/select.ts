// The selection of all panes: what it highlights, and what the inspector shows for it.
import { findStep, numberOf, opAt, placeOf, runAt, stack, stepsOf, type Trace } from "./replay.js";

/** `step`: number of an execution of the node; by default the one in the shown frame. */
export interface Selection { kind: "node" | "storage" | "value" | "cache"; id: number; graph?: number; step?: number }

/** Highlights in the shown frame. */
export interface Lit { nodes: Set<number>; storages: Set<number>; values: Set<number> }

const NOTHING: Lit = { nodes: new Set(), storages: new Set(), values: new Set() };

export function same(a: Selection | null, b: Selection | null): boolean {
  return a === b || (!!a && !!b && a.kind === b.kind && a.id === b.id && (a.graph ?? -1) === (b.graph ?? -1) && a.step === b.step);
}

export function touched(t: Trace, step: number): { reads: number[]; writes: number[] } {
  const { p } = t;
  const { frame, op: [, , , inputs] } = opAt(t, step);
  const reads = inputs.map((v) => placeOf(t, frame, v, step - 1)?.storage ?? -1).filter((s) => s >= 0);
  const writes = Array.from(p.out.storage.subarray(p.step.out[step], p.step.out[step + 1]));
  return { reads, writes };
}

function storageOf(t: Trace, s: Selection, frame: number, cursor: number): number {
  if (s.kind === "storage") return s.id;
  if (s.kind === "cache") return t.p.caches[s.id]?.storage[runAt(t, cursor)] ?? -1;
  for (const f of stack(t, frame)) if (t.p.frame.graph[f] === (s.graph ?? 0)) return placeOf(t, f, s.id, t.p.steps)?.storage ?? -1;
  return -1;
}

export function light(t: Trace, s: Selection | null, frame: number, cursor: number): Lit {
  if (!s || frame >= t.p.frames) return NOTHING;
  const { p, x } = t;
  const lit: Lit = { nodes: new Set(), storages: new Set(), values: new Set() };
  const graph = p.frame.graph[frame];
  const g = p.graphs[graph];
  const steps = stepsOf(t, frame);
  if (s.kind === "node") {
    if (s.graph !== undefined && s.graph !== graph) return lit;
    lit.nodes.add(s.id);
    const node = g.nodes[s.id];
    if (!node) return lit;
    for (const v of [...node[3], ...node[4]]) if (v >= 0) lit.values.add(v);
    if (steps[s.id] >= 0) {
      const { reads, writes } = touched(t, steps[s.id]);
      for (const b of [...reads, ...writes]) if (p.storage.origin[b] !== p.from.weights) lit.storages.add(b);
    }
    return lit;
  }
  const { readers, producer } = x.graphs[graph];
  const add = (value: number) => {
    lit.values.add(value);
    for (const n of [...readers[value] ?? [], producer[value] ?? -1]) if (n >= 0) lit.nodes.add(n);
  };
  if (s.kind === "value" && (s.graph ?? 0) === graph) add(s.id);
  const storage = storageOf(t, s, frame, cursor);
  if (storage < 0) return lit;
  lit.storages.add(storage);
  // all weights share one row: lighting all their readers would light everything
  if (p.storage.origin[storage] === p.from.weights || s.kind === "value") return lit;
  for (let v = 0; v < g.values.length; v++) if (placeOf(t, frame, v, p.steps)?.storage === storage) add(v);
  return lit;
}

/** Ops and values of the chosen buffer, or of that of the chosen op or of `node`, in the shown frame. */
export function wayOf(t: Trace, s: Selection | null, now: { frame: number; graph: number }, cursor: number, node: number): Lit {
  const step = stepsOf(t, now.frame)[s?.kind === "node" ? s.id : node] ?? -1;
  const storage = s && s.kind !== "node" ? storageOf(t, s, now.frame, cursor) : step < 0 ? -1 : t.p.out.storage[t.p.step.out[step]] ?? -1;
  return light(t, { kind: "storage", id: storage }, now.frame, cursor);
}

export function describe({ p }: Trace, s: Selection): string {
  switch (s.kind) {
    case "node": return p.graphs[s.graph ?? 0]?.nodes[s.id]?.[0] ?? "node";
    case "value": return p.graphs[s.graph ?? 0]?.values[s.id] ?? "value";
    case "cache": return p.caches[s.id]?.name ?? "cache";
    default: return p.storage.origin[s.id] === p.from.weights ? "weights" : `B${s.id}`;
  }
}

/** `frame` of a value: -1 if it is in no open frame; `node`: one that has not run here. */
export type Subject =
  | { kind: "start" } | { kind: "step"; step: number } | { kind: "node"; graph: number; id: number }
  | { kind: "storage"; id: number } | { kind: "value"; graph: number; id: number; frame: number } | { kind: "cache"; id: number };

export function ofCursor(cursor: number): Subject { return cursor < 0 ? { kind: "start" } : { kind: "step", step: cursor }; }

export function ofSelection(t: Trace, s: Selection, now: { frame: number; graph: number }, cursor: number): Subject {
  const graph = s.graph ?? now.graph;
  if (s.kind === "storage" || s.kind === "cache") return { kind: s.kind, id: s.id };
  const frame = stack(t, now.frame).reverse().find((f) => t.p.frame.graph[f] === graph) ?? -1; // the innermost open one
  if (s.kind === "value") return { kind: "value", graph, id: s.id, frame };
  if (s.step !== undefined) {
    const { step } = findStep(t, s.step);
    if (step >= 0) return { kind: "step", step };
  }
  const here = frame < 0 ? -1 : stepsOf(t, frame)[s.id] ?? -1;
  if (here >= 0) return { kind: "step", step: here };
  // in a closed body: its last execution before the cursor
  for (let i = Math.min(cursor, t.p.steps - 1); frame < 0 && i >= 0; i--) {
    if (t.p.step.node[i] === s.id && t.p.frame.graph[t.p.step.frame[i]] === graph) return { kind: "step", step: i };
  }
  return { kind: "node", graph, id: s.id };
}

/** The op of a step as a selection. */
export function executed(t: Trace, step: number): Selection {
  const { node, graph } = opAt(t, step);
  return { kind: "node", id: node, graph, step: numberOf(t, step) };
}

/** The value or node with a name. */
export function named(t: Trace, graph: number, name: string): Selection | null {
  const g = t.p.graphs[graph];
  const id = g.values.indexOf(name);
  if (id >= 0) return { kind: "value", id, graph };
  const node = g.nodes.findIndex(([n]) => n === name);
  return node < 0 ? null : { kind: "node", id: node, graph };
}
