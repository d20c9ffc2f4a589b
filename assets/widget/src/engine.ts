// What the page knows of queries before their code is loaded: the table they are read by, and where the code is found once it is there.
import type { Modules } from "./modules.js";
import type { Trace } from "./replay.js";
import type { QueryTable } from "./wire.js";

/** `[low, high]` of a number, `[storage, generation]` of a buffer (-1: any). */
export type Value = string | [number, number];
export type Part =
  | { is: "every" | "some"; parts: Part[] }
  | { is: "not"; part: Part }
  | { is: "word"; text: string }
  | { is: "compare"; field: string; sign: string; values: Value[] };
export interface Query { part: Part | null; orders: { field: string; down: boolean }[]; limit: number | null }

/** `read` throws what is wrong; `find` gives places of steps in the order that the query asks for. */
export interface Engine {
  read(table: QueryTable, text: string): Query;
  find(t: Trace, query: Query): Int32Array;
  test(t: Trace, query: Query): (step: number) => boolean;
}

let engine: Engine | null = null;

export function loaded(): Engine | null {
  return engine;
}

export function use(found: Engine): Engine {
  return (engine = found);
}

export async function load(modules: Modules): Promise<Engine> {
  return engine ?? use(await modules.load<Engine>("query"));
}
