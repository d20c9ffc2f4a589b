// A query as a test of steps, and the steps that it finds in its order; see kvviz/query.
import { decided } from "./debug.js";
import type { Part, Query, Value } from "./engine.js";
import { OF_NODE, OF_STEP, texts, valueOf, wordOf, type Told } from "./queryfacts.js";
import type { QueryTable } from "./querytable.js";
import type { Trace } from "./replay.js";
import { findStep } from "./steps.js";

type Test = (step: number) => boolean;
type Range = [number, number];

const kindOf = (table: QueryTable, field: string) => table.fields.find((f) => f.name === field)!.kind;

/** A test of nodes, asked once of each. */
function ofNodes(t: Trace, test: (graph: number, node: number) => boolean): Test {
  const { p } = t;
  const known = p.graphs.map((g) => new Int8Array(g.nodes.length).fill(-1));
  return (step) => {
    const graph = p.frame.graph[p.step.frame[step]];
    const node = p.step.node[step];
    if (known[graph][node] < 0) known[graph][node] = Number(test(graph, node));
    return known[graph][node] === 1;
  };
}

function called(t: Trace, run: number): string[] {
  return [(t.p.runs[run]?.label ?? "").toLowerCase(), wordOf(t, run).toLowerCase()];
}

function word(t: Trace, text: string): Test {
  const { p, x } = t;
  const { query: table } = p;
  const lower = text.toLowerCase();
  const buffer = /^b([0-9]{1,15})(?:\.([0-9]{1,15}))?$/.exec(lower);
  if (buffer) return compared(t, { is: "compare", field: "buffer", sign: ":", values: [[Number(buffer[1]), buffer[2] === undefined ? -1 : Number(buffer[2])]] });
  const tests = [ofNodes(t, (graph, node) => texts(t, graph, node).includes(lower))];
  if (Object.hasOwn(table.words, lower)) tests.push(decided(t, table.words[lower])!);
  const code = text.toUpperCase();
  if (table.fields.find((f) => f.name === "blocker")!.choices.includes(code)) tests.push((step) => (OF_STEP.blocker(t, step) as string[]).includes(code));
  const pair = table.fields.find((f) => f.name === "hazard")!.choices.find((name) => name.toLowerCase() === lower);
  if (pair) tests.push((step) => (OF_STEP.hazard(t, step) as string[]).includes(pair));
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

/** `1x4`, `1, 4` and `[1,4]` as shapes are written. */
function asShape(text: string): string {
  return `[${text.replaceAll(" ", "").replace(/^\[/, "").replace(/\]$/, "").replaceAll("x", ",")}]`;
}

/** Whether a text has these pieces one after the other, the first at its beginning and the last at its end. */
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
  if (field === "shape") wanted = asShape(wanted);
  if (wanted.includes("*")) {
    const pieces = wanted.split("*");
    return (text) => fits(pieces, text.toLowerCase());
  }
  if (kindOf(table, field) === "text" && sign === ":") return (text) => text.toLowerCase().includes(wanted);
  return (text) => text.toLowerCase() === wanted;
}

const LARGER: Record<string, (a: number, b: number) => boolean> = { ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b };

/** A test of what a step says of a field. */
function told(table: QueryTable, field: string, sign: string, values: Value[]): (told: Told) => boolean {
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
    const labels = values.filter((value) => typeof value === "string").map((value) => value.toLowerCase());
    const numbers = told(table, field, sign, values.filter((value) => typeof value !== "string"));
    const found = runs.map((_, run) => numbers(run) || called(t, run).some((name) => labels.includes(name)));
    return (step) => found[t.x.run[step]];
  }
  const test = told(table, field, sign, values);
  if (OF_NODE[field]) return ofNodes(t, (graph, node) => test(OF_NODE[field](t, graph, node)));
  return (step) => test(OF_STEP[field](t, step));
}

function testOf(t: Trace, part: Part | null): Test {
  if (!part) return () => true;
  switch (part.is) {
    case "every": {
      const tests = part.parts.map((one) => testOf(t, one));
      return (step) => tests.every((test) => test(step));
    }
    case "some": {
      const tests = part.parts.map((one) => testOf(t, one));
      return (step) => tests.some((test) => test(step));
    }
    case "not": {
      const inner = testOf(t, part.part);
      return (step) => !inner(step);
    }
    case "word": return word(t, part.text);
    default: return compared(t, part);
  }
}

export function test(t: Trace, query: Query): Test {
  return testOf(t, query.part);
}

// -- order

type Chunk = number | string;
/** Numbers inside texts count as numbers: layer 2 comes before layer 10. */
const chunks = (text: string): Chunk[] => (text.toLowerCase().match(/[0-9]+|[^0-9]+/g) ?? []).map((c) => (/^[0-9]/.test(c) ? Number(c) : c));

function order(a: Chunk[], b: Chunk[]): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    const [left, right] = [a[i], b[i]];
    if (typeof left !== typeof right) return typeof left === "number" ? -1 : 1;
    if (left !== right) return left < right ? -1 : 1;
  }
  return a.length - b.length;
}

/** By what a step is put in order; null: it says nothing. */
function key(found: Told): Chunk[] | null {
  if (found === null) return null;
  if (typeof found === "number") return [found];
  const [first] = found;
  if (first === undefined) return null;
  return typeof first === "string" ? chunks(first) : [first[0]];
}

/** Steps in the order of a field; those that say nothing of it come last. */
function ordered(t: Trace, steps: number[], field: string, down: boolean): number[] {
  const keys = new Map(steps.map((step) => [step, key(valueOf(t, field, step))]));
  const known = steps.filter((step) => keys.get(step) !== null);
  const by = down ? -1 : 1;
  known.sort((a, b) => by * order(keys.get(a)!, keys.get(b)!));
  return [...known, ...steps.filter((step) => keys.get(step) === null)];
}

/** Places of the steps that a query finds, in its order. */
export function find(t: Trace, query: Query): Int32Array {
  const hit = test(t, query);
  let found: number[] = [];
  for (let step = 0; step < t.p.steps; step++) if (hit(step)) found.push(step);
  for (const { field, down } of [...query.orders].reverse()) found = ordered(t, found, field, down);
  return Int32Array.from(query.limit === null ? found : found.slice(0, query.limit));
}
