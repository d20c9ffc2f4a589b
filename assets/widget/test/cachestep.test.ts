// The caches between two ops: rows that a run has stored, and rows that wait for ops to come.
import { describe, expect, test } from "vitest";
import { atStep, cellsOf, PENDING, progress, unpackCaches, type CacheData } from "../src/cachedata.js";
import { METERS, STATES } from "./codes.js";
import { pack } from "./encode.js";

const [RESERVED, VALID, WRITTEN] = ["reserved", "valid", "written"].map((name) => STATES.indexOf(name));
// Three rows, written round and round: run 1 stores row 2 with step 14 and row 0, which held token 0, with step 17.
const CELLS = [[[0, 2, WRITTEN, 1, 0], [2, 3, RESERVED, 0, -1]], [[0, 1, WRITTEN, 1, 3], [1, 2, VALID, 0, 1], [2, 3, WRITTEN, 1, 2]]];

function data(stores: boolean): CacheData {
  const cells = CELLS.flat();
  const tables: Record<string, number[]> = { "cell.at": [0, 2, 5] };
  ["start", "stop", "state", "fresh", "token"].forEach((name, i) => (tables[`cell.${name}`] = cells.map((cell) => cell[i])));
  for (const { name } of METERS) tables[`meter.${name}`] = [3, 3];
  if (stores) Object.assign(tables, { "store.at": [0, 1, 3], "store.step": [5, 14, 17], "store.start": [0, 2, 0], "store.stop": [2, 3, 1] });
  return unpackCaches(pack({ states: STATES, meters: METERS, runs: ["prefill", "decode 1"], caches: [{ heads: 1, unit: 0, streams: [0] }], warnings: [] } as never, tables));
}

/** State and token of every row. */
function rows(d: CacheData, run: number): string[] {
  const [from, to] = cellsOf(d, 0, run);
  const told: string[] = [];
  for (let c = from; c < to; c++) for (let row = d.start[c]; row < d.stop[c]; row++) told[row] = `${d.states[d.state[c]]} ${d.token[c] < 0 ? "-" : d.token[c] + row - d.start[c]}`;
  return told;
}

describe("after a step", () => {
  test("rows that later steps store hold what they held before, or nothing", () => {
    const d = data(true);
    expect(rows(atStep(d, 0, 0, 1, 13), 1)).toEqual(["valid 0", "valid 1", `${PENDING} -`]);
    expect(rows(atStep(d, 0, 0, 1, 14), 1)).toEqual(["valid 0", "valid 1", "written 2"]);
    expect(rows(atStep(d, 0, 0, 1, 17), 1)).toEqual(["written 3", "valid 1", "written 2"]);
    expect(rows(atStep(d, 0, 0, 0, 4), 0)).toEqual([`${PENDING} -`, `${PENDING} -`, "reserved -"]);
  });

  test("the other runs are as they were", () => {
    const d = data(true);
    expect(rows(atStep(d, 0, 0, 1, 13), 0)).toEqual(rows(d, 0));
    expect(rows(atStep(d, 0, 0, 0, 4), 1)).toEqual(rows(d, 1));
  });

  test("it is told what is stored, what waits, and which step is next", () => {
    const d = data(true);
    expect(progress(d, 0, 1, 13)).toEqual({ done: 0, todo: 2, now: false, step: 14 });
    expect(progress(d, 0, 1, 14)).toEqual({ done: 1, todo: 1, now: true, step: 17 });
    expect(progress(d, 0, 1, 30)).toEqual({ done: 2, todo: 0, now: false, step: 17 });
  });

  test("where it is not told what ops store, a run is shown as it ended", () => {
    const d = data(false);
    expect(atStep(d, 0, 0, 1, 0)).toBe(d);
    expect(progress(d, 0, 1, 0)).toEqual({ done: 0, todo: 0, now: false, step: -1 });
  });
});
