// What the inspector shows for a selection, or for the step at the cursor.
import { stack, stepsOf, type Trace } from "./replay.js";
import type { Selection } from "./select.js";
import { findStep, numberOf } from "./steps.js";
import type { Now } from "./store.js";

/** `value`: in a frame, -1 where it is in none that is open; `node`: one that has not run here. */
export type Subject =
  | { kind: "start" } | { kind: "step"; step: number } | { kind: "node"; graph: number; id: number }
  | { kind: "storage"; id: number } | { kind: "value"; graph: number; id: number; frame: number } | { kind: "cache"; id: number };

export function ofCursor(cursor: number): Subject {
  return cursor < 0 ? { kind: "start" } : { kind: "step", step: cursor };
}

/** The open frame of a graph, from the inside out; -1 = none is open. */
function openFrame(t: Trace, now: Now, graph: number): number {
  return stack(t, now.frame).reverse().find((f) => t.p.frame.graph[f] === graph) ?? -1;
}

export function ofSelection(t: Trace, s: Selection, now: Now, cursor: number): Subject {
  const graph = s.graph ?? now.graph;
  if (s.kind === "storage" || s.kind === "cache") return { kind: s.kind, id: s.id };
  const frame = openFrame(t, now, graph);
  if (s.kind === "value") return { kind: "value", graph, id: s.id, frame };
  if (s.step !== undefined) {
    const { step } = findStep(t, s.step);
    if (step >= 0) return { kind: "step", step };
  }
  const here = frame < 0 ? -1 : stepsOf(t, frame)[s.id] ?? -1;
  if (here >= 0) return { kind: "step", step: here };
  // of a body that is not open: its last execution before the cursor
  for (let i = Math.min(cursor, t.p.steps - 1); frame < 0 && i >= 0; i--) {
    if (t.p.step.node[i] === s.id && t.p.frame.graph[t.p.step.frame[i]] === graph) return { kind: "step", step: i };
  }
  return { kind: "node", graph, id: s.id };
}

/** The selection that a subject is, so that a pinned one can be chosen again. */
export function selectionOf(t: Trace, s: Subject): Selection | null {
  if (s.kind === "start") return null;
  if (s.kind !== "step") return { kind: s.kind, id: s.id, ...("graph" in s ? { graph: s.graph } : {}) };
  const { p } = t;
  return { kind: "node", id: p.step.node[s.step], graph: p.frame.graph[p.step.frame[s.step]], step: numberOf(t, s.step) };
}

export function sameSubject(a: Subject, b: Subject): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** What a name in a message stands for: a value or a node of the graph. */
export function named(t: Trace, graph: number, name: string): Selection | null {
  const g = t.p.graphs[graph];
  const id = g.values.indexOf(name);
  if (id >= 0) return { kind: "value", id, graph };
  const node = g.nodes.findIndex(([n]) => n === name);
  return node < 0 ? null : { kind: "node", id: node, graph };
}
