// The graph pane before it is painted: cards, where they lie, what is hit, what keeps its place.
import { describe, expect, test } from "vitest";
import { anchorAt, arrange, blockFacts, boxOf, CARDS_ONLY, cardsOf, clampPort, distance, fit, HEAD, headAt, hitIn, keep, lineLook, MOST_CARDS, rowAt, show, sketchOf, step as walk, type Folds, type Level, type Port } from "../src/level.js";
import { fromMini, mini, windowOf } from "../src/stage.js";
import { iterations, sameIn } from "../src/grapharound.js";
import { stepsOf } from "../src/replay.js";
import { type Drawing, type Graph } from "../src/wire.js";
import { branches, llama } from "./mock.js";
import { golden, NAMES, trace } from "./traces.js";

/** A graph of which only the blocks count. */
function graph(titles: [title: string, layer: [string, number] | null][]): Graph {
  return { blocks: titles.map(([title, stack], i) => ({ title, path: "", nodes: [i], drawing: 0, alike: 1, stack })) } as unknown as Graph;
}
const plain = (n: number): [string, null][] => Array.from({ length: n }, (_, i) => [`b${i}`, null]);
const DRAWINGS = [{ w: 300, h: 200, boxes: [], edges: [], stubs: [], pills: [] }] as Drawing[];
const SHUT: Folds = { open: () => false, shown: () => null };
const OPEN: Folds = { open: () => true, shown: () => "all" };

describe("cards", () => {
  test("of thirty layers of two blocks are one, and its members are in the order of their numbers", () => {
    const layers = Array.from({ length: 60 }, (_, i): [string, [string, number]] => [`layer ${i >> 1} · ${i % 2 ? "mlp" : "attn"}`, ["layer", i >> 1]]);
    const cards = cardsOf(graph([["embed", null], ...layers.reverse(), ["lm_head", null]]));
    expect(cards.map((c) => c.title)).toEqual(["embed", "layer × 30", "lm_head"]);
    expect(cards[1].members.map((m) => m.label)).toEqual(Array.from({ length: 30 }, (_, i) => String(i)));
    expect(cards[1].members.every((m) => m.blocks.length === 2)).toBe(true);
  });

  test("of a single numbered module are its blocks", () => {
    expect(cardsOf(graph([["layer 0 · a", ["layer", 0]], ["layer 0 · b", ["layer", 0]]])).map((c) => c.title)).toEqual(["layer 0 · a", "layer 0 · b"]);
  });

  test.each([1, 9, 10, 11, 25, 99, 400])("of %d blocks are at most ten, and every block is in one of them", (n) => {
    const cards = cardsOf(graph(plain(n)));
    expect(cards.length).toBeLessThanOrEqual(MOST_CARDS);
    expect(cards.flatMap((c) => c.members.flatMap((m) => m.blocks))).toEqual(plain(n).map((_, i) => i));
  });

  test("of many stacks are at most ten", () => {
    const many = Array.from({ length: 40 }, (_, i): [string, [string, number]] => [`conv${i >> 1} ${i % 2}`, [`conv${i >> 1}`, i % 2]]);
    const cards = cardsOf(graph(many));
    expect(cards.length).toBeLessThanOrEqual(MOST_CARDS);
    expect(cards.flatMap((c) => c.members.flatMap((m) => m.blocks)).sort((a, b) => a - b)).toEqual(many.map((_, i) => i));
  });
});

/** No two rows of one depth may touch, and those inside a card lie in it. */
function sound({ rows, w, h }: Level): void {
  for (const a of rows) {
    expect(a.x >= 0 && a.y >= 0 && a.x + a.w <= w + 0.01 && a.y + a.h <= h + 0.01).toBe(true);
    for (const b of rows) {
      const apart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
      const inside = a.card === b.card && (a.block < 0) !== (b.block < 0);
      if (a !== b && !inside) expect(apart).toBe(true);
    }
  }
}

describe("a level", () => {
  const g = graph([["in", null], ["l0 a", ["layer", 0]], ["l0 b", ["layer", 0]], ["l1 a", ["layer", 1]], ["l1 b", ["layer", 1]], ["out", null]]);
  const cards = cardsOf(g);
  test.each([[SHUT, 3], [OPEN, 7], [{ open: (b: number) => b === 3, shown: () => 1 }, 5]] as [Folds, number][])("has its rows apart from each other", (folds, rows) => {
    for (const zoom of [0.2, 0.3, 1, 2]) {
      const level = arrange(cards, g, DRAWINGS, folds, zoom, 400);
      sound(level);
      expect(level.rows.length).toBe(rows);
    }
  });

  test("has heads of one size at every zoom, and no bodies when it is small", () => {
    const at = (zoom: number) => arrange(cards, g, DRAWINGS, { open: (b) => b === 0, shown: () => null }, zoom, 400).rows[0].h;
    expect([at(CARDS_ONLY), at(0.5), at(1)]).toEqual([HEAD, HEAD + 100, HEAD + 200]);
  });

  test("finds the innermost row under a point, and keeps the head of an open block in the port", () => {
    const level = arrange(cards, g, DRAWINGS, OPEN, 1, 400);
    const inner = level.rows.find((r) => r.block === 2)!;
    expect(rowAt(level, inner.x + 5, inner.y + 5)).toBe(inner);
    expect(rowAt(level, -5, -5)).toBeNull();
    expect(headAt(inner, inner.y + 50)).toBe(inner.y + 50);
    expect(headAt(inner, inner.y + inner.h)).toBe(inner.y + inner.h - HEAD);
    expect(headAt(inner, 0)).toBe(inner.y);
  });

  test("lets what is under the pointer stay there when it is zoomed", () => {
    const lay = (zoom: number) => arrange(cards, g, DRAWINGS, OPEN, zoom, 200);
    const before = lay(1);
    const row = before.rows.find((r) => r.block === 2)!;
    const [sx, sy] = [60, 90];
    const port: Port = { x: row.bx + 40 - sx, y: row.by + 50 - sy, w: 200, h: 200 };
    expect(rowAt(before, port.x + sx, port.y + sy)).toBe(row);
    const point = [(port.x + sx - row.bx) / 1, (port.y + sy - row.by) / 1];
    const after = lay(1.5);
    const moved = keep(anchorAt(row, port, 1, sx, sy), after, 1.5, port)!;
    const same = after.rows.find((r) => r.block === row.block)!;
    expect(same.bx + point[0] * 1.5 - moved.x).toBeCloseTo(sx);
    expect(same.by + point[1] * 1.5 - moved.y).toBeCloseTo(sy);
  });

  test("fits the port at the zoom that was found", () => {
    const lay = (zoom: number) => arrange(cards, g, DRAWINGS, OPEN, zoom, 0);
    const port = { x: 0, y: 0, w: 900, h: 700 };
    const zoom = fit(lay, port);
    expect(lay(zoom).h).toBeLessThanOrEqual(port.h);
    expect(lay(zoom * 1.02).h).toBeGreaterThan(port.h);
  });
});

describe("the port", () => {
  const port: Port = { x: 100, y: 100, w: 300, h: 200 };
  test("does not move for what it shows, and just shows what it does not", () => {
    expect(show(port, { x: 150, y: 150, w: 80, h: 36 })).toEqual(port);
    for (const rect of [{ x: 0, y: 0, w: 80, h: 36 }, { x: 900, y: 120, w: 80, h: 36 }, { x: 120, y: 101, w: 80, h: 36 }]) {
      const to = show(port, rect);
      expect(to.x <= rect.x && to.y <= rect.y && to.x + to.w >= rect.x + rect.w && to.y + to.h >= rect.y + rect.h).toBe(true);
    }
    // under a head that stays at the top nothing is seen
    expect(show(port, { x: 150, y: 115, w: 80, h: 36 }, 28).y).toBeLessThan(115 - 28);
  });

  test("stays in the level; what is smaller stands in the middle", () => {
    expect(clampPort({ ...port, x: -50, y: 5000 }, { w: 1000, h: 900 })).toMatchObject({ x: 0, y: 700 });
    expect(clampPort(port, { w: 100, h: 50 })).toMatchObject({ x: -100, y: 0 });
  });

  test("is where the window of the minimap was dragged to", () => {
    const level = { rows: [], w: 900, h: 4000 };
    const map = mini(level, 72, 300);
    const to = clampPort(fromMini(map, port, 36, 150), level);
    const window = windowOf(map, to);
    expect(window.x + window.w / 2).toBeCloseTo(36);
    expect(window.y + window.h / 2).toBeCloseTo(150);
    expect(map.h).toBeLessThanOrEqual(300);
  });
});

describe("a drawing", () => {
  const t = trace(llama(2, 3));
  const { p } = t;
  test("has for every line a value that one end makes and the other reads", () => {
    for (const block of p.graphs[0].blocks) for (const line of sketchOf(p, p.graphs[0], block).lines) expect(line.value).toBeGreaterThanOrEqual(0);
  });

  const g = p.graphs[0];
  const block = g.blocks.find((b) => b.nodes.length > 3)!;
  const s = sketchOf(p, g, block);

  test("is hit in its boxes, on its lines and at its ends", () => {
    for (const node of block.nodes) {
      const [x, y, w, h] = boxOf(s, node)!;
      expect(hitIn(s, x + w / 2, y + h / 2, 5)).toEqual({ kind: "node", node });
    }
    const line = s.lines[0];
    const made = g.nodes[block.nodes[line.from]][4];
    expect(made).toContain(line.value);
    const [x0, y0, x1, y1] = line.points;
    expect(hitIn(s, (x0 + x1) / 2, (y0 + y1) / 2, 3)).toEqual({ kind: "value", value: line.value });
    expect(hitIn(s, -500, -500, 5)).toBeNull();
  });

  test("has the value of a pill that its line begins in", () => {
    const reader = block.nodes[1];
    const [x, y, w, h] = boxOf(s, reader)!;
    const of: Drawing = { w: 500, h: 500, boxes: [[0, 0, 124, 36], ...p.drawings[block.drawing].boxes], edges: [[0, 2, [62, 36, x, y]]], stubs: [], pills: [[2, 0]] };
    const made = sketchOf({ ...p, drawings: [of] }, g, { ...block, drawing: 0 });
    expect(made.pills).toEqual([g.nodes[reader][3][0]]);
    expect(made.lines[0].value).toBe(made.pills[0]);
    expect(hitIn(made, 10, 10, 5)).toEqual({ kind: "value", value: made.pills[0] });
    expect(hitIn(made, x + w / 2, y + h / 2, 5)).toEqual({ kind: "node", node: reader });
  });

  test("shows what was handed over in place, what is chosen, and what has not run", () => {
    const steps = stepsOf(t, 0);
    const looks = (cursor: number, chosen = -1) => s.lines.map((l) => lineLook(p, g, s, l, { states: [], steps, cursor, lit: { nodes: new Set(), storages: new Set(), values: new Set() } }, chosen));
    expect(new Set(looks(-1))).toEqual(new Set(["future"]));
    expect(looks(p.steps)).toContain("own");
    expect(looks(p.steps, s.lines[0].value)[0]).toBe("lit");
  });

  test("tells how far a point is from a line with a bend", () => {
    expect(distance([0, 0, 10, 0, 10, 10], 13, 5)).toBe(3);
    expect(distance([0, 0, 10, 0, 10, 10], 5, -4)).toBe(4);
  });
});

describe("the head of a block", () => {
  test("counts this block alone, though others are alike, and says how often only as a product where it is one", () => {
    const t = trace(llama(2, 8));
    const { blocks } = t.p.graphs[0];
    const drawing = blocks.find((b) => b.alike === 2)!.drawing;
    const alike = blocks.flatMap((b, i) => (b.drawing === drawing ? [i] : []));
    const times = new Map<number, number>();
    for (let i = 0; i < t.p.steps; i++) if (t.p.step.flags[i] & t.p.flag.missed) times.set(t.p.step.node[i], (times.get(t.p.step.node[i]) ?? 0) + 1);
    const mine = blocks[alike[0]].nodes.filter((n) => times.has(n));
    const { about, missed } = blockFacts(t, 0, alike[0], alike, "layer");
    expect(about).toContain("× 2 layers alike");
    const total = mine.reduce((n, id) => n + times.get(id)!, 0);
    const said = /^(.*) = /.exec(missed)![1];
    const told = said.includes("times") ? Number(/(\d+) times/.exec(said)![1]) : [...said.matchAll(/\d+/g)].reduce((n, [d]) => n * Number(d), 1);
    expect(told).toBe(total);
  });
});

describe("iterations of a loop", () => {
  const t = trace(branches(2));
  test("are the frames of one body under one op, and the same op is found in each", () => {
    const frames = Array.from(t.p.frame.iteration).flatMap((k, f) => (k >= 0 ? [f] : []));
    expect(frames.length).toBeGreaterThan(1);
    const all = iterations(t, frames[0]);
    expect(all).toContain(frames[0]);
    expect(all.map((f) => t.p.frame.iteration[f])).toEqual(all.map((_, k) => k));
    expect(new Set(all.map((f) => t.p.frame.parent[f])).size).toBe(1);
    const node = t.p.step.node[t.x.first[all[0]]];
    for (const f of all) expect(t.p.step.frame[sameIn(t, f, node)]).toBe(f);
    expect(iterations(t, 0)).toEqual([]);
  });
});

describe("walking", () => {
  const t = trace(llama(2, 3));
  const g = t.p.graphs[0];
  const cards = cardsOf(g);
  const { rows } = arrange(cards, g, t.p.drawings, { open: (b) => b === 0, shown: () => null }, 1, 600);
  const sketch = (r: { block: number }) => sketchOf(t.p, g, g.blocks[r.block]);
  test("goes along lines down to the end of a block and to the next head, and comes back", () => {
    let at = walk(rows, sketch, null, "ArrowDown")!;
    expect(at).toMatchObject({ block: rows[0].block, node: -1 });
    const seen: number[] = [];
    for (let i = 0; i < 100 && at.block === rows[0].block; i++) {
      const to = walk(rows, sketch, at, "ArrowDown")!;
      if (at.node >= 0 && to.block === at.block) expect(g.nodes[to.node][3].some((v) => g.nodes[at.node][4].includes(v))).toBe(true);
      if (to.node >= 0) seen.push(to.node);
      at = to;
    }
    expect(seen.length).toBeGreaterThan(0);
    expect(at).toMatchObject({ card: rows[1].card, node: -1 });
    expect(walk(rows, sketch, at, "ArrowUp")).toMatchObject({ block: rows[0].block, node: -1 });
  });
});

describe("recorded models", () => {
  test.each(NAMES)("%s is at most ten cards", async (name) => {
    const { p } = await golden(name);
    for (const g of p.graphs) {
      const cards = cardsOf(g);
      expect(cards.length).toBeLessThanOrEqual(MOST_CARDS);
      expect(cards.flatMap((c) => c.members.flatMap((m) => m.blocks)).sort((a, b) => a - b)).toEqual(g.blocks.map((_, i) => i));
    }
  });
});
