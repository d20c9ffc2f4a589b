// The rows of caches, as spans: what lies in a row, who wrote it, and where it is drawn.
import { describe, expect, test } from "vitest";
import { above, axisOf, cellAt, cellsOf, CLOSE, cost, counts, drawAxis, LEFT, lookOf, meter, most, moves, newest, noteAt, rowAt, ticks, tokenAt, unpackCaches, xOf } from "../src/cachedata.js";
import { METERS, STATES } from "./codes.js";
import { pack } from "./encode.js";

const [RESERVED, VALID, WRITTEN, STALE, OUTSIDE, WRAPPED] = ["reserved", "valid", "written", "stale", "outside", "wrapped"].map((name) => STATES.indexOf(name));
type Cell = [start: number, stop: number, state: number, fresh: number, token: number];

/** Four rows, written round and round, after four runs; beside it a cache whose last row is stale. */
const RING: Cell[][] = [
  [[0, 3, WRITTEN, 1, 0], [3, 4, RESERVED, 0, -1]],
  [[0, 1, OUTSIDE, 0, 0], [1, 3, VALID, 0, 1], [3, 4, WRITTEN, 1, 3]],
  [[0, 1, WRITTEN, 1, 4], [1, 2, OUTSIDE, 0, 1], [2, 4, VALID, 0, 2]],
  [[0, 1, WRAPPED, 0, 4], [1, 2, WRITTEN, 1, 5], [2, 3, OUTSIDE, 0, 2], [3, 4, VALID, 0, 3]],
];
const LEFT_OVER: Cell[][] = RING.map((_, run) => [[0, 3 + run, VALID, 0, 0], [3 + run, 9, STALE, 0, -1]]);

function packed(notes: [run: number, start: number, stop: number, text: string][] = []): ArrayBuffer {
  const streams = [RING, LEFT_OVER];
  const cells = streams.flat(2);
  const at: number[] = [];
  let n = 0;
  for (const stream of streams) {
    for (const run of stream) {
      at.push(n);
      n += run.length;
    }
    at.push(n);
  }
  const parts = ["start", "stop", "state", "fresh", "token"];
  const tables: Record<string, number[]> = { "cell.at": at };
  parts.forEach((name, i) => (tables[`cell.${name}`] = cells.map((cell) => cell[i])));
  for (const { name } of METERS) tables[`meter.${name}`] = streams.flatMap((stream) => stream.map((run) => (name === "capacity" ? run[run.length - 1][1] : 0)));
  const caches = [{ heads: 2, unit: 64, streams: [0] }, { heads: 1, unit: 0, streams: [1, 0] }];
  if (notes.length) {
    // All of the first stream; of each stream there is one place more than runs.
    tables["note.at"] = [0, 1, 2, 3, 4, 4, 4, 4, 4, 4].map((run) => notes.filter((note) => note[0] < run).length);
    tables["note.start"] = notes.map((note) => note[1]);
    tables["note.stop"] = notes.map((note) => note[2]);
    tables["note.text"] = notes.map((_, i) => i);
  }
  const more = notes.length ? { notes: notes.map((note) => note[3]) } : {};
  return pack({ ...more, states: STATES, meters: METERS, runs: ["prefill", "decode 1", "decode 2", "decode 3"], caches, warnings: [] } as never, tables);
}

const d = unpackCaches(packed());

test("a move is at the run that copied the past, in the graph or behind it", () => {
  const d = unpackCaches(packed());
  d.measured.bytes_copied = Float64Array.from([0, 0, 128, 0, 0, 0, 0, 0]);
  d.measured.bytes_moved_outside = Float64Array.from([0, 64, 1, 0, 0, 0, 0, 0]);
  expect(moves(d, 0)).toEqual([{ run: 1, bytes: 64 }, { run: 2, bytes: 129 }]);
  expect(moves(d, 1)).toEqual([]);
});

describe("a row", () => {
  test("is in the cell that covers it, and in none beyond the capacity", () => {
    RING.forEach((cells, run) => {
      for (let row = 0; row < 4; row++) {
        const cell = cellAt(d, 0, run, row);
        const [start, stop, state] = cells.find((c) => c[0] <= row && row < c[1])!;
        expect([d.start[cell], d.stop[cell], d.state[cell]]).toEqual([start, stop, state]);
      }
      expect(cellAt(d, 0, run, 4)).toBe(-1);
    });
  });

  test("has the note that its producer gave it after that run, and none elsewhere", () => {
    const noted = unpackCaches(packed([[1, 0, 2, "sequence 0"], [1, 2, 3, "freed"], [3, 1, 2, "sequence 1"]]));
    expect([0, 1, 2, 3].map((row) => noteAt(noted, 0, 1, row))).toEqual(["sequence 0", "sequence 0", "freed", ""]);
    expect([0, 1, 2].map((row) => noteAt(noted, 0, 3, row))).toEqual(["", "sequence 1", ""]);
    expect([0, 2].map((run) => noteAt(noted, 0, run, 1))).toEqual(["", ""]);
    expect(noteAt(noted, 1, 1, 0)).toBe("");
    expect(noteAt(d, 0, 1, 0)).toBe("");
  });

  test("holds a token that a run wrote: the first in which it was there", () => {
    expect(tokenAt(d, 0, 0, 2)).toEqual({ position: 2, run: 0 });
    expect(tokenAt(d, 0, 3, 3)).toEqual({ position: 3, run: 1 });
    expect(tokenAt(d, 0, 3, 0)).toEqual({ position: 4, run: 2 });
    expect(tokenAt(d, 0, 3, 1)).toEqual({ position: 5, run: 3 });
    expect(tokenAt(d, 0, 0, 3)).toBeNull();
    expect(tokenAt(d, 1, 0, 8)).toBeNull();
  });

  test("counts once, in its state", () => {
    RING.forEach((_, run) => expect(counts(d, 0, run).reduce((a, b) => a + b)).toBe(4));
    expect(counts(d, 0, 3)).toEqual([0, 1, 1, 0, 1, 1]);
  });

  test("is the newest where the run wrote it, else where the last token is", () => {
    expect([0, 1, 2, 3].map((run) => newest(d, 0, run))).toEqual([0, 3, 0, 1]);
    expect(newest(d, 1, 2)).toBe(4);
  });
});

test("each cache has meters and a length of its own", () => {
  expect([most(d, 0), most(d, 1)]).toEqual([4, 9]);
  expect(meter(d, "capacity", 1, 3)).toBe(9);
  expect(cellsOf(d, 1, 0)).toEqual([12, 14]);
});

describe("what a run did", () => {
  const told = (values: Record<string, number[]>, unit = 64, protocol = "growing", given = 0) => {
    const runs = ["prefill", "decode 1"];
    const measured = Object.fromEntries(METERS.map(({ name }) => [name, Float64Array.from(values[name] ?? [0, 0])]));
    const one = { ...d, runs, caches: [{ heads: 1, unit, streams: [0], given: [given, 8] }], measured } as unknown as typeof d;
    return [0, 1].map((run) => cost(one, 0, run, protocol));
  };
  test("is told in rows, and what was copied in bytes too", () => {
    expect(told({ rows_written: [3, 1], bytes_copied: [0, 192], valid: [3, 4], capacity: [3, 4] })).toEqual([
      "Prefill wrote 3 rows and copied none: no row was valid before.",
      "Decode 1 wrote 1 row and copied 3 rows (192 B): 3 of 3 rows were valid before.",
    ]);
  });
  test("is told in bytes where those of a row are not known, with what the caller moved", () => {
    expect(told({ rows_written: [3, 1], bytes_copied: [0, 192], valid: [3, 4], capacity: [8, 8], bytes_moved_outside: [0, 256] }, 0)[1]).toBe(
      "Decode 1 wrote 1 row and copied 192 B: 3 of 8 rows were valid before. After it the caller moved 256 B to make room.",
    );
  });
  test("begins with the rows that the first run was given", () => {
    expect(told({ rows_written: [1, 1], bytes_copied: [0, 0], valid: [6, 7], capacity: [8, 8] }, 64, "growing", 5)[0]).toBe(
      "Prefill wrote 1 row and copied none: 5 of 8 rows were valid before.",
    );
  });
  test("of a state is all of it", () => {
    expect(told({ bytes_written: [512, 512] }, 0, "state")[1]).toBe("Decode 1 wrote 512 B: a state is written anew by every run.");
  });
});

test("every state has a look of its own, and none rests on its fill alone", () => {
  const kinds = STATES.map(lookOf);
  for (const look of kinds) expect(STATES).not.toContain(look.about);
  expect([...STATES].sort(above)[0]).toBe("reserved");
  expect(new Set(kinds.map((look) => look.fill)).size).toBe(STATES.length);
  expect(new Set(kinds.map((look) => `${look.mark} ${look.dash} ${look.line}`)).size).toBe(STATES.length);
});

describe("the axis of rows", () => {
  test("gives back the row under the pixel where it is drawn", () => {
    for (const [rows, width] of [[10, 900], [96, 500], [700, 1300]]) {
      const a = axisOf(rows, width, null);
      for (const row of [0, 1, rows >> 1, rows - 1]) expect(rowAt(a, (xOf(a, row) + xOf(a, row + 1)) / 2)).toBe(row);
      expect([rowAt(a, LEFT - 3), rowAt(a, LEFT + a.width + 1)]).toEqual([-1, -1]);
    }
  });

  test("shows so many rows around one in a close-up, never beyond the ends", () => {
    for (const around of [0, 5, 2000, 4095]) {
      const a = axisOf(4096, 800, around);
      expect(a.rows).toBe(CLOSE);
      expect(a.first).toBeGreaterThanOrEqual(0);
      expect(a.first + a.rows).toBeLessThanOrEqual(4096);
      expect(around >= a.first && around < a.first + a.rows).toBe(true);
    }
    expect(axisOf(10, 800, 9)).toMatchObject({ first: 0, rows: 10 });
  });

  test("names rows so far apart that their numbers do not touch", () => {
    for (const [rows, width] of [[10, 560], [24, 300], [512, 600], [4096, 560], [4096, 1300], [131072, 500]]) {
      const a = axisOf(rows, width, null);
      const named = ticks(a);
      expect(named.length).toBeGreaterThan(2);
      const pitch = ((named[1] - named[0]) / a.rows) * a.width;
      expect(pitch).toBeGreaterThanOrEqual(7 * String(rows).length);
      expect(named[0]).toBe(0);
    }
  });
});

test("the numbers under an axis keep apart and inside it, whatever its length and width", () => {
  for (const rows of [17, 64, 100, 562, 563, 600, 1000, 4096, 9999]) {
    for (const width of [200, 333, 940, 941]) {
      const axis = axisOf(rows, width, null);
      const drawn: [number, number][] = [];
      const context = { measureText: (text: string) => ({ width: 6.7 * text.length }), fillText: (text: string, x: number) => void drawn.push([x, x + 6.7 * text.length]) };
      drawAxis(context as never, { family: "", colour: () => "" } as never, axis, 0);
      expect(drawn.length).toBeGreaterThan(1);
      for (let i = 1; i < drawn.length; i++) expect(drawn[i][0] - drawn[i - 1][1]).toBeGreaterThanOrEqual(8);
      expect(drawn[0][0]).toBeGreaterThanOrEqual(LEFT);
      expect(drawn[drawn.length - 1][1]).toBeLessThanOrEqual(LEFT + axis.width + 0.01);
    }
  }
});
