// Decodes a payload: gzip( uint32 header length | header JSON | columns ), see kvviz/view/page_data/payload.py.
// Everything after this file reads typed arrays; no object is made per step.
import { ensure, kept } from "./arrays.js";

/** Name, op type with its domain, scope path, inputs, outputs, captures (positions in `values`, -1 = absent). */
export type Node = [string, string, string, number[], number[], number[]];
/** `stack`: the name of a stack of layers, and the number in it. */
export interface Block { title: string; path: string; stack?: [string, number] | null; nodes: number[]; drawing: number; alike: number }
export interface Graph {
  name: string;
  kind: string;
  parent: [number, number] | null;
  nodes: Node[];
  values: string[];
  weights: number[];
  inputs: number[];
  outputs: number[];
  attributes?: Record<string, string>; // by node
  order: number[];
  blocks: Block[];
  roles: string[];
  role: number[]; // by node: its place in its layer, in `roles`
  layer: number[]; // by node, -1 = in none
  names: string[]; // by node: short
  called: string[]; // by value: short
}
type Stub = [number, "in" | "out", number, number, number];
export interface Drawing {
  w: number;
  h: number;
  boxes: [number, number, number, number][];
  edges: [number, number, number[]][];
  stubs: Stub[];
  pills: [number, number][]; // the first boxes: a box that reads the value, and its slot there
}
/** `first`, `last`: places among the loaded steps, equal if those of the run are not loaded. */
export interface Run {
  first: number; last: number; from: number; steps: number; label: string; token: number | null; text: string;
  peak: number; copied: number; written: number; allocated: number;
}
export interface Word { text: string; run: number | null; prompt: boolean }
/** `given`: valid and reserved rows before the first run. */
export interface Cache {
  given: [valid: number, capacity: number];
  name: string; input: string; output: string; protocol: string; axis: number;
  layer: number; role: string; // -1 = of no layer
  capacity: number[]; valid: number[]; copied: number[]; written: number[]; storage: number[];
  attention?: string[]; // names of the ops that weigh its rows
}
export interface Choice { node: number; alloc: number | null; frees: number | null }
/** A change, and code for it where the model is exported or called. */
export interface Fix { label: string; sentence: string; code: string; saves: number }
/** A kind of op with its steps, or a group of storages; `step`: the one that spent most, whose reason `blocker` the fix removes. */
export interface Part { name: string; bytes: number; where: string; op?: string; step?: number; times?: number; at?: number[]; fix?: Fix; blocker?: number }
/** `change`: what the cure is and saves; `peak`: bytes by which it lowers the peak. */
export interface Cure extends Fix { change: string; peak: number | null; about: string }
/** One of `kvviz.findings(trace)`; `step` is a number, `at` and those of the parts are places of the loaded ones among `times`. */
export interface Finding {
  kind: string; title: string; bytes: number; where: string; scope: string; calm: boolean; example: string; reasons: string[];
  run?: number; // of what was at no kept step
  step: number | null; times: number; at?: number[]; parts?: Part[]; cure?: Cure;
  selection?: { kind: "node" | "storage" | "value" | "cache"; id: number; graph?: number; step?: number };
}
export interface Report {
  steps: number; // that were here when it was made
  cures?: false; // they are still looked for
  findings: Finding[];
}
/** A guided tour; see kvviz/view/page_data/payload_tour.py. `step`: a number; null: the cursor stays, or (`waits`) the step has not run. */
export interface TourStop { caption: string; step: number | null; waits: boolean; tab: string; pane: string }
export interface Tour { title: string; stops: TourStop[] }
export interface Live { frame: number; frontier: Choice[] }

export type Ints = Int32Array;
export type Floats = Float64Array;
/** Columns by group; `*`: floats; see kvviz/view/page_data/payload_steps.py. */
const COLUMNS = {
  frame: "graph parent node iteration run label bind",
  bind: "value storage gen how offset* bytes* info",
  storage: "capacity* origin name born freed space arena address* taken*", // capacity: at the end
  grow: "storage step bytes*",
  step: "frame node flags taken live* alloc* copied* written* sentence rule note end out block free", // end: how it ended, in words
  out: "value storage gen how offset* bytes* info",
  block: "code input culprit message bytes*",
  free: "storage",
  time: "step lane start* end*", // by step, ascending
  refused: "step storage why", // frees that were asked for and not done
  arena: "space name bytes* banks", // those of which it is known how large they are
  mark: "step time* kind value storage bytes* text line", // step: after which it happened
  pair: "first second storage state group kind root sentence exact* range* whole*",
  pairtext: "of", // of each pair all texts and paths of its picture, in that order
  ordered: "first second storage group kind root bytes* view1 view2 path", // pairs that the graph keeps in order
  path: "step", // of each of them the steps by which it does
} as const;
type Column<S extends string> = S extends `${infer N}*` ? Record<N, Floats> : Record<S, Ints>;
type Named<S extends string> = S extends `${infer A} ${infer B}` ? Column<A> & Named<B> : Column<S>;
export type Columns = { [G in keyof typeof COLUMNS]: Named<(typeof COLUMNS)[G]> };

/** Tag, attributes, the name of its text or path (after `=` a fixed text), and the state that shows it. */
type PairShape = [tag: "rect" | "text" | "path", attributes: Record<string, string | number>, field: string, state: string];
/** See kvviz/view/page_data/payload_report.py; `counts`: pairs by precision; `says`: the same in words. */
export interface Hazards {
  picture: { texts: string[]; paths: string[]; states: string[]; shapes: PairShape[]; styles: [light: string, dark: string]; size: [number, number]; head: number; bar: number; font: string };
  groups: string[]; total: number; counts: [exact: number, range: number, root: number]; says: string;
  ordered?: { groups: string[]; total: number; runs: number; of: number }; // pairs of the first `runs` of `of` runs
}
/** A part of a Markdown text. `each`: the fact that repeats it, or ""; then heading lines, and lines. */
export type Template = [each: string, head: string[], lines: string[]];
/** The meanings of numbers in columns: Python's own tables. The page acts on some names and shows the others. */
export interface Codes {
  flag: string[]; // by bit
  how: string[]; binding: string[]; origin: string[];
  owner: string[]; // by origin, in words
  state: [name: string, letter: string, about: string][]; // of nodes
  decision: string[]; outcome: string[]; // of several that hold of a step, its outcome is the first
  figure?: Record<string, [name: string, about: string]>; // what figures are called
  markdown?: Record<string, Template[]>;
}
/** The table of the query language; see kvviz/query/grammar.py. */
export interface Field { name: string; kind: string; about: string; aliases: string[]; sorts: boolean; choices: string[] }
export interface QueryTable {
  longest: number; deepest: number;
  fields: Field[];
  kinds: { name: string; about: string; signs: string[] }[];
  words: Record<string, string>; // for decisions
  units: Record<string, number>;
  examples: string[];
}
export interface Header {
  format: number;
  codes: Codes;
  query: QueryTable; // the language of queries
  title: string;
  policy: { name: string; about: string; dry?: boolean }; // dry: layouts alone, no numbers
  share?: { file: string; sha256: string; version: string; policy: string; again: string[] }; // stated where something is shared
  total: number; // steps of the whole recording
  strings: string[];
  graphs: Graph[];
  drawings: Drawing[];
  runs: Run[];
  story: Word[];
  caches: Cache[];
  hazards?: Hazards;
  tour?: Tour;
  live: Live | null;
  report?: Report | null; // of a trace that goes on only when it is asked for
  columns: Kinds;
}
export interface Payload extends Header, Columns {
  flag: Record<"inPlace" | "elsewhere" | "foreign" | "missed" | "control" | "view", number>; // bits
  ends: [name: string, bit: number][]; // of codes.outcome
  from: Record<"weights" | "caller" | "donated", number>; // origins
  steps: number; frames: number; storages: number;
}

export const FORMAT = 6;

/** Columns that are sent only if needed: places outside of host memory, times, hazards. */
const OPTIONAL = /^(storage\.(space|arena|address|taken)|(time|refused|arena|mark|pair|pairtext|ordered|path)\..*)$/;

async function gunzip(bytes: Uint8Array): Promise<ArrayBuffer> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return await new Response(stream).arrayBuffer();
  } catch {
    throw new Error("these bytes are not a recording, or part of them is missing");
  }
}

function summed(added: Ints): Ints {
  const sums = new Int32Array(added.length);
  let sum = 0;
  for (let i = 0; i < added.length; i++) sums[i] = sum = (sum + added[i]) | 0;
  return sums;
}

/** All texts, from those without numbers and the differences of numbers; see kvviz/view/page_data/packed_columns.py. */
function texts(alike: string[], of: Ints, added: Ints): string[] {
  const parts = alike.map((text) => text.split("\u0001"));
  const last = parts.map((part) => new Array<number>(part.length - 1).fill(0));
  let at = 0;
  return Array.from(of, (which) => {
    const [pieces, numbers] = [parts[which], last[which]];
    let text = pieces[0];
    for (let i = 0; i < numbers.length; i++) {
      numbers[i] += added[at++];
      text += (numbers[i] < 0 ? "\u0001" : numbers[i]) + pieces[i + 1];
    }
    return text;
  });
}

export type Kinds = Record<string, [type: string, length: number, front?: number, back?: number]>;
interface Head { format: number; columns: Kinds }
/** A header, and columns as they were sent: integers as differences from entry to entry. */
interface Sent<H> { header: H; sent: Record<string, Ints | Floats> }

function sentIn<H extends { columns: Kinds }>(raw: ArrayBuffer): Sent<H> {
  const size = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, size))) as H;
  const sent: Sent<H>["sent"] = {};
  let start = Math.ceil((4 + size) / 8) * 8;
  for (const [name, [type, length]] of Object.entries(header.columns)) {
    sent[name] = type === "d" ? new Float64Array(raw, start, length) : new Int32Array(raw, start, length);
    start = Math.ceil((start + sent[name].byteLength) / 8) * 8;
  }
  return { header, sent };
}

/** Apply a change: entries of the header, new ends of lists, new middles of columns; see kvviz/view/page_data/packed_columns.py. */
function apply<H extends Head>({ header, sent }: Sent<H>, raw: ArrayBuffer): void {
  const { header: { fronts, base, columns, ...entries }, sent: middles } = sentIn<{ columns: Kinds; fronts: Record<string, number>; base: number }>(raw);
  if (base !== Object.values(sent).reduce((n, column) => n + column.length, 0)) throw new Error("this change belongs to another recording");
  const known = header as unknown as Record<string, unknown>;
  for (const [key, value] of Object.entries(entries)) known[key] = key in fronts ? [...(known[key] as unknown[]).slice(0, fronts[key]), ...(value as unknown[])] : value;
  for (const [name, [type, , front = 0, back = 0]] of Object.entries(columns)) {
    const [old, middle] = [sent[name] ?? middles[name].subarray(0, 0), middles[name]];
    const made = new (type === "d" ? Float64Array : Int32Array)(front + middle.length + back);
    made.set(old.subarray(0, front));
    made.set(middle, front);
    made.set(old.subarray(old.length - back), front + middle.length);
    sent[name] = made;
    header.columns[name] = [type, made.length];
  }
}

/** Header and columns of unpacked bytes after changes; `lax`: a missing column is empty, not an error. */
export function open<H extends Head>(raw: ArrayBuffer, ...changes: (ArrayBuffer | null)[]): { header: H; column: (name: string, lax?: boolean) => Ints | Floats } {
  const whole = sentIn<H>(raw);
  const { header, sent } = whole;
  if (header.format > FORMAT) throw new Error(`it was made by a newer kvviz, in format ${header.format}, and this page reads format ${FORMAT}: update kvviz`);
  if (header.format !== FORMAT) throw new Error(`it was saved by an older kvviz, in format ${header.format}, and this page reads format ${FORMAT}: run the cell again`);
  for (const change of changes) if (change) apply(whole, change);
  const column = (name: string, lax = false) => {
    if (!sent[name] && !lax) throw new Error(`the payload has no column ${name}`);
    return header.columns[name]?.[0] === "s" ? summed(sent[name] as Ints) : sent[name] ?? new Int32Array(0);
  };
  return { header, column };
}

/** The number of a name that the page acts on. */
function code(table: string[], name: string): number {
  const at = table.indexOf(name);
  if (at < 0) throw new Error(`the payload has no code ${name}`);
  return at;
}

/** Unpacked bytes to a payload; separate from `read` so that tests need no compression. */
export function unpack(raw: ArrayBuffer, ...changes: (ArrayBuffer | null)[]): Payload { return payloadOf(open<Header>(raw, ...changes)); }

/** `lax`: of a plan, which has no steps. */
export function payloadOf({ header, column }: ReturnType<typeof open<Header>>, lax = false): Payload {
  const columns: Record<string, Record<string, Ints | Floats>> = {};
  for (const [group, names] of Object.entries(COLUMNS)) {
    columns[group] = {};
    for (const name of names.replaceAll("*", "").split(" ")) columns[group][name] = column(`${group}.${name}`, lax || OPTIONAL.test(`${group}.${name}`));
  }
  const typed = columns as unknown as Columns;
  if (header.columns["text.of"]) header.strings = texts(header.strings, column("text.of") as Ints, column("number.added") as Ints);
  const { flag, origin, outcome } = header.codes;
  const bit = (name: string) => 1 << code(flag, name);
  return {
    ...header,
    ...typed,
    flag: { inPlace: bit("in_place"), elsewhere: bit("elsewhere"), foreign: bit("foreign"), missed: bit("missed"), control: bit("control"), view: bit("view") },
    ends: outcome.map((name) => [name, bit(name)]),
    from: { weights: code(origin, "weights"), caller: code(origin, "caller"), donated: code(origin, "donated") },
    steps: typed.step.node.length,
    frames: typed.frame.graph.length,
    storages: typed.storage.capacity.length,
  };
}

const opened = new WeakMap<object, Promise<ArrayBuffer>>();
/** Unpacked bytes of a trait, cached; null if empty. */
export async function read(bytes: DataView | Uint8Array | null | undefined): Promise<ArrayBuffer | null> {
  if (!bytes?.byteLength) return null;
  return ensure(opened, bytes, () => gunzip(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)));
}

/** Payloads of other lanes by name; see kvviz/view/page_data/payload_lanes.py. */
const pieces = kept((packed: DataView): Map<string, Uint8Array> => {
  const bytes = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);
  const start = 4 + packed.getUint32(0, true);
  const table = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start))) as Record<string, [number, number]>;
  return new Map(Object.entries(table).map(([key, [at, length]]) => [key, bytes.subarray(start + at, start + at + length)]));
});
export function piece(packed: DataView | null | undefined, name: string): Uint8Array | null {
  return packed?.byteLength ? pieces(packed).get(name) ?? null : null;
}
