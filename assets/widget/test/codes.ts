// The tables that Python writes into headers, for payloads that tests make up; see tests/view/golden.py.
import { readFileSync } from "node:fs";
import type { Meter } from "../src/cachedata.js";
import type { QueryTable } from "../src/wire.js";
import type { Codes } from "../src/wire.js";

interface Tables { codes: Codes; query: QueryTable; states: string[]; meters: Meter[] }
export const { codes: CODES, query: QUERY, states: STATES, meters: METERS } = JSON.parse(readFileSync(new URL("golden/codes.json", import.meta.url), "utf8")) as Tables;

/** The number of a name. */
export function code(table: Exclude<keyof Codes, "owner" | "state">, name: string): number {
  const at = (CODES[table] as string[]).indexOf(name);
  if (at < 0) throw new Error(`no ${table} is called ${name}`);
  return at;
}
export const bit = (flag: string) => 1 << code("flag", flag);
