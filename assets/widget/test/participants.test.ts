// The drawing of a framed step: who takes part, what the lines say, and that nothing lies on anything else.
import { describe, expect, test } from "vitest";
import { around, type Around } from "../src/participants.js";
import { opAt, outcome, placeOf } from "../src/replay.js";
import { crossing, alone, HEAD } from "../src/level.js";
import { golden } from "./traces.js";

const growing = await golden("growing");
const ALL = [["growing", growing], ...(await Promise.all(["static", "branches", "bodies", "appended", "quantized", "voice", "device"].map(async (n) => [n, await golden(n)] as const)))] as const;

function copies(): number[] {
  const { p } = growing;
  return Array.from({ length: p.steps }, (_, i) => i).filter((i) => p.step.copied[i] > 0 && opAt(growing, i).op[3].some((v) => p.caches.some((c) => c.input === opAt(growing, i).g.values[v])) && p.frame.run[p.step.frame[i]] > 0);
}

// thousands of assertions of one kind take longer than what they look at
function sound({ boxes, lines, w, h, nodes, pills, names, under }: Around): void {
  expect(boxes.length).toBe(nodes.length + pills.length);
  expect(names.length).toBe(boxes.length);
  expect(under.length).toBe(boxes.length);
  boxes.forEach(([x, y, bw, bh], i) => {
    const inside = x >= -0.01 && y >= 0 && x + bw <= w + 0.01 && y + bh <= h + 0.01;
    expect(inside && boxes.slice(i + 1).every(([ox, oy, ow, oh]) => x + bw <= ox + 0.01 || ox + ow <= x + 0.01 || y + bh <= oy || oy + oh <= y)).toBe(true);
  });
  for (const { from, to, points } of lines) {
    expect(from >= 0 && to >= 0 && points.every(Number.isFinite)).toBe(true);
    const inside = ([x, y, bw, bh]: number[], px: number, py: number) => px >= x - 0.01 && px <= x + bw + 0.01 && py >= y - 0.01 && py <= y + bh + 0.01;
    expect(inside(boxes[from], points[0], points[1]) && inside(boxes[to], points.at(-2)!, points.at(-1)!)).toBe(true);
  }
}

describe("the evidence of a step", () => {
  test.each(ALL)("of %s is drawn for every op, without boxes that touch", (_, t) => {
    for (let step = 0; step < t.p.steps; step++) {
      const drawn = around(t, step, step % 4 === 0, ...(step % 9 ? [] : [2, 1]));
      if (!drawn) continue;
      sound(drawn);
      const { g, node } = opAt(t, step);
      expect(drawn.nodes).toContain(node);
      expect(drawn.hidden).toBe(g.blocks[drawn.block].nodes.filter((n) => !drawn.nodes.includes(n)).length);
    }
  }, 60_000);

  test("of a copied past names the rows, the earlier run that made the buffer, and the output", () => {
    const { p } = growing;
    const all = copies();
    expect(all.length).toBeGreaterThan(0);
    for (const step of all) {
      const { g, op, frame } = opAt(growing, step);
      const cache = p.caches.find((c) => op[3].some((v) => g.values[v] === c.input))!;
      const run = p.frame.run[frame];
      const drawn = around(growing, step, false)!;
      expect(drawn.names.slice(0, drawn.pills.length)).toEqual(expect.arrayContaining([`past.${cache.name}`, `present.${cache.name}`]));
      expect(drawn.lines.map((l) => l.text)).toContain(`all ${cache.valid[run - 1]} rows are copied here`);
      expect(drawn.said.some((text) => text.startsWith(`present.${cache.name} ${p.runs[run - 1].label}`))).toBe(true);
      const place = placeOf(growing, frame, op[3].find((v) => g.values[v] === cache.input)!, step)!;
      expect(drawn.under.some((text) => text.includes(`B${place.storage} · ${cache.valid[run - 1]} rows`))).toBe(true);
    }
  });

  test("of an op that was missed shows every op that still reads its input", () => {
    const { p } = growing;
    let seen = 0;
    for (let step = 0; step < p.steps; step++) {
      if (outcome(p, p.step.flags[step]) !== "missed") continue;
      const drawn = around(growing, step, false)!;
      const { g } = opAt(growing, step);
      for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
        const reader = g.nodes.findIndex(([name]) => name === p.strings[p.block.culprit[k]]);
        if (p.strings[p.block.code[k]] !== "NOT_LAST_USE" || reader < 0) continue;
        seen++;
        const box = drawn.nodes.indexOf(reader) + drawn.pills.length;
        expect(drawn.lines.some((l) => l.to === box && l.text === "reads it later")).toBe(true);
      }
    }
    expect(seen).toBeGreaterThan(0);
  });

  test("lies in the middle of the pane, under the head of its block", () => {
    const { rows: [row] } = alone({ w: 400, h: 100 }, 3, [1, 0], 1, { x: 0, y: 0, w: 900, h: 500 });
    expect(row.block).toBe(3);
    expect(row.bx).toBe(250);
    const [above, below] = [row.by - HEAD, 500 - row.by - 100];
    expect(above).toBeGreaterThan(100);
    expect(Math.abs(above - below)).toBeLessThanOrEqual(10);
  });
});

describe("a line that leaves the pane", () => {
  const pane = { x: 0, y: 0, w: 100, h: 100 };
  test("leaves it where it crosses the border", () => {
    expect(crossing([50, 50, 150, 50], pane)).toEqual({ x: 100, y: 50, turn: 0 });
    expect(crossing([50, 50, 50, 250], pane)).toMatchObject({ x: 50, y: 100 });
    expect(crossing([50, -50, 50, 50, 50, 250], pane)).toMatchObject({ x: 50, y: 100 });
  });
  test("is not cut while it stays inside or outside", () => {
    expect(crossing([10, 10, 90, 90], pane)).toBeNull();
    expect(crossing([150, 10, 150, 90], pane)).toBeNull();
    expect(crossing([150, 0, 250, 300], pane)).toBeNull();
  });
});
