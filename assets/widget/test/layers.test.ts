import { describe, expect, test } from "vitest";
import { alike, cost, isOdd, kinds, layersOf, lines, matrix, missed, OUTSIDE, shown, small } from "../src/missed.js";
import type { Payload, Report } from "../src/wire.js";
import { families, memory } from "../src/bufferlist.js";
import { Store } from "../src/store.js";
import { branches, llama } from "./mock.js";
import { trace } from "./traces.js";

const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);
const flagged = (p: Payload) => [...Array(p.steps).keys()].filter((i) => p.step.flags[i] & p.flag.missed);

describe("the matrix of roles and layers", () => {
  const t = trace(llama(3, 6));
  const { p, x } = t;
  const m = matrix(t, "layer");
  const spent = sum(flagged(p).map((i) => cost(t, i)));

  test("has every layer as a column, and every step of a layer in one cell", () => {
    expect(m.columns).toEqual([0, 1, 2]);
    const inLayers = [...Array(p.steps).keys()].filter((i) => p.graphs[p.frame.graph[p.step.frame[i]]].layer[p.step.node[i]] >= 0);
    expect(sum(m.rows.flatMap((row) => row.cells.map((cell) => cell?.steps ?? 0)))).toBe(inLayers.length);
    for (const row of m.rows) for (const cell of row.cells) if (cell) expect(cell.missed + cell.inPlace + cell.views).toBeLessThanOrEqual(cell.steps);
  });

  test("its bytes and what is outside are those of the missed steps", () => {
    for (const row of m.rows) expect(row.bytes).toBe(sum(row.cells.map((cell) => cell?.bytes ?? 0)));
    expect(sum(m.rows.map((row) => row.bytes)) + m.outside.bytes).toBe(spent);
    expect(m.rows.map((row) => row.bytes)).toEqual([...m.rows.map((row) => row.bytes)].sort((a, b) => b - a));
  });

  test("a role stands once, and its cells are of ops of one kind", () => {
    expect(new Set(m.rows.map((row) => row.role)).size).toBe(m.rows.length);
    for (const row of m.rows) row.cells.forEach((cell, i) => {
      if (!cell) return;
      expect(p.graphs[cell.graph].nodes[cell.node][1]).toBe(row.op);
      expect(p.graphs[cell.graph].layer[cell.node]).toBe(m.columns[i]);
    });
  });

  test("drilled into a layer its columns are runs, and its bytes those of that layer's column", () => {
    m.columns.forEach((layer, column) => {
      const tokens = matrix(t, "run", layer);
      expect(tokens.columns).toEqual(p.runs.map((_, i) => i));
      expect(sum(tokens.rows.map((row) => row.bytes))).toBe(sum(m.rows.map((row) => row.cells[column]?.bytes ?? 0)));
      for (const row of tokens.rows) row.cells.forEach((cell, i) => cell && expect(x.run[cell.worst]).toBe(i));
    });
    const outside = matrix(t, "run", OUTSIDE);
    expect(sum(outside.rows.map((row) => row.bytes))).toBe(m.outside.bytes);
  });

  test("an op that runs otherwise in one layer is the odd one out of its row", () => {
    expect(m.rows.flatMap((row) => row.cells.map((_, i) => isOdd(row, i))).some(Boolean)).toBe(false);
    const other = trace(llama(3, 6));
    const row = m.rows.find((r) => r.cells.every((cell) => cell && cell.missed))!;
    for (const i of flagged(other.p)) if (other.p.step.node[i] === row.cells[1]!.node) other.p.step.flags[i] &= ~other.p.flag.missed;
    const changed = matrix(other, "layer").rows.find((r) => r.role === row.role)!;
    expect(changed.cells.map((_, i) => isOdd(changed, i))).toEqual([false, true, false]);
    expect([0, 1, 2].map((i) => alike(changed, i))).toEqual([2, 1, 2]);
  });

  test("kinds of few bytes are hidden under a threshold that can be moved", () => {
    const all = shown(m, 0, false);
    expect(all.hidden).toBe(0);
    const least = all.rows[1].bytes;
    const few = shown(m, least, false);
    expect(few.rows.length + few.hidden).toBe(all.rows.length);
    expect(few.rows.every((row) => row.bytes >= least)).toBe(true);
    expect(few.bytes).toBe(sum(all.rows.map((row) => row.bytes)) - sum(few.rows.map((row) => row.bytes)));
    expect(shown(m, least, true).rows).toHaveLength(all.rows.length);
  });

  test("a graph without layers has none", () => {
    expect(layersOf(trace(branches(2)))).toEqual([]);
    expect(matrix(trace(branches(2)), "layer").rows).toEqual([]);
  });
});

describe("kinds of missed ops", () => {
  const t = trace(llama(3, 6));
  const list = missed(t);
  const all = kinds(t, list);

  test("have every entry once, and their sums", () => {
    expect(all.flatMap((kind) => kind.entries).sort((a, b) => a.node - b.node)).toEqual([...list].sort((a, b) => a.node - b.node));
    for (const kind of all) {
      expect(kind.bytes).toBe(sum(kind.entries.map((m) => m.bytes)));
      expect(kind.times).toBe(sum(kind.entries.map((m) => m.times)));
      expect(new Set(kind.entries.map((m) => m.reasons.map((r) => r.code).sort().join())).size).toBe(1);
    }
    expect(all.length).toBeLessThan(list.length);
    expect(all.some((kind) => kind.layers.length === 3 && kind.runs > 1)).toBe(true);
  });

  test("are one line each, and open to layers, and to tokens", () => {
    expect(lines(t, all, new Set()).map((line) => line.depth)).toEqual(all.map(() => 0));
    const kind = all.find((k) => k.layers.length === 3 && k.runs > 1)!;
    const below = lines(t, [kind], new Set([kind.key])).slice(1);
    expect(below.map((line) => t.p.graphs[line.entry.graph].layer[line.entry.node])).toEqual([0, 1, 2]);
    expect(sum(below.map((line) => line.bytes))).toBe(kind.bytes);
    const deep = lines(t, [kind], new Set([kind.key, below[1].key])).filter((line) => line.depth === 2);
    expect(deep.map((line) => line.step)).toEqual(below[1].entry.steps);
    expect(sum(deep.map((line) => line.bytes))).toBe(below[1].bytes);
  });

  test("take their threshold from the report", () => {
    const report = { small: 500 } as unknown as Report;
    expect(small(t, report, all)).toBe(500);
    expect(small(t, null, all)).toBe(0);
  });
});

describe("caches of one role in many layers", () => {
  const { p } = trace(llama(6, 4));
  const store = new Store(p, p.steps - 1, (run) => run());
  const { bars } = memory(store.t, store.now, store.cursor, false, new Set());
  const many = (open: string[] = [], keep: number[] = []) => families(store.t, bars, new Set(open), new Set(keep));

  test("are one row that has the bytes of all, and opens", () => {
    const caches = bars.filter((b) => b.cache >= 0);
    const folded = many();
    const told = folded.flatMap((row) => ("members" in row ? [row] : []));
    expect(told.map((row) => row.role).sort()).toEqual(["key", "value"]);
    for (const row of told) expect(row.bytes).toBe(sum(caches.filter((b) => p.caches[b.cache].role === row.role).map((b) => b.capacity)));
    expect(folded.filter((row) => !("members" in row) && row.cache >= 0 && !row.use)).toEqual([]);
    const opened = many(["key"]).filter((row) => !("members" in row) && row.cache >= 0);
    expect(opened.length).toBeGreaterThanOrEqual(6);
  });

  test("what is lit keeps a row of its own, and all other buffers theirs", () => {
    const one = bars.find((b) => b.cache >= 0 && !b.use)!;
    expect(many([], [one.id])).toContain(one);
    expect(many().filter((row) => !("members" in row) && row.cache < 0)).toEqual(bars.filter((b) => b.cache < 0));
  });

  test("few layers are told one by one", () => {
    const few = trace(llama(2, 4)).p;
    const at = new Store(few, few.steps - 1, (run) => run());
    const all = memory(at.t, at.now, at.cursor, false, new Set()).bars;
    expect(families(at.t, all, new Set(), new Set())).toEqual(all);
  });
});
