// The debugger's moves on recorded steps. Each takes a cursor and gives a cursor; null = there is no such step recorded.
// A control node (If, Loop, function) is logged after its body, so "over" a body is a walk to the next step that is no deeper.
import { loaded } from "./modules.js";
import { opName } from "./format.js";
import { frameAt, type Trace } from "./replay.js";

export type Kind = string;
/** `error`: what the kernel cannot make of it. */
export interface Breakpoint { kind: Kind; value: string | number; enabled: boolean; error?: string }

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

/** How a frame is reached from main, without its run: equal in every run for the same place. */
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

/** `B12`, `b12.3` or a number to a storage id; NaN if it is none. */
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

/** The test of a query; null while its code is not here, or where it cannot be read. */
function asked(t: Trace, text: string): ((step: number) => boolean) | null {
  const engine = loaded();
  try {
    return engine && engine.test(t, engine.read(t.p.query, text));
  } catch {
    return null;
  }
}

/** A test of one step for one breakpoint; null for what only the kernel can tell, such as conditions. */
export function predicate(t: Trace, b: Breakpoint): ((step: number) => boolean) | null {
  const { p } = t;
  const node = (i: number) => p.graphs[p.frame.graph[p.step.frame[i]]].nodes[p.step.node[i]];
  const text = String(b.value).toLowerCase();
  switch (b.kind) {
    case "node":
      return (i) => node(i)[0] === b.value;
    case "op":
      return (i) => [node(i)[1], opName(node(i)[1])].some((op) => op.toLowerCase() === text);
    case "buffer": {
      const s = storageId(b.value);
      return (i) => {
        // written, shared or freed
        for (let o = p.step.out[i]; o < p.step.out[i + 1]; o++) if (p.out.storage[o] === s) return true;
        for (let k = p.step.free[i]; k < p.step.free[i + 1]; k++) if (p.free.storage[k] === s) return true;
        return false;
      };
    }
    case "decision":
      return decided(t, text);
    case "query":
      return asked(t, String(b.value));
    default:
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

export function clamp({ p }: Trace, cursor: number): number {
  return Math.max(-1, Math.min(Math.round(cursor), p.steps - 1));
}

/** Blocks that hold the cursor's place, for the line "layer 1". */
export function placeName(t: Trace, cursor: number): string {
  const { p, x } = t;
  const f = frameAt(t, cursor);
  const g = p.frame.graph[f] ?? 0;
  const node = cursor >= 0 && p.step.frame[cursor] === f ? p.step.node[cursor] : -1;
  const block = node < 0 ? undefined : p.graphs[g].blocks[x.graphs[g].block[node]];
  return block?.title ?? "";
}
