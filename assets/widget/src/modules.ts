// Parts of the page that are loaded on demand, among them the query engine.
import { ensure } from "./arrays.js";
import type { Trace } from "./replay.js";
import { read, type QueryTable } from "./wire.js";

export interface Modules { load<T>(name: string): Promise<T> }

/** A module is a function of what the page shares with it, see build.mjs; it hands over its default export. */
async function evaluate(text: string, shared: unknown): Promise<unknown> {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    const { default: make } = await import(address);
    return await new Promise((done) => make(shared, done));
  } finally {
    URL.revokeObjectURL(address);
  }
}

type Texts = Record<string, string>;

/** `packed`: source text by name, in a notebook as gzipped JSON; see kvviz/view/page_modules.py. A module is loaded once. */
export function modules(packed: () => DataView | Uint8Array | Texts | null | undefined, shared: unknown): Modules {
  const loaded = new Map<string, Promise<unknown>>();
  const begin = async (name: string) => {
    const given = packed();
    const raw = !given || ArrayBuffer.isView(given) ? await read(given) : null;
    const texts = raw ? (JSON.parse(new TextDecoder().decode(raw)) as Texts) : (given as Texts | null);
    const text = texts?.[name];
    if (!text) throw new Error(`this page came without its part "${name}"`);
    return evaluate(text, shared);
  };
  return {
    load<T>(name: string): Promise<T> {
      return ensure(loaded, name, () => begin(name)) as Promise<T>;
    },
  };
}

/** `[low, high]` of a number, `[storage, generation]` of a buffer (-1: any). */
export type Value = string | [number, number];
export type Part =
  | { is: "every" | "some"; parts: Part[] }
  | { is: "not"; part: Part }
  | { is: "word"; text: string }
  | { is: "compare"; field: string; sign: string; values: Value[] };
export interface Query { part: Part | null; orders: { field: string; down: boolean }[]; limit: number | null }

/** `read` throws an error with a message; `find` returns places of steps in the order of the query. */
export interface Engine {
  read(table: QueryTable, text: string): Query;
  find(t: Trace, query: Query): Int32Array;
  test(t: Trace, query: Query): (step: number) => boolean;
}

let engine: Engine | null = null;

export function loaded(): Engine | null { return engine; }

export function use(found: Engine): Engine { return (engine = found); }

export async function load(modules: Modules): Promise<Engine> { return engine ?? use(await modules.load<Engine>("query")); }
