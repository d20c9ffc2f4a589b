// Lanes by the producer's clock: of the device that is written by hand in tests/trace/recordings.py.
import { describe, expect, test } from "vitest";
import { barAt, beside, clock, clockView, place, zoomTime, type Clock } from "../src/clockdata.js";
import { golden } from "./traces.js";

const device = async () => clock(await golden("device"))!;
const lane = (c: Clock, name: string) => c.lanes.find((one) => one.name === name)!;

describe("lanes", () => {
  test("are there only where time is not the step number", async () => {
    expect(clock(await golden("growing"))).toBeNull();
    expect((await device()).lanes.map(({ name }) => name)).toEqual(["transfer", "queue 0", "host", "dram", "l1"]);
  });

  test("have the ops as long as they ran, and a band for a run of several", async () => {
    const ops = lane(await device(), "queue 0").bars.map(({ kind, text, start, end }) => [kind, text, start, end]);
    expect(ops).toEqual([["op", "fill_cache", 4, 9], ["op", "update_cache", 9, 11], ["op", "matmul", 11, 15], ["run", "program 1", 9, 15]]);
  });

  test("have tensors from the op that makes them to the one behind which they are freed", async () => {
    const c = await device();
    const dram = Object.fromEntries(lane(c, "dram").bars.map((bar) => [bar.text, bar]));
    expect(dram["tokens (dram) 4,096 B"]).toMatchObject({ start: 0, end: 8, open: false });
    expect(dram["cache 8,192 B"]).toMatchObject({ start: 4, end: 15, open: true });
  });

  test("tell what moved between spaces, and frees that were refused", async () => {
    const c = await device();
    expect(c.moves.map(({ at, bytes }) => [at, bytes])).toEqual([[4, 4096], [8, 4096]]);
    expect(c.refused.map(({ at, why }) => [at, why])).toEqual([[11, "a program that was submitted reads it"]]);
  });

  test("never draw two bars of a row over each other", async () => {
    for (const one of (await device()).lanes) {
      for (const a of one.bars) for (const b of one.bars) if (a !== b && a.row >= 0 && a.row === b.row) expect(a.end <= b.start || b.end <= a.start).toBe(true);
    }
  });
});

describe("the view of them", () => {
  test("finds what it draws", async () => {
    const c = await device();
    const v = clockView(c, 900, c.from, c.to);
    c.lanes.forEach((one, i) => one.bars.filter((bar) => bar.row >= 0).forEach((bar) => {
      const r = place(v, i, bar);
      expect(barAt(c, v, r.x + r.w / 2, r.y + r.h / 2)?.bar).toBe(bar);
    }));
    expect(barAt(c, v, 10, v.height + 40)).toBeNull();
  });

  test("keeps the time under the pointer while it zooms, and does not leave the recording", async () => {
    const c = await device();
    const v = clockView(c, 900, c.from, c.to);
    const [from, to] = zoomTime(c, v, 2, 10);
    expect((10 - from) / (to - from)).toBeCloseTo((10 - v.from) / (v.to - v.from));
    expect(zoomTime(c, v, 0.1, 10)).toEqual([c.from, c.to]);
    expect(zoomTime(c, { ...v, from: c.to - 4 }, 0.5, c.to - 4)).toEqual([c.to - 8, c.to]);
    expect(zoomTime(c, { ...v, to: c.from + 4 }, 0.5, c.from + 4)).toEqual([c.from, c.from + 8]);
  });

  test("is walked with arrow keys from lane to lane", async () => {
    const c = await device();
    const v = clockView(c, 900, c.from, c.to);
    const first = c.lanes[1].bars.find((bar) => bar.text === "fill_cache")!;
    expect(beside(c, v, 1, first, "ArrowRight")?.bar.text).toBe("update_cache");
    expect(beside(c, v, 1, first, "ArrowUp")?.lane).toBe(0);
    expect(beside(c, v, 1, first, "ArrowDown")?.lane).toBe(2);
    expect(beside(c, v, 1, first, "ArrowLeft")).toBeNull();
  });
});
