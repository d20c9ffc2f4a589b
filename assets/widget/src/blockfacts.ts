// What the head of a block says: how many are alike, how many ops, and what those of this one that were missed come to.
import { bytes, count, plural } from "./format.js";
import type { Row } from "./level.js";
import { cost } from "./missed.js";
import type { Trace } from "./replay.js";

/** What heads say of their rows. */
export interface BlockFacts { block(row: Row): { about: string; missed: string }; card(row: Row): string }
interface Misses { times: Int32Array; bytes: Float64Array }
const known = new WeakMap<object, Misses[]>();

/** By graph and node, over all steps that are here. */
function missesOf(t: Trace): Misses[] {
  let found = known.get(t.x);
  if (found) return found;
  const { p } = t;
  known.set(t.x, (found = p.graphs.map((g) => ({ times: new Int32Array(g.nodes.length), bytes: new Float64Array(g.nodes.length) }))));
  for (let i = 0; i < p.step.node.length; i++) {
    if (!(p.step.flags[i] & p.flag.missed)) continue;
    const m = found[p.frame.graph[p.step.frame[i]]];
    m.times[p.step.node[i]]++;
    m.bytes[p.step.node[i]] += cost(t, i);
  }
  return found;
}

/** `alike`: blocks with the same drawing among the layers of a stack, this one with them. */
export function blockFacts(t: Trace, graph: number, block: number, alike: number[], stack: string): { about: string; missed: string } {
  const { blocks } = t.p.graphs[graph];
  const { nodes } = blocks[block];
  const all = alike.length > 1 ? alike : [block];
  const many = all.length > 1 ? `× ${all.length} ${stack.split(" ").pop()}s alike · ` : blocks[block].alike > 1 ? `${blocks[block].alike} alike · ` : "";
  const { times, bytes: spent } = missesOf(t)[graph];
  const kinds = nodes.filter((n) => times[n]).length;
  const about = many + plural(nodes.length, "op");
  if (!kinds) return { about, missed: "" };
  const each = nodes.filter((n) => times[n]);
  const total = each.reduce((sum, n) => sum + times[n], 0);
  const sum = bytes(each.reduce((b, n) => b + spent[n], 0));
  const often = times[each[0]];
  // a product is only told where it is one
  if (each.some((n) => times[n] !== often)) return { about, missed: `${count(kinds)} missed, ${count(total)} times = ${sum}` };
  const words = often > t.p.runs.length ? "times" : t.p.runs.some((r) => r.token !== null) ? "tokens" : "runs";
  return { about, missed: [`${count(kinds)} missed`, ...(often > 1 ? [`${count(often)} ${words}`] : [])].join(" × ") + ` = ${sum}` };
}
