// Queries evaluated on recorded steps; see kvviz/query.
import { within } from "./arrays.js";
import { read } from "./queryread.js";
import { decided } from "./debug.js";
import type { Engine, Part, Query, Value } from "./modules.js";
import { opName, shape } from "./format.js";
import { pairsOf, pairState } from "./evidence.js";
import { findStep, freedBytes, labels, numberOf, opAt, outcome, placeOf, stack, type Trace } from "./replay.js";
import type { Cache, Graph, QueryTable } from "./wire.js";

/** A number or null; texts; or [storage, generation] of buffers. */
type Fact = number | null | string[] | [number, number][];

// Facts of nodes and steps: one function for each field, as in kvviz/query/step_facts.py.

function names(g: Graph, node: number): string[] {
  return [...g.nodes[node][3], ...g.nodes[node][4]].filter((v) => v >= 0).map((v) => g.values[v]);
}

const block = ({ p, x }: Trace, graph: number, node: number) => p.graphs[graph].blocks[x.graphs[graph].block[node]];

const role = ({ p }: Trace, graph: number, node: number) => p.graphs[graph].roles[p.graphs[graph].role[node]];

/** The text in which bare words are searched. */
export function texts(t: Trace, graph: number, node: number): string {
  const g = t.p.graphs[graph];
  const [name, op, scope, inputs, outputs] = g.nodes[node];
  const values = [...inputs, ...outputs].map((v) => g.values[v] ?? "").join(" ");
  return `${op} ${name} ${scope} ${block(t, graph, node)?.title ?? ""} ${role(t, graph, node)} ${values}`.toLowerCase();
}

export const OF_NODE: Record<string, (t: Trace, graph: number, node: number) => Fact> = {
  op: (t, graph, node) => [opName(t.p.graphs[graph].nodes[node][1]), t.p.graphs[graph].nodes[node][1]],
  name: (t, graph, node) => [t.p.graphs[graph].nodes[node][0]],
  scope: (t, graph, node) => [t.p.graphs[graph].nodes[node][2]],
  block: (t, graph, node) => [block(t, graph, node)?.title].filter((title) => title !== undefined),
  layer: (t, graph, node) => (t.p.graphs[graph].layer[node] < 0 ? null : t.p.graphs[graph].layer[node]),
  role: (t, graph, node) => [role(t, graph, node)],
  value: (t, graph, node) => names(t.p.graphs[graph], node),
};

function reads(t: Trace, step: number): [number, number][] {
  const { frame, op } = opAt(t, step);
  return op[3].flatMap((v) => {
    const place = placeOf(t, frame, v, step - 1);
    return place ? [[place.storage, place.gen] as [number, number]] : [];
  });
}

const outs = <T>({ p }: Trace, step: number, of: (out: number) => T): T[] => within(p.step.out, step).map(of);

const writes = (t: Trace, step: number): [number, number][] => outs(t, step, (o) => [t.p.out.storage[o], t.p.out.gen[o]]);

function caches(t: Trace, step: number): string[] {
  const { p, x } = t;
  if (!p.caches.length) return [];
  const touched = new Set([...reads(t, step), ...writes(t, step)].map(([storage]) => storage));
  const run = x.run[step];
  const main = stack(t, p.step.frame[step])[0];
  const { values } = p.graphs[p.frame.graph[main]];
  const holds = ({ input, storage }: Cache) => [placeOf(t, main, values.indexOf(input), -1)?.storage, storage[run]].some((s) => touched.has(s ?? -1));
  return p.caches.filter(holds).map((cache) => cache.name);
}

function iteration(t: Trace, step: number): number | null {
  const { frame } = t.p;
  for (let f = t.p.step.frame[step]; f >= 0; f = frame.parent[f]) if (frame.iteration[f] >= 0) return frame.iteration[f];
  return null;
}

/** The word of a run, or the number of its token. */
function wordOf({ p }: Trace, run: number): string {
  const made = p.runs[run];
  return made?.text.trim() || (made?.token === null || made?.token === undefined ? "" : String(made.token));
}

const codes = ({ p }: Trace, step: number) => [...new Set(within(p.step.block, step).map((b) => p.strings[p.block.code[b]]))];

/** Kinds and states of the pairs of a step. */
function hazards({ p }: Trace, step: number): string[] {
  const found = new Set(pairsOf(p, step).flatMap((pair) => [p.strings[p.pair.kind[pair]], pairState(p, pair)]));
  return p.query.fields.find((f) => f.name === "hazard")!.choices.filter((name) => found.has(name));
}

const info = (t: Trace, o: number) => t.p.strings[t.p.out.info[o]];

export const OF_STEP: Record<string, (t: Trace, step: number) => Fact> = {
  step: numberOf,
  run: (t, step) => t.x.run[step],
  word: (t, step) => [wordOf(t, t.x.run[step])].filter(Boolean),
  buffer: (t, step) => [...writes(t, step), ...reads(t, step)],
  reads, writes,
  frees: ({ p }, step) => Array.from(p.free.storage.subarray(p.step.free[step], p.step.free[step + 1]), (s): [number, number] => [s, -1]),
  cache: caches,
  decision: ({ p }, step) => {
    const end = outcome(p, p.step.flags[step]);
    return [end === "done" ? "new" : end];
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
  frame: (t, step) => [labels(t, t.p.step.frame[step]).join(" › ") || "main"],
  iteration,
  depth: ({ p, x }, step) => x.depth[p.step.frame[step]],
  shape: (t, step) => outs(t, step, (o) => (info(t, o).includes("[") ? shape(info(t, o)) : "")),
  dtype: (t, step) => outs(t, step, (o) => info(t, o).replace(/ ?\[.*$/s, "")),
};

type Test = (step: number) => boolean;
type Range = [number, number];

const kindOf = (table: QueryTable, field: string) => table.fields.find((f) => f.name === field)!.kind;

/** A test of nodes, evaluated once for each. */
function ofNodes(t: Trace, test: (graph: number, node: number) => boolean): Test {
  const known = t.p.graphs.map((g) => new Int8Array(g.nodes.length).fill(-1));
  return (step) => {
    const { graph, node } = opAt(t, step);
    if (known[graph][node] < 0) known[graph][node] = Number(test(graph, node));
    return known[graph][node] === 1;
  };
}

function called(t: Trace, run: number): string[] { return [(t.p.runs[run]?.label ?? "").toLowerCase(), wordOf(t, run).toLowerCase()]; }

function word(t: Trace, text: string): Test {
  const { p, x } = t;
  const { query: table } = p;
  const lower = text.toLowerCase();
  const buffer = /^b([0-9]{1,15})(?:\.([0-9]{1,15}))?$/.exec(lower);
  if (buffer) return compared(t, { is: "compare", field: "buffer", sign: ":", values: [[Number(buffer[1]), buffer[2] === undefined ? -1 : Number(buffer[2])]] });
  const tests = [ofNodes(t, (graph, node) => texts(t, graph, node).includes(lower))];
  if (Object.hasOwn(table.words, lower)) tests.push(decided(t, table.words[lower])!);
  for (const { name, choices } of table.fields) {
    const choice = name === "blocker" || name === "hazard" ? choices.find((one) => one.toLowerCase() === lower) : undefined;
    if (choice) tests.push((step) => (OF_STEP[name](t, step) as string[]).includes(choice));
  }
  if (/^[0-9]{1,15}$/.test(lower)) {
    const { step: wanted } = findStep(t, Number(lower));
    if (Number(lower) < p.total) tests.push((step) => step === wanted);
  }
  const runs = p.runs.map((_, run) => called(t, run).includes(lower));
  if (runs.includes(true)) tests.push((step) => runs[x.run[step]]);
  if (lower.startsWith("[")) {
    const fits = matcher(table, "shape", "=", text);
    tests.push((step) => (OF_STEP.shape(t, step) as string[]).some(fits));
  }
  return (step) => tests.some((test) => test(step));
}

/** Whether a text consists of these pieces in order, with anything between. */
function fits(pieces: string[], text: string): boolean {
  const first = pieces[0];
  const last = pieces[pieces.length - 1];
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  const end = text.length - last.length;
  let at = first.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = text.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}

function matcher(table: QueryTable, field: string, sign: string, value: string): (text: string) => boolean {
  let wanted = value.toLowerCase();
  // `1x4`, `1, 4` or `[1,4]`
  if (field === "shape") wanted = `[${wanted.replaceAll(" ", "").replace(/^\[/, "").replace(/\]$/, "").replaceAll("x", ",")}]`;
  if (wanted.includes("*")) {
    const pieces = wanted.split("*");
    return (text) => fits(pieces, text.toLowerCase());
  }
  if (kindOf(table, field) === "text" && sign === ":") return (text) => text.toLowerCase().includes(wanted);
  return (text) => text.toLowerCase() === wanted;
}

const LARGER: Record<string, (a: number, b: number) => boolean> = { ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b };

/** A test of the value of a field. */
function holds(table: QueryTable, field: string, sign: string, values: Value[]): (found: Fact) => boolean {
  const kind = kindOf(table, field);
  if (kind === "buffer") {
    return (found) => (found as Range[]).some(([storage, gen]) => (values as Range[]).some(([s, g]) => s === storage && (g < 0 || g === gen)));
  }
  if (kind === "number" || kind === "bytes" || kind === "run") {
    const compare = LARGER[sign];
    const one = compare ? (n: number, [low]: Range) => compare(n, low) : (n: number, [low, high]: Range) => low <= n && n <= high;
    return (found) => found !== null && (values as Range[]).some((value) => one(found as number, value));
  }
  const matchers = values.map((value) => matcher(table, field, sign, value as string));
  return (found) => (found as string[]).some((text) => matchers.some((matches) => matches(text)));
}

function compared(t: Trace, part: Extract<Part, { is: "compare" }>): Test {
  const { field, sign, values } = part;
  if (sign === "!=") {
    const equal = compared(t, { ...part, sign: "=" });
    return (step) => !equal(step);
  }
  if (field === "decision") {
    const tests = values.map((value) => decided(t, value as string)!);
    return (step) => tests.some((test) => test(step));
  }
  const { query: table, runs } = t.p;
  if (field === "run") {
    const texts = values.filter((value) => typeof value === "string").map((value) => value.toLowerCase());
    const numbers = holds(table, field, sign, values.filter((value) => typeof value !== "string"));
    const found = runs.map((_, run) => numbers(run) || called(t, run).some((name) => texts.includes(name)));
    return (step) => found[t.x.run[step]];
  }
  const test = holds(table, field, sign, values);
  if (OF_NODE[field]) return ofNodes(t, (graph, node) => test(OF_NODE[field](t, graph, node)));
  return (step) => test(OF_STEP[field](t, step));
}

function testOf(t: Trace, part: Part | null): Test {
  if (!part) return () => true;
  if (part.is === "word") return word(t, part.text);
  if (part.is === "compare") return compared(t, part);
  const tests = (part.is === "not" ? [part.part] : part.parts).map((one) => testOf(t, one));
  if (part.is === "not") return (step) => !tests[0](step);
  const how = part.is;
  return (step) => tests[how]((test) => test(step));
}

export function test(t: Trace, query: Query): Test { return testOf(t, query.part); }

// -- order

type Chunk = number | string;
/** Natural order: layer 2 comes before layer 10. */
const chunks = (text: string): Chunk[] => (text.toLowerCase().match(/[0-9]+|[^0-9]+/g) ?? []).map((c) => (/^[0-9]/.test(c) ? Number(c) : c));

function order(a: Chunk[], b: Chunk[]): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    const [left, right] = [a[i], b[i]];
    if (typeof left !== typeof right) return typeof left === "number" ? -1 : 1;
    if (left !== right) return left < right ? -1 : 1;
  }
  return a.length - b.length;
}

/** The sort key of a value; null: none. */
function key(found: Fact): Chunk[] | null {
  if (found === null) return null;
  if (typeof found === "number") return [found];
  const [first] = found;
  if (first === undefined) return null;
  return typeof first === "string" ? chunks(first) : [first[0]];
}

/** Steps sorted by a field; those without a value come last. */
function ordered(t: Trace, steps: number[], field: string, down: boolean): number[] {
  const keys = new Map(steps.map((step) => {
    const { graph, node } = opAt(t, step);
    return [step, key(OF_NODE[field] ? OF_NODE[field](t, graph, node) : OF_STEP[field](t, step))];
  }));
  const known = steps.filter((step) => keys.get(step) !== null);
  const by = down ? -1 : 1;
  known.sort((a, b) => by * order(keys.get(a)!, keys.get(b)!));
  return [...known, ...steps.filter((step) => keys.get(step) === null)];
}

export function find(t: Trace, query: Query): Int32Array {
  const hit = test(t, query);
  let found: number[] = [];
  for (let step = 0; step < t.p.steps; step++) if (hit(step)) found.push(step);
  for (const { field, down } of [...query.orders].reverse()) found = ordered(t, found, field, down);
  return Int32Array.from(query.limit === null ? found : found.slice(0, query.limit));
}

export default { read, find, test } satisfies Engine;
