// The memory map: lives, and where they stand.
import { describe, expect, test } from "vitest";
import { buildIndex, capacity, numberOf, type Trace } from "../src/replay.js";
import { addressed, inOrder, layout, lives, notches, stack, type Lives, type Sort } from "../src/mapdata.js";
import { unpack } from "../src/wire.js";
import { llama } from "./mock.js";
import { golden, NAMES, stepOf, trace } from "./traces.js";

const SORTS: Sort[] = ["lifetime", "bytes", "birth", "address"];

/** Pairs of lives that are alive at one step and share bytes of one band; by a sweep over time, not as the layout does it. */
function overlaps(t: Trace, sort: Sort): string[] {
  const { l, band, base } = layout(t, sort);
  const found: string[] = [];
  const born = Array.from({ length: l.n }, (_, k) => k).sort((a, b) => l.from[a] - l.from[b]);
  let alive: number[] = [];
  for (const k of born) {
    alive = alive.filter((o) => l.to[o] > l.from[k]);
    for (const o of alive) {
      if (band[o] === band[k] && base[o] < base[k] + l.bytes[k] && base[k] < base[o] + l.bytes[o]) found.push(`B${l.storage[o]} B${l.storage[k]}`);
    }
    alive.push(k);
  }
  return found;
}

describe.each(NAMES)("the map of %s", (name) => {
  test("has all bytes that are live, at 200 cursors", async () => {
    const t = await golden(name);
    const l = lives(t);
    const { p, x } = t;
    for (let i = 0; i < Math.min(200, p.steps); i++) {
      const step = Math.floor((i * p.steps) / Math.min(200, p.steps));
      let sum = x.weights;
      for (let k = 0; k < l.n; k++) if (l.from[k] <= step && l.to[k] > step) sum += capacity(t, l.storage[k], step);
      expect(sum).toBe(p.step.live[step]);
    }
  });

  test.each(SORTS)("stands without two that overlap, by %s", async (sort) => {
    expect(overlaps(await golden(name), sort)).toEqual([]);
  });

  test("knows the last use of what Python says is held too long", async () => {
    const t = await golden(name);
    const l = lives(t);
    const { p } = t;
    for (const h of p.report?.findings.filter((one) => one.kind === "held") ?? []) {
      // of those that a view keeps Python tells the last use of the rest; what a loop collects only Python knows
      if (/small view|collects/.test(h.example)) continue;
      const of = Array.from({ length: l.n }, (_, k) => k).filter((k) => l.storage[k] === h.selection?.id);
      if (of.length !== 1) continue;
      const [k] = of;
      // Python counts what is never used from when it came
      expect([h.title, numberOf(t, l.used[k] < 0 ? l.from[k] : l.used[k])]).toEqual([h.title, h.step ?? -1]);
    }
  });
});

test("a buffer that is overwritten has a notch where that happens", () => {
  const t = trace(llama(2, 3));
  const l = lives(t);
  const step = stepOf(t, "k_cache", 4);
  const k = l.at(t.p.out.storage[t.p.step.out[step]], step);
  expect(notches(t, l, k)).toContain(step);
  expect(l.cache[k]).toBe(0);
});

describe("an arena that tells addresses", () => {
  const FAR = 1 << 20; // more than any storage has
  const p = unpack(llama(2, 3));
  const text = [...p.strings, "dram", "dram 0", "host", ""];
  const there = (s: number) => s % 2 === 1 && p.storage.origin[s] !== p.from.weights;
  const place = (name: string) => text.indexOf(name);
  const column = (of: (s: number) => number) => Int32Array.from({ length: p.storages }, (_, s) => of(s));
  const told = {
    ...p, strings: text,
    storage: {
      ...p.storage,
      space: column((s) => place(there(s) ? "dram" : "host")), arena: column((s) => place(there(s) ? "dram 0" : "")),
      address: Float64Array.from({ length: p.storages }, (_, s) => (there(s) ? FAR * s : -1)),
    },
  };
  const t = { p: told, x: buildIndex(told) };

  test("is a band of its own, where storages stand at their addresses; the rest is stacked in another", () => {
    expect(addressed(t)).toBe(true);
    const { l, bands, band, base } = layout(t, "address");
    expect(bands.map((b) => [b.space, b.arena, b.addressed]).sort()).toEqual([["dram", "dram 0", true], ["host", "", false]]);
    for (let k = 0; k < l.n; k++) {
      const s = l.storage[k];
      expect(bands[band[k]].space).toBe(there(s) ? "dram" : "host");
      if (there(s)) expect(base[k]).toBe(FAR * s);
    }
    expect(overlaps(t, "address")).toEqual([]);
  });

  test("is stacked like any other when another order is asked for", () => {
    const { bands } = layout(t, "lifetime");
    expect(bands.every((b) => !b.addressed)).toBe(true);
    expect(overlaps(t, "lifetime")).toEqual([]);
  });
});

describe("20,000 storages", () => {
  const n = 20_000;
  const steps = 60_000;
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const from = Int32Array.from({ length: n }, () => Math.floor(random() * (steps - 1))).sort();
  const l = {
    n, from, freed: new Uint8Array(n).fill(1),
    to: Int32Array.from(from, (f) => Math.min(steps, f + 1 + (random() < 0.02 ? Math.floor(random() * steps) : Math.floor(random() * 200)))),
    bytes: Float64Array.from({ length: n }, () => 64 * (1 + Math.floor(random() * 100) ** 2)),
  } as Lives;
  const all = Array.from({ length: n }, (_, k) => k);
  test.each(["lifetime", "bytes", "birth"] as const)("are laid out by %s without much more room than they need", (order) => {
    const top = stack(l, inOrder(l, order, all), steps, new Float64Array(n));
    const most = Array.from({ length: 60 }, (_, i) => i * 1000).map((s) => all.reduce((sum, k) => sum + (l.from[k] <= s && l.to[k] > s ? l.bytes[k] : 0), 0));
    expect(top).toBeGreaterThanOrEqual(Math.max(...most));
    expect(top).toBeLessThan(2 * Math.max(...most));
  }, 60_000);
});
