// Values of a recording: from bytes to entries, which output and which binding they belong to, and what is said of them.
import { expect, test } from "vitest";
import { arcsOf, wordRow } from "../src/heat.js";
import { buildIndex, placeOf, type Trace } from "../src/replay.js";
import { before, entryOf, numeral, smallOf } from "../src/valuecard.js";
import { unpackValues, weightsOf, type ValueData } from "../src/valuedata.js";
import { cellText, pictureText } from "../src/values.js";
import { unpack } from "../src/wire.js";
import { pack } from "./encode.js";
import { llama } from "./mock.js";

const CODES = { bins: 4, shades: 250, empty: 251, below: 252, above: 253, nan: 254, whole: 65535 };

/** Bytes as kvviz/view/page_data/payload_values.py makes them; tests/view/test_wire_values.py holds it to this layout. */
function encoded(parts: Record<string, number[]>, bytes: number[] = [], weights: number[] = []): ArrayBuffer {
  const ints = (packed: Uint8Array | Uint16Array) => {
    const room = new Uint8Array(Math.ceil(packed.byteLength / 4) * 4);
    room.set(new Uint8Array(packed.buffer));
    return Array.from(new Int32Array(room.buffer));
  };
  const empty = { at: [], slot: [], numbers: [], counts: [], histogram_of: [], histogram: [], picture: [], scale: [], attention: [] };
  const all: Record<string, number[]> = { ...empty, ...parts, cells: ints(Uint8Array.from(bytes)), weights: ints(Uint16Array.from(weights)) };
  return pack({ codes: CODES, about: "", budget: 1000, steps: 1, first: { nan: null, inf: null } } as never, all);
}

/** Values of these outputs (number of the step, which output) and bindings (-1 - run, which). */
function known(keys: [number, number][]): ValueData {
  return unpackValues(encoded({
    at: keys.map(([at]) => at), slot: keys.map(([, slot]) => slot),
    numbers: keys.flatMap((_, i) => [i, i + 1, i + 0.5]), counts: keys.flatMap((_, i) => [i, 0, 0]),
    histogram_of: keys.map((_, i) => i), histogram: keys.flatMap((_, i) => [i, 1, 2, 3]),
  }));
}

function trace(values: ValueData | null): Trace {
  const p = unpack(llama(2, 4));
  return { p, x: buildIndex(p), values };
}

const out = (entry: number) => ({ from: "out" as const, entry });

test("an output knows its entry by the number of its step and its place among the outputs", () => {
  const { p } = trace(null);
  const t = trace(known([[3, 0], [p.steps - 1, 0]]));
  expect(entryOf(t, out(p.step.out[3]))).toBe(0);
  expect(entryOf(t, out(p.step.out[p.steps - 1]))).toBe(1);
  expect(entryOf(t, out(p.step.out[4]))).toBe(-1);
  expect(smallOf(t, out(p.step.out[p.steps - 1]))).toEqual({ text: "min 1 · max 2 · 1 NaN", histogram: [1, 1, 2, 3] });
  expect(smallOf(t, out(p.step.out[4]))).toBe(null);
});

test("without values nothing has an entry", () => {
  const t = trace(null);
  expect(entryOf(t, out(0))).toBe(-1);
  expect(smallOf(t, out(0))).toBe(null);
  expect(entryOf(t, placeOf(t, 0, 0, t.p.steps) ?? { from: "out", entry: 0, storage: 0, gen: 0 })).toBe(-1);
});

test("what a run was given has an entry of its own, and a cache that was handed on that of the run before", () => {
  const { p, x } = trace(null);
  const main = Array.from(p.frame.run).findIndex((run, f) => run === 2 && p.frame.parent[f] < 0);
  const from = p.frame.bind[main];
  const names = Array.from(p.bind.value.subarray(from, p.frame.bind[main + 1]), (v) => p.graphs[0].values[v]);
  const ids = names.indexOf("input_ids");
  const past = names.indexOf("past_key_values.1.key");
  // given the output of run 1 that the cache of run 2 is
  const made = p.graphs[0].values.indexOf("present.1.key");
  const out = Array.from(p.out.value).findIndex((v, o) => v === made && p.frame.run[p.step.frame[x.outStep[o]]] === 1);
  const t = trace(known([[-3, ids], [x.outStep[out], 0]]));
  const bound = (slot: number) => ({ from: "bind" as const, entry: from + slot, storage: p.bind.storage[from + slot], gen: p.bind.gen[from + slot] });
  expect(entryOf(t, bound(ids))).toBe(0);
  expect(entryOf(t, bound(past))).toBe(1);
});

test("before an overwrite lay the input that was taken over", () => {
  const t = trace(known([]));
  const { p } = t;
  const step = Array.from(p.step.taken).findIndex((taken, s) => taken && p.codes.how[p.out.how[p.step.out[s]]] === "in place");
  const found = before(t, p.step.out[step])!;
  const inputs = p.graphs[0].nodes[p.step.node[step]][3];
  expect(inputs).toContain(found.value);
  expect(p.step.taken[step] & (1 << inputs.indexOf(found.value))).toBeTruthy();
  expect(found.place.storage).toBe(p.out.storage[p.step.out[step]]);
  expect(found.place.gen).toBe(p.out.gen[p.step.out[step]] - 1);
  const fresh = Array.from(p.out.how).findIndex((how) => p.codes.how[how] === "new");
  expect(before(t, fresh)).toBe(null);
});

test("pictures say which axes they show, and cells what they stand for", () => {
  const shape = [0, 0, 4, 2, 3, 1, 1, 2, 2, 2, 0];
  const second = [0, 1, 4, 2, 3, 1, 1, 2, 2, 2, 4];
  const v = unpackValues(encoded({ at: [0], slot: [0], numbers: [0, 1, 0.5], counts: [0, 0, 0], picture: [...shape, ...second], scale: [-1, 1, 0, 250] }, [0, 250, 254, 253, 0, 125, 252, 251]));
  const [one, two] = v.pictures.get(0)!;
  expect(pictureText(one, 0)).toBe("entry 0 of 4 on axis 1; axis 2 down, axis 3 across: 2 × 2 cells, a cell is the mean of 1 × 2");
  expect([0, 1, 2, 3].map((at) => cellText(one, CODES, at))).toEqual(["about −1", "about 1", "NaN", "+∞"]);
  expect([0, 1, 2, 3].map((at) => cellText(two, CODES, at))).toEqual(["about 0", "about 125", "−∞", ""]);
});

test("attention is given by head and row of the cache", () => {
  const v = unpackValues(encoded({ attention: [1, 2, 2, 3, 1, 0, 0, 2, 1, 1, 0, 6] }, [], [0, 65535, 0, 13107, 0, 0, 65535]));
  expect(weightsOf(v, 1, 2)).toEqual([[0, 0, 1, 0], [0, 0.2, 0, 0]]);
  expect(weightsOf(v, 0, 2)).toEqual([[1]]);
  expect(weightsOf(v, 1, 1)).toBe(null);
  expect(weightsOf(null, 0, 0)).toBe(null);
});

test("arcs lead to what was weighed, the strongest last, and to nothing beside the axis", () => {
  const axis = { first: 2, rows: 6, width: 600 };
  const weights = [0.9, 0, 0.05, 0.3, 0.0001, 0.1, 0.5, 0.2];
  expect(arcsOf(weights, 6, axis).map((arc) => arc.row)).toEqual([2, 5, 7, 3]);
  const many = Array.from({ length: 500 }, (_, i) => 0.5 + i / 1000);
  expect(arcsOf(many, 0, { first: 0, rows: 500, width: 600 })).toHaveLength(48);
});

test("words stand over their columns where they fit, else they slant, and where there is no room some are left out", () => {
  const wide = (text: string) => 7 * text.length;
  const words = ["once", "upon", "a", "time"];
  expect(wordRow({ first: 0, rows: 4, width: 400 }, words, wide)).toEqual({ high: 15, every: 1, slanted: false });
  const narrow = wordRow({ first: 0, rows: 4, width: 60 }, words, wide);
  expect([narrow.slanted, narrow.every]).toEqual([true, 1]);
  expect(wordRow({ first: 0, rows: 200, width: 600 }, words, wide).every).toBe(4);
  expect(wordRow({ first: 0, rows: 4, width: 400 }, ["", "", "", ""], wide).high).toBe(0);
});

test("numbers are told with three digits and a true minus", () => {
  expect([0, -3, 1e6, -1.92345, 0.00001234, 16777216.5].map(numeral)).toEqual(["0", "−3", "1.00e+6", "−1.92", "1.23e−5", "1.68e+7"]);
});
