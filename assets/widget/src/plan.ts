// The planning of a graph, event by event: what the walk has reached, what is in the frontier, what was picked.
// A plan is a payload with graphs and drawings but no steps; its events stand in for them.
import type { State, StateWords } from "./replay.js";
import { light } from "./select.js";
import type { Now, Store } from "./store.js";
import { open, unpack, type Header, type Ints, type Payload } from "./wire.js";

const COLUMNS = ["phase", "node", "value", "action", "reason", "planned", "depth", "full", "change", "ready"] as const;

export interface Plan {
  p: Payload;
  /** By event; `change` and `ready` are offsets into the lists below, `full` tells that a change starts from nothing. */
  e: Record<(typeof COLUMNS)[number], Ints>;
  change: Ints; // nodes that join the frontier, or -1 - node for one that leaves it
  ready: Ints; // nodes that can run because of this pick
  picked: Ints; // by node: the event that picked it, -1 = none
  picks: number[]; // events
  appends: number[];
  walk: number; // events of the walk, which come first
}

export function unpackPlan(raw: ArrayBuffer): Plan {
  const { column } = open<Header>(raw);
  const e = Object.fromEntries(COLUMNS.map((name) => [name, column(`event.${name}`)])) as Plan["e"];
  const p = { ...unpack(raw, true), steps: e.node.length, total: e.node.length };
  const picked = new Int32Array(p.graphs[0].nodes.length).fill(-1);
  const picks: number[] = [];
  const appends: number[] = [];
  let walk = 0;
  for (let i = 0; i < p.steps; i++) {
    const action = p.strings[e.action[i]];
    if (action === "pick") {
      picks.push(i);
      picked[e.node[i]] = i;
    }
    if (action === "append") appends.push(i);
    if (p.strings[e.phase[i]] === "walk") walk = i + 1;
  }
  return { p, e, change: column("change.node") as Ints, ready: column("ready.node") as Ints, picked, picks, appends, walk };
}

/** The ops that could run before the pick of event `i`, oldest first; none for other events. */
export function frontierAt({ e, change }: Plan, i: number): number[] {
  if (i < 0) return [];
  let from = i;
  while (from > 0 && !e.full[from]) from--;
  let nodes: number[] = [];
  for (let k = from; k <= i; k++) {
    if (e.full[k]) nodes = [];
    for (let c = e.change[k]; c < e.change[k + 1]; c++) {
      const node = change[c];
      if (node >= 0) nodes.push(node);
      else nodes.splice(nodes.indexOf(-1 - node), 1);
    }
  }
  return nodes;
}

export function readyAt({ e, ready }: Plan, i: number): number[] {
  return i < 0 ? [] : Array.from(ready.subarray(e.ready[i], e.ready[i + 1]));
}

export const PLAN_WORDS: StateWords = {
  waiting: "not visited", path: "on the walk's path: something it needs is not resolved yet", listed: "in the walk's list: all that it needs is resolved",
  frontier: "in the frontier: can run", running: "this event", done: "picked: in the plan",
};

/** The ops that the walk has entered and not left after event `at`, from the output on; none once ops are picked. */
export function pathAt({ p, e, walk }: Plan, at: number): number[] {
  const path: number[] = [];
  if (at >= walk) return path;
  for (let i = 0; i <= at; i++) {
    path.length = Math.min(path.length, e.depth[i]);
    if (p.strings[e.action[i]] === "visit") path.push(e.node[i]);
  }
  return path;
}

/** State and second line of every node's box after event `at`. */
export function planStates(plan: Plan, at: number): { states: State[]; captions: string[] } {
  const { p, e, picks, appends } = plan;
  const states: State[] = p.graphs[0].nodes.map(() => "waiting");
  const captions = states.map(() => "");
  appends.forEach((event, place) => {
    if (event > at) return;
    states[e.node[event]] = "listed";
    captions[e.node[event]] = `list ${place}`;
  });
  pathAt(plan, at).forEach((node, depth) => {
    states[node] = "path";
    captions[node] = `depth ${depth}`;
  });
  for (const node of [...frontierAt(plan, at), ...readyAt(plan, at)]) states[node] = "frontier";
  picks.forEach((event, place) => {
    if (event > at) return;
    states[e.node[event]] = "done";
    captions[e.node[event]] = `step ${place}`;
  });
  const node = at < 0 ? -1 : e.node[at];
  if (node >= 0) states[node] = "running";
  return { states, captions };
}

export function planNow(plan: Plan, { t, cursor, selection }: Store): Now {
  const { states, captions } = planStates(plan, cursor);
  const choices = frontierAt(plan, cursor).map((node) => ({ node, step: plan.picked[node], alloc: null, frees: null }));
  const hint = choices.length ? "before this pick, oldest first" : cursor < plan.walk ? "filled when the walk is over" : "empty";
  return { run: 0, frame: 0, graph: 0, states, steps: plan.picked, next: 0, choices, lit: light(t, selection, 0, cursor), captions, words: PLAN_WORDS, hint };
}
