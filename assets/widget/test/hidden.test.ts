// Hidden pairs: which are drawn where, and how they fold. The payloads are made by hand: kvviz/view decides what is a pair.
import { describe, expect, test } from "vitest";
import { pairGroups, pairsOf, pairState, pairText, sharedParts } from "../src/evidence.js";
import { bow, drawn, lines, lineText, pointOf, redAt, type RedEdge } from "../src/rededges.js";
import type { Trace } from "../src/replay.js";
import type { Payload } from "../src/wire.js";

/** Steps 0–9 in frame 0 and 10–19 in frame 1, both of one graph of ten nodes; pairs as [first, second, group, state]. */
function made(pairs: [number, number, number, number][]): Trace {
  const column = (i: number) => Int32Array.from(pairs, (pair) => pair[i]);
  const steps = Array.from({ length: 20 }, (_, i) => i);
  const texts = pairs.flatMap(([first]) => [`label ${first}`, `M${first}`]);
  const strings = ["RAW", ...texts];
  const p = {
    strings,
    hazards: { groups: ["first of them", "second", "third"], picture: { texts: ["label"], paths: ["path1"], states: ["hidden", "broken", "false"] } },
    pair: { first: column(0), second: column(1), group: column(2), state: column(3), kind: new Int32Array(pairs.length) },
    pairtext: { of: Int32Array.from(texts, (_, i) => i + 1) },
    step: { frame: Int32Array.from(steps, (i) => (i < 10 ? 0 : 1)), node: Int32Array.from(steps, (i) => i % 10) },
    frame: { graph: Int32Array.of(0, 0) },
  };
  return { p: p as unknown as Payload } as Trace;
}

const few = made([[1, 4, 0, 0], [2, 4, 1, 1], [11, 14, 0, 0], [3, 9, 2, 2]]);
/** Fifteen layers in frame 0. */
const many = made(Array.from({ length: 15 }, (_, i) => [i % 5, 5 + (i % 5), i % 3, 0]));

describe("hidden pairs", () => {
  test("have their texts and paths by name, and none where nothing is told", () => {
    expect(pairText(few.p, 2, "label")).toBe("label 11");
    expect(pairText(few.p, 2, "path1")).toBe("M11");
    expect(pairText(few.p, 2, "other")).toBe("");
    expect(pairText({ ...few.p, hazards: undefined }, 0, "label")).toBe("");
    expect([0, 1, 3].map((k) => pairState(few.p, k))).toEqual(["hidden", "broken", "false"]);
  });

  test("fold into the groups that Python named", () => {
    expect(pairGroups(few.p, "pair")).toEqual([
      { group: 0, title: "first of them", state: "hidden", pairs: [0, 2] },
      { group: 1, title: "second", state: "broken", pairs: [1] },
      { group: 2, title: "third", state: "false", pairs: [3] },
    ]);
  });

  test("are known to both of their steps, unless they share no byte", () => {
    expect(pairsOf(few.p, 4)).toEqual([0, 1]);
    expect(pairsOf(few.p, 1)).toEqual([0]);
    expect(pairsOf(few.p, 9)).toEqual([]);
  });
});

describe("red lines", () => {
  test("are those of the shown frame where they are few", () => {
    expect(drawn(few, 0, -1, -1)).toEqual([0, 1]);
    expect(drawn(few, 1, -1, -1)).toEqual([2]);
  });

  test("are those of the cursor's step and what is alike with the chosen pair where they are many", () => {
    expect(drawn(many, 0, -1, -1)).toEqual([]);
    expect(drawn(many, 0, 3, -1)).toEqual([3, 8, 13]);
    expect(drawn(many, 0, -1, 1)).toEqual([1, 4, 7, 10, 13]);
  });

  test("show what is chosen in another run of the graph, also where it is no dependency", () => {
    expect(drawn(few, 1, -1, 3)).toEqual([2, 3]);
    expect(drawn(few, 1, -1, 0)).toEqual([2]); // the pair of this run is alike
  });

  test("are one for two places, with how many they stand for", () => {
    const open = lines(few, [0, 1], 1, (node) => node);
    expect(open.map(({ from, to, state, strong }) => [from, to, state, strong])).toEqual([[1, 4, "hidden", false], [2, 4, "broken", true]]);
    expect(open.map((line) => lineText(few.p, line))).toEqual(["label 1", "label 2"]);
    const folded = lines(many, drawn(many, 0, -1, 1), 1, () => -1);
    expect(folded.map((line) => [line.from, line.to, line.strong, lineText(many.p, line)])).toEqual([[-1, -1, true, "RAW ×5"]]);
  });

  test("begin and end at the sides of their ops, and go around what is right below", () => {
    const a = { x: 0, y: 0, w: 100, h: 40 };
    const below = { x: 10, y: 200, w: 100, h: 40 };
    const beside = { x: 300, y: 60, w: 100, h: 40 };
    for (const [from, to, start, end] of [[a, below, 100, 110], [a, beside, 100, 300], [beside, a, 300, 100]] as const) {
      const curve = bow({ from, to, within: false });
      expect(curve[0]).toEqual([start, from.y + 20]);
      expect(curve[3]).toEqual([end, to.y + 20]);
    }
    expect(pointOf(bow({ from: a, to: below, within: false }), 0.5)[0]).toBeGreaterThan(110);
    const loop = bow({ from: a, to: a, within: true });
    expect(loop[3][0]).toBeGreaterThan(loop[0][0]);
  });
});

test("the shared bytes are told as shares of their root, from the path that Python drew", () => {
  const { p } = made([[1, 4, 0, 0]]);
  p.hazards!.picture = { ...p.hazards!.picture, paths: ["path3"], bar: 200 };
  p.strings[2] = "M0.0 0h50.0v14h-50.0zM150.0 0h1.5v14h-1.5z";
  expect(sharedParts(p, 0)).toEqual([[0, 0.25], [0.75, 0.7575]]);
  p.strings[2] = "";
  expect(sharedParts(p, 0)).toEqual([]);
});

test("a red line is hit on it and a few px beside it, the strong one where two lie together", () => {
  const edge = (strong: boolean, y = 0): RedEdge => ({ from: { x: 0, y, w: 40, h: 20 }, to: { x: 200, y: y + 100, w: 40, h: 20 }, within: false, text: "", state: "hidden", strong, pairs: [] });
  const [weak, strong, far] = [edge(false), edge(true), edge(false, 300)];
  for (const k of [0.05, 0.31, 0.5, 0.98]) {
    const [x, y] = pointOf(bow(weak), k);
    expect(redAt([weak, strong, far], x, y + 3)).toBe(strong);
    expect(redAt([far, weak], x, y)).toBe(weak);
    expect(redAt([far], x, y)).toBeUndefined();
  }
  expect(redAt([weak], 120, 5)).toBeUndefined();
});
