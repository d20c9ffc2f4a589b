// The debugger's moves on recorded steps. Each takes a cursor and gives a cursor; null = there is no such step recorded.
// A control node (If, Loop, function) is logged after its body, so "over" a body is a walk to the next step that is no deeper.
import { loaded, type Engine, type Part, type Value } from "./modules.js";
import { opAt, type Trace } from "./replay.js";

/** `kind`: node, op, buffer, decision or query; `error`: why the kernel cannot use it. */
export interface Breakpoint { kind: string; value: string | number; enabled: boolean; error?: string }

function depthAt(t: Trace, cursor: number): number { return cursor < 0 ? 0 : t.x.depth[t.p.step.frame[cursor]]; }

function scan(t: Trace, from: number, by: 1 | -1, hit: (step: number) => boolean): number | null {
  for (let i = from; i >= 0 && i < t.p.steps; i += by) if (hit(i)) return i;
  return null;
}

export function into({ p }: Trace, cursor: number): number | null { return cursor + 1 < p.steps ? cursor + 1 : null; }

export function over(t: Trace, cursor: number): number | null {
  const depth = depthAt(t, cursor);
  return scan(t, cursor + 1, 1, (i) => depthAt(t, i) <= depth);
}

export function back(t: Trace, cursor: number): number {
  const depth = depthAt(t, cursor);
  return scan(t, cursor - 1, -1, (i) => depthAt(t, i) <= depth) ?? -1;
}

/** Leave the body we are in; in a main graph, run to the end of the block that comes next. */
export function out(t: Trace, cursor: number): number | null {
  const depth = depthAt(t, cursor);
  if (depth > 0) return scan(t, cursor + 1, 1, (i) => depthAt(t, i) < depth);
  let at = over(t, cursor);
  if (at === null) return null;
  const { p, x } = t;
  const frame = p.step.frame[at];
  const block = x.graphs[p.frame.graph[frame]].block;
  const here = block[p.step.node[at]];
  for (let next = over(t, at); next !== null; next = over(t, next)) {
    if (p.step.frame[next] !== frame || block[p.step.node[next]] !== here) break;
    at = next;
  }
  return at;
}

/** The path of a frame from main, equal in every run. */
function address({ p }: Trace, f: number): string {
  const parts: string[] = [];
  for (let at = f; at >= 0; at = p.frame.parent[at]) parts.push(`${p.frame.graph[at]}:${p.frame.node[at]}:${p.frame.iteration[at]}`);
  return parts.join("/");
}

/** The same op in another run; if that run did not get there, its last step. */
export function inRun(t: Trace, cursor: number, run: number): number | null {
  const { p } = t;
  const target = p.runs[run];
  if (!target || target.first >= p.steps || target.first === target.last) return null;
  const end = Math.min(target.last, p.steps) - 1;
  if (cursor < 0) return end;
  const node = p.step.node[cursor];
  const graph = p.frame.graph[p.step.frame[cursor]];
  const where = address(t, p.step.frame[cursor]);
  for (let i = target.first; i <= end; i++) {
    const f = p.step.frame[i];
    if (p.step.node[i] === node && p.frame.graph[f] === graph && address(t, f) === where) return i;
  }
  return end;
}

/** The storage id in `B12`, `b12.3` or a number; NaN if there is none. */
export function storageId(text: string | number): number {
  if (typeof text === "number") return text;
  const match = /^b?(\d+)(\.\d+)?$/i.exec(text.trim());
  return match ? Number(match[1]) : NaN;
}

/** A test of how steps ended; null for a word that is no decision. */
export function decided({ p }: Trace, decision: string): ((step: number) => boolean) | null {
  const bit = 1 << p.codes.flag.indexOf(decision);
  return p.codes.decision.includes(decision) ? (i) => (p.step.flags[i] & bit) !== 0 : null;
}

/** What a breakpoint finds, as part of a query. */
function partOf(t: Trace, engine: Engine, { kind, value }: Breakpoint): Part | null {
  const compare = (field: string, sign: string, found: Value): Part => ({ is: "compare", field, sign, values: [found] });
  switch (kind) {
    case "op": return compare("op", "=", String(value));
    case "decision": return compare("decision", ":", String(value));
    case "buffer": return { is: "some", parts: ["writes", "frees"].map((field) => compare(field, ":", [storageId(value), -1])) };
    default: return kind === "query" ? engine.read(t.p.query, String(value)).part : null;
  }
}

/** A test of one step for one breakpoint; null while the module of queries is not loaded, or where only the kernel knows. */
export function predicate(t: Trace, b: Breakpoint): ((step: number) => boolean) | null {
  // exactly this node: a query would take no notice of the case of letters
  if (b.kind === "node") return (i) => opAt(t, i).op[0] === b.value;
  const engine = loaded();
  try {
    const part = engine && partOf(t, engine, b);
    return engine && part && engine.test(t, { part, orders: [], limit: null });
  } catch {
    return null;
  }
}

export interface Stop { cursor: number; by: Breakpoint | null }

/** Continue (by = 1) or reverse-continue (by = -1): to the next breakpoint, else to the end of what is recorded. */
export function run(t: Trace, cursor: number, by: 1 | -1, breakpoints: Breakpoint[]): Stop {
  const tests = breakpoints.filter((b) => b.enabled).map((b) => ({ b, hit: predicate(t, b) }));
  let stop: Breakpoint | null = null;
  const at = scan(t, cursor + by, by, (i) => {
    stop = tests.find(({ hit }) => hit?.(i))?.b ?? null;
    return stop !== null;
  });
  return at === null ? { cursor: by > 0 ? t.p.steps - 1 : -1, by: null } : { cursor: at, by: stop };
}

export function clamp({ p }: Trace, cursor: number): number { return Math.max(-1, Math.min(Math.round(cursor), p.steps - 1)); }

/** The title of the cursor's block. */
export function placeName(t: Trace, cursor: number): string {
  if (cursor < 0) return "";
  const { graph, g, node } = opAt(t, cursor);
  return g.blocks[t.x.graphs[graph].block[node]]?.title ?? "";
}
