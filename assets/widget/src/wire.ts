// Decodes a payload: gzip( uint32 header length | header JSON | columns ), see kvviz/view/wire.py.
// Everything after this file reads typed arrays; no object is made per step.

/** name, op type, scope path, inputs, outputs, captured values (positions in the graph's `values`, -1 = absent). */
export type Node = [string, string, string, number[], number[], number[]];
export interface Block { title: string; path: string; nodes: number[]; drawing: number; alike: number }
export interface Graph {
  name: string;
  kind: "main" | "then_branch" | "else_branch" | "body" | "function";
  parent: [number, number] | null;
  nodes: Node[];
  values: string[];
  weights: number[];
  inputs: number[];
  outputs: number[];
  order: number[];
  blocks: Block[];
}
export type Stub = [number, "in" | "out", number, number, number];
export interface Drawing {
  w: number;
  h: number;
  boxes: [number, number, number, number][];
  edges: [number, number, number[]][];
  stubs: Stub[];
}
export interface Run {
  first: number; last: number; label: string; token: number | null; text: string;
  peak: number; copied: number; written: number; allocated: number;
}
export interface Word { text: string; run: number | null; prompt: boolean }
export interface Cache {
  name: string; input: string; output: string; protocol: string; axis: number;
  capacity: number[]; valid: number[]; copied: number[]; written: number[]; storage: number[];
}
export interface Choice { node: number; alloc: number | null; frees: number | null }
export interface Live { frame: number; frontier: Choice[] }

export type Ints = Int32Array;
export type Floats = Float64Array;
/** The columns, grouped by the part of their name before the dot. */
export interface Columns {
  frame: { graph: Ints; parent: Ints; node: Ints; iteration: Ints; run: Ints; label: Ints; bind: Ints };
  bind: { value: Ints; storage: Ints; gen: Ints; how: Ints; offset: Floats; bytes: Floats; info: Ints };
  storage: { capacity: Floats; origin: Ints; name: Ints; born: Ints; freed: Ints };
  step: {
    frame: Ints; node: Ints; flags: Ints; taken: Ints; live: Floats; alloc: Floats; copied: Floats; written: Floats;
    sentence: Ints; rule: Ints; out: Ints; block: Ints; free: Ints;
  };
  out: { value: Ints; storage: Ints; gen: Ints; how: Ints; offset: Floats; bytes: Floats; info: Ints };
  block: { code: Ints; input: Ints; culprit: Ints; message: Ints; bytes: Floats };
  free: { storage: Ints };
}
export interface Header {
  format: number;
  title: string;
  policy: { name: string; about: string };
  strings: string[];
  graphs: Graph[];
  drawings: Drawing[];
  runs: Run[];
  story: Word[];
  caches: Cache[];
  live: Live | null;
  breakpoint_kinds: string[];
  columns: Record<string, [string, number, number]>;
}
export interface Payload extends Header, Columns {
  steps: number;
  frames: number;
  storages: number;
}

export const FLAG = { inPlace: 1, foreign: 2, missed: 4, control: 8, view: 16 } as const;
export const ORIGINS = ["weights", "caller", "donated", "run", "pool"] as const;
export const OUT_HOW = ["new", "in place", "view", "append", "pool"] as const;
export const BIND_HOW = ["weight", "borrowed", "donated", "captured by reference", "captured by value", "passed"] as const;

const GROUPS: { [G in keyof Columns]: (keyof Columns[G] & string)[] } = {
  frame: ["graph", "parent", "node", "iteration", "run", "label", "bind"],
  bind: ["value", "storage", "gen", "how", "offset", "bytes", "info"],
  storage: ["capacity", "origin", "name", "born", "freed"],
  step: ["frame", "node", "flags", "taken", "live", "alloc", "copied", "written", "sentence", "rule", "out", "block", "free"],
  out: ["value", "storage", "gen", "how", "offset", "bytes", "info"],
  block: ["code", "input", "culprit", "message", "bytes"],
  free: ["storage"],
};

async function gunzip(bytes: Uint8Array): Promise<ArrayBuffer> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return await new Response(stream).arrayBuffer();
  } catch {
    throw new Error("these bytes are not a recording, or part of them is missing");
  }
}

function view(raw: ArrayBuffer, start: number, name: string, entry: [string, number, number] | undefined): Ints | Floats {
  if (!entry) throw new Error(`the payload has no column ${name}`);
  const [type, offset, length] = entry;
  return type === "d" ? new Float64Array(raw, start + offset, length) : new Int32Array(raw, start + offset, length);
}

/** Unpacked bytes to a payload; separate from `decode` so that tests need no compression. */
export function unpack(raw: ArrayBuffer): Payload {
  const size = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, size))) as Header;
  if (header.format !== 1) throw new Error(`format ${header.format} is newer than this page; update kvviz`);
  const start = Math.ceil((4 + size) / 8) * 8;
  const columns: Record<string, Record<string, Ints | Floats>> = {};
  for (const [group, names] of Object.entries(GROUPS)) {
    columns[group] = {};
    for (const name of names) {
      const full = `${group}.${name}`;
      columns[group][name] = view(raw, start, full, header.columns[full]);
    }
  }
  const typed = columns as unknown as Columns;
  return {
    ...header,
    ...typed,
    steps: typed.step.node.length,
    frames: typed.frame.graph.length,
    storages: typed.storage.capacity.length,
  };
}

/** Trait bytes (a DataView in Jupyter, an array in an export) to a payload; null for empty bytes. */
export async function decode(bytes: DataView | Uint8Array | null | undefined): Promise<Payload | null> {
  if (!bytes || bytes.byteLength === 0) return null;
  return unpack(await gunzip(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)));
}
