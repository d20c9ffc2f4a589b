// Traces that several tests look at.
import { readdirSync, readFileSync } from "node:fs";
import { buildIndex, type Trace } from "../src/replay.js";
import { read, unpack, type Columns, type Payload } from "../src/wire.js";

export function trace(raw: ArrayBuffer): Trace {
  const p = unpack(raw);
  return { p, x: buildIndex(p) };
}

const FOLDER = new URL("golden/", import.meta.url);
/** Names of the recordings that Python wrote; see tests/view/golden.py. */
export const NAMES = readdirSync(FOLDER).filter((file) => file.endsWith(".payload") && !/^(plan|caches)/.test(file)).map((file) => file.replace(".payload", ""));
/** Contents of a file in that folder. */
export const bytes = async (file: string) => (await read(readFileSync(new URL(file, FOLDER))))!;
export const golden = async (name: string) => trace(await bytes(`${name}.payload`));

/** Step of a node by its short name, counted from the n-th time it runs. */
export function stepOf({ p }: Trace, name: string, time = 0): number {
  for (let i = 0, seen = 0; i < p.steps; i++) {
    const node = p.graphs[p.frame.graph[p.step.frame[i]]].nodes[p.step.node[i]];
    if (node[0].endsWith(`/${name}`) && seen++ === time) return i;
  }
  throw new Error(`no step ${name} (${time})`);
}

export function value({ p }: Trace, frame: number, name: string): number {
  return p.graphs[p.frame.graph[frame]].values.indexOf(name);
}

/** The same recording with the steps of some runs only, as kvviz/view/page_data/payload.py tells it. */
export function few(raw: ArrayBuffer, keep: number[]): Payload {
  const p = unpack(raw);
  const steps = p.runs.flatMap((r, run) => (keep.includes(run) ? Array.from({ length: r.last - r.first }, (_, i) => r.first + i) : []));
  const place = (step: number) => (step < 0 ? step : steps.filter((s) => s < step).length);
  const parts = { out: "out", block: "block", free: "free" } as const;
  const told: Record<string, Record<string, Int32Array | Float64Array>> = { step: {} };
  for (const [name, column] of Object.entries(p.step)) {
    if (!(name in parts)) told.step[name] = column.length ? (column as Int32Array).filter((_, i) => steps.includes(i)) : column;
  }
  for (const group of Object.values(parts)) {
    const entries = steps.flatMap((s) => Array.from({ length: p.step[group][s + 1] - p.step[group][s] }, (_, i) => p.step[group][s] + i));
    const at = [0];
    for (const s of steps) at.push(at[at.length - 1] + p.step[group][s + 1] - p.step[group][s]);
    told.step[group] = Int32Array.from(at);
    told[group] = Object.fromEntries(Object.entries(p[group]).map(([name, column]) => [name, (column as Int32Array).filter((_, i) => entries.includes(i))]));
  }
  const storage = { ...p.storage, born: p.storage.born.map(place), freed: p.storage.freed.map(place) };
  const runs = p.runs.map((r) => ({ ...r, first: place(r.first), last: place(r.last) }));
  return { ...p, ...(told as unknown as Columns), storage, runs, steps: steps.length };
}
