// What panes compute before they draw.
import { describe, expect, test } from "vitest";
import { curve, keepApart, placed, position, scaleOf, under } from "../src/timeline.js";
import { bytes, shortValue, signed, visible } from "../src/format.js";
import { memory, scale, title } from "../src/listpanes.js";
import { alive } from "../src/replay.js";
import { light } from "../src/select.js";
import { Store, type Change } from "../src/store.js";
import { unpack } from "../src/wire.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace } from "./traces.js";

const now = (run: () => void) => run();
const store = new Store(unpack(llama(2, 8)), -1, now);

describe("the memory map", () => {
  test("has one bar or a place in a fold for every storage but the weights, at every cursor", () => {
    for (let cursor = -1; cursor < store.t.p.steps; cursor++) {
      store.seek(cursor);
      const m = memory(store.t, store.now, cursor, false, new Set());
      const there = alive(store.t, cursor).filter((s) => store.t.p.storage.origin[s] !== 0);
      expect(m.bars.filter((b) => b.state !== "freed").length + m.small.count + m.more.count).toBe(there.length);
      const held = there.reduce((n, s) => n + store.t.p.storage.capacity[s], 0);
      expect(m.held.caches + m.held.caller + m.held.run).toBe(held);
    }
  });

  test("tells how many rows of a cache are valid, before and after its op", () => {
    const step = stepOf(store.t, "k_cache", 4); // layer 0 in run 2
    const s = store.t.p.caches[0].storage[2];
    const bar = (cursor: number) => {
      store.seek(cursor);
      return memory(store.t, store.now, cursor, false, new Set()).bars.find((b) => b.id === s)!;
    };
    expect(bar(step - 1)).toMatchObject({ note: "13\u2009/\u200916", cache: 0 });
    expect(bar(step)).toMatchObject({ note: "13→14\u2009/\u200916", state: "in_place", use: "written", valid: [13 / 16, 14 / 16], again: false });
    expect(title(store.t, bar(step), step)).toMatch(/written last in step \d+ by Concat k_cache/);
  });

  test("shows rows that growing has copied again", () => {
    const run = store.t.p.caches[0].copied.findIndex((b) => b > 0);
    const step = stepOf(store.t, "k_cache", 2 * run);
    store.seek(step);
    const bar = memory(store.t, store.now, step, false, new Set()).bars.find((b) => b.id === store.t.p.caches[0].storage[run])!;
    expect(bar).toMatchObject({ again: true, state: "missed" });
  });

  test("keeps its scale while a run goes on", () => {
    const { p } = store.t;
    expect(scale(store.t, 1)).toBeGreaterThanOrEqual(Math.max(...p.step.alloc.subarray(p.runs[1].first, p.runs[1].last)));
  });
});

describe("the selection", () => {
  const t = trace(llama(2, 3));
  test("of a node lights its buffers, and of a buffer the nodes that read or write it", () => {
    const step = stepOf(t, "k_rope");
    const node = t.p.step.node[step];
    const s = t.p.out.storage[t.p.step.out[step]];
    expect(light(t, { kind: "node", id: node, graph: 0 }, 0, step).storages).toContain(s);
    const lit = light(t, { kind: "storage", id: s }, 0, step);
    const names = [...lit.nodes].map((n) => t.p.graphs[0].nodes[n][0].split("/").pop()).sort();
    expect(names).toEqual(["k_cache", "k_heads", "k_proj", "k_rope"]);
  });

  test("of a cache is that of its buffer in the present run", () => {
    const s = t.p.caches[1].storage[1];
    const cursor = t.p.runs[1].first;
    expect(light(t, { kind: "cache", id: 1 }, t.p.step.frame[cursor], cursor).storages).toEqual(new Set([s]));
  });

  test("of a node in another graph lights nothing here", () => {
    expect(light(t, { kind: "node", id: 0, graph: 3 }, 0, 0).nodes.size).toBe(0);
  });
});

describe("the timeline", () => {
  const t = trace(llama(2, 8));
  test("has the peak in its curve at any width", () => {
    for (const width of [50, 997, 5000]) {
      const c = curve(t, width);
      expect(Math.max(...c.high)).toBe(t.p.step.live[t.x.peak]);
      expect(Math.min(...c.low)).toBeGreaterThanOrEqual(c.from);
      expect([...c.high].every(Number.isFinite)).toBe(true);
    }
  });

  test("has an axis that starts where the weights end", () => {
    expect(t.x.weights).toBeGreaterThan(0);
    expect(scaleOf(t).from).toBe(t.x.weights);
  });

  test("gives back the step under the place where its cursor stands", () => {
    const s = new Store(t.p, -1, now);
    for (const step of [0, 1, 200, t.p.steps - 1]) {
      s.seek(step);
      expect(under(s, position(s))).toEqual({ run: t.x.run[step], step });
    }
    expect([under(s, -5).step, under(s, 5000).step]).toEqual([0, t.p.steps - 1]);
    expect([placed(s, 0), placed(s, t.p.steps)]).toEqual([0, 1]);
  });

  test("draws only labels that do not touch each other or the end", () => {
    for (const [runs, pitch] of [[8, 120], [73, 13], [400, 2.4], [3, 4]]) {
      const labels = Array.from({ length: runs }, (_, i) => ({ x: i * pitch, width: i ? 14 : 34 }));
      const keep = keepApart(labels, 10, runs * pitch);
      const shown = labels.filter((_, i) => keep[i]);
      for (let i = 1; i < shown.length; i++) expect(shown[i].x).toBeGreaterThanOrEqual(shown[i - 1].x + shown[i - 1].width + 10);
      for (const l of shown) expect(l.x + l.width).toBeLessThanOrEqual(runs * pitch);
      if (runs * pitch > 34) expect(keep[0]).toBe(true);
    }
  });
});

describe("the store", () => {
  test("tells the panes once for several changes, and not at all when nothing changed", () => {
    const later: (() => void)[] = [];
    const s = new Store(unpack(branches(2)), 3, (run) => later.push(run));
    const seen: Change[] = [];
    s.add({ update: (change) => seen.push({ ...change }) });
    s.seek(4);
    s.seek(5);
    s.select({ kind: "storage", id: 2 });
    s.select({ kind: "storage", id: 2 });
    later.splice(0).forEach((run) => run());
    expect(seen).toHaveLength(2);
    expect(seen[1]).toMatchObject({ cursor: true, selection: true, payload: false });
    s.seek(5);
    expect(later).toHaveLength(0);
  });

  test("lets slow panes skip positions of a drag, but tells them in the end", async () => {
    const s = new Store(unpack(branches(2)), -1, now);
    const seen: number[] = [];
    s.add({ slow: true, update: () => seen.push(s.cursor) });
    for (let cursor = 0; cursor < 20; cursor++) s.seek(cursor, "person", true);
    expect(seen.length).toBeLessThan(10);
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(seen[seen.length - 1]).toBe(19);
    // a step is no drag: it shows at once
    s.seek(20);
    expect(seen[seen.length - 1]).toBe(20);
  });

  test("tells only a person's moves outwards, so that linked pages cannot push each other", () => {
    const s = new Store(unpack(branches(2)), -1, now);
    const told: string[] = [];
    s.onPerson = (what) => told.push(what);
    s.seek(3, "model");
    s.select({ kind: "node", id: 1, graph: 0 }, "model");
    s.setBreakpoints([], "model");
    expect(told).toEqual([]);
    s.seek(4);
    s.select(null);
    expect(told).toEqual(["cursor", "selection"]);
  });

  test("keeps its place when a longer recording replaces the one before", () => {
    const s = new Store(unpack(branches(2, true)), 99, now);
    const cursor = s.cursor;
    s.replace(unpack(branches(3)));
    expect(s.cursor).toBe(cursor);
    expect(s.now.choices[0].step).toBe(cursor + 1);
  });
});

describe("texts", () => {
  test("bytes are exact while they are short", () => {
    expect([0, 2176, 9999, 12_345, 2_310_000, 999_600].map(bytes)).toEqual(["0 B", "2,176 B", "9,999 B", "12.3 kB", "2.31 MB", "1.00 MB"]);
    expect([signed(0), signed(128), signed(-32), signed(null)]).toEqual(["+0 B", "+128 B", "−32 B", ""]);
  });

  test("the end of a line has a sign, in a token too", () => {
    expect(["\n", ".\n\n", " a"].map(visible)).toEqual(["⏎", ".⏎⏎", " a"]);
  });

  test("a value's path is cut to its last two parts", () => {
    expect(["/model/layers.0/self_attn/Add_output_0", "v_model.layers.0.mlp.gate.MatMul_20", "logits", "present.0.key"].map(shortValue))
      .toEqual(["self_attn/Add_output_0", "gate.MatMul_20", "logits", "0.key"]);
  });
});
