// The planning of a small graph as a payload, written by hand.
import { CODES, QUERY } from "./codes.js";
import { draw, pack, type Tables } from "./encode.js";
import type { Node } from "../src/wire.js";

const VALUES = ["x", "va", "vb", "vc", "y"];
const NODES: Node[] = [
  ["d", "Add", "", [2, 3], [4], []], ["a", "Relu", "", [0], [1], []], ["b", "Neg", "", [1], [2], []], ["c", "Abs", "", [1], [3], []],
];
const number = (name: string) => NODES.findIndex((n) => n[0] === name);

/** phase, action, node, value, planned, depth, frontier before, ready by this. */
const EVENTS: [string, string, string, number, number, number, string, string][] = [
  ["walk", "visit", "d", 4, 0, 0, "", ""], ["walk", "visit", "b", 2, 0, 1, "", ""], ["walk", "visit", "a", 1, 0, 2, "", ""],
  ["walk", "skip", "a", 0, 0, 3, "", ""], ["walk", "append", "a", 1, 1, 2, "", ""], ["walk", "append", "b", 2, 2, 1, "", ""],
  ["walk", "visit", "c", 3, 2, 1, "", ""], ["walk", "skip", "c", 1, 2, 2, "", ""], ["walk", "append", "c", 3, 3, 1, "", ""],
  ["walk", "append", "d", 4, 4, 0, "", ""],
  ["pick", "pick", "a", 1, 1, 0, "a", "bc"], ["pick", "pick", "b", 2, 2, 0, "bc", ""], ["pick", "pick", "c", 3, 3, 0, "c", "d"], ["pick", "pick", "d", 4, 4, 0, "d", ""],
];
export const FRONTIERS = EVENTS.map((e) => e[6]);

export function planning(): ArrayBuffer {
  const strings: string[] = [];
  const text = (s: string) => (strings.includes(s) ? strings.indexOf(s) : strings.push(s) - 1);
  const t: Tables = { "frame.graph": [0], "frame.parent": [-1], "frame.node": [-1], "frame.iteration": [-1], "frame.run": [0], "frame.label": [text("main")], "frame.bind": [0, 0] };
  for (const name of ["phase", "node", "value", "action", "reason", "planned", "depth"]) t[`event.${name}`] = [];
  Object.assign(t, { "event.ready": [0], "ready.node": [], "first.node": [number("a")] });
  EVENTS.forEach(([phase, action, node, value, planned, depth, , ready]) => {
    const row = { phase: text(phase), node: number(node), value, action: text(action), reason: text(`${action} ${node}`), planned, depth };
    for (const [name, v] of Object.entries(row)) t[`event.${name}`].push(v);
    t["ready.node"].push(...[...ready].map(number));
    t["event.ready"].push(t["ready.node"].length);
  });
  const graph = {
    name: "diamond", kind: "main" as const, parent: null, nodes: NODES, values: VALUES, weights: [], inputs: [0], outputs: [4], order: [1, 2, 3, 0],
    blocks: [{ title: "", path: "", nodes: [1, 2, 3, 0], drawing: 0, alike: 1 }],
    roles: NODES.map((n) => n[0]), role: NODES.map((_, i) => i), layer: NODES.map(() => -1), names: NODES.map((n) => n[0]), called: VALUES,
  };
  return pack({
    codes: CODES, query: QUERY, title: "diamond", policy: { name: "rten", about: "" }, total: 0, strings, graphs: [graph], drawings: [draw(NODES, [1, 2, 3, 0], () => true)],
    runs: [], story: [], caches: [], live: null,
  }, t);
}
