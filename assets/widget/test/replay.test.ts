import { describe, expect, test } from "vitest";
import { alive, atEdge, bornAt, buildIndex, frameAt, frontier, frontierFrame, placeOf, runAt, valuesIn, type Index } from "../src/replay.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace, value } from "./traces.js";

const decode = trace(llama(2, 8));

/** From which cursor a storage exists and from which it is gone, each time. */
function lives(x: Index, s: number): [number, number][] {
  return Array.from(x.lives.ids.subarray(x.lives.start[s], x.lives.start[s + 1]), (i) => [x.life.born[i], x.life.freed[i]]);
}

describe("storages", () => {
  test("given by the caller exist only in the runs that were given them", () => {
    const { p, x } = decode;
    const ids = [...Array(p.storages).keys()].filter((s) => p.strings[p.storage.name[s]] === "input_ids");
    expect(ids).toHaveLength(8);
    ids.forEach((s, run) => {
      expect(lives(x, s)).toEqual([[run ? p.runs[run].first : -1, p.runs[run].last - 1]]);
    });
  });

  test("that a run was given but an earlier run made exist from when they were first written", () => {
    // given the first run's cache told as born before its run, as when the next run has adopted it
    const { p } = trace(llama(1, 3));
    const s = p.caches[0].storage[0];
    p.storage.born[s] = -1;
    // when the index is made
    const x = buildIndex(p);
    // then
    expect(lives(x, s)[0][0]).toBe(stepOf({ p, x }, "k_cache"));
  });

  test("that a pool hands out again live twice, and are nowhere in between", () => {
    // given a buffer that is written once more after it was freed
    const { p } = trace(llama(1, 3));
    const k = p.step.free[p.runs[0].first + 8];
    const s = p.free.storage[k];
    const freed = Array.from({ length: p.steps }, (_, i) => i).find((i) => p.step.free[i] <= k && k < p.step.free[i + 1])!;
    const again = stepOf({ p, x: buildIndex(p) }, "scores", 1);
    p.out.storage[p.step.out[again]] = s;
    // when
    const t = { p, x: buildIndex(p) };
    // then
    expect(lives(t.x, s)).toEqual([[p.storage.born[s], freed], [again, p.steps]]);
    expect([freed - 1, freed, again - 1, again].map((cursor) => alive(t, cursor).includes(s))).toEqual([true, false, false, true]);
    expect(bornAt(t, s, again)).toBe(again);
    expect(bornAt(t, s, freed)).toBeNull();
  });
});

describe("where we are", () => {
  test("stays in a finished run until the next one has begun", () => {
    const last = decode.p.runs[2].last - 1;
    expect(runAt(decode, last)).toBe(2);
    expect(decode.p.frame.run[frameAt(decode, last)]).toBe(2);
    expect(decode.p.frame.run[frontierFrame(decode, last)]).toBe(3);
  });

  test("is still that one at the end of what is recorded, where another frame goes on", () => {
    const live = trace(branches(2, true));
    const last = live.p.steps - 1;
    expect(atEdge(live, last)).toBe(true);
    expect(frontier(live, last)).toEqual([{ node: 4, alloc: 0, frees: 512, step: -1 }]);
    const goesOn = live.p.frame.graph.lastIndexOf(3); // an iteration of the loop
    const entered = { ...live, p: { ...live.p, live: { frame: goesOn, frontier: [] } } };
    expect(frameAt(entered, last)).toBe(live.p.step.frame[last]);
    expect(frontierFrame(entered, last)).toBe(goesOn);
  });
});

describe("the frontier", () => {
  test("is in plan order and tells what the step of each node allocated and freed", () => {
    const cursor = stepOf(decode, "input_norm");
    const choices = frontier(decode, cursor);
    const { p } = decode;
    expect(choices.map((c) => p.graphs[0].nodes[c.node][0].split("/").pop())).toEqual(["q_proj", "k_proj", "v_proj"]);
    for (const c of choices) expect(c.alloc).toBe(p.step.alloc[c.step]);
  });
});

describe("values", () => {
  test("lie in one storage together with the views of it", () => {
    const cursor = stepOf(decode, "q_heads");
    const frame = frameAt(decode, cursor);
    const place = placeOf(decode, frame, value(decode, frame, "l0.q4"), cursor)!;
    const names = valuesIn(decode, place.storage, cursor, [frame]).map((h) => decode.p.graphs[0].values[h.value]);
    expect(names.sort()).toEqual(["l0.q", "l0.q4"]);
  });
});
