import { describe, expect, test } from "vitest";
import { buildIndex, KEY, type Index } from "../src/index.js";
import { alive, atEdge, bornAt, frameAt, frontier, frontierFrame, generation, nodeStates, placeOf, ready, runAt, stack, valuesIn } from "../src/replay.js";
import { branches, llama } from "./mock.js";
import { stepOf, trace, value } from "./traces.js";

const decode = trace(llama(2, 8));
const forked = trace(branches(3));

/** From which cursor a storage exists and from which it is gone, each time. */
function lives(x: Index, s: number): [number, number][] {
  return Array.from(x.lives.ids.subarray(x.lives.start[s], x.lives.start[s + 1]), (i) => [x.life.born[i], x.life.freed[i]]);
}

describe("storages", () => {
  test("alive from key frames are those that a plain scan finds, at every cursor", () => {
    const long = trace(llama(2, 20));
    const { p, x } = long;
    expect(p.steps).toBeGreaterThan(2 * KEY);
    for (let cursor = -1; cursor < p.steps; cursor++) {
      const scanned = [];
      for (let i = 0; i < x.life.born.length; i++) if (x.life.born[i] <= cursor && x.life.freed[i] > cursor) scanned.push(x.life.storage[i]);
      expect(alive(long, cursor).sort((a, b) => a - b)).toEqual(scanned);
    }
  });

  test("that a step frees are there before it and gone after it", () => {
    const { p } = decode;
    for (let step = 0; step < p.steps; step++) {
      for (let k = p.step.free[step]; k < p.step.free[step + 1]; k++) {
        expect(alive(decode, step - 1)).toContain(p.free.storage[k]);
        expect(alive(decode, step)).not.toContain(p.free.storage[k]);
      }
    }
  });

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

  test("overwritten in place go up one generation at that step", () => {
    const step = stepOf(decode, "k_rope");
    const s = decode.p.out.storage[decode.p.step.out[step]];
    expect([generation(decode, s, step - 1), generation(decode, s, step)]).toEqual([0, 1]);
  });
});

describe("where we are", () => {
  test("is the frame of the step that just ran", () => {
    const inside = stepOf(forked, "relu");
    expect(frameAt(forked, inside)).toBe(forked.p.step.frame[inside]);
    expect(stack(forked, frameAt(forked, inside)).map((f) => forked.p.graphs[forked.p.frame.graph[f]].kind)).toEqual(["main", "then_branch"]);
    expect(frameAt(forked, inside - 1)).toBe(0);
  });

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
  test("holds, at every cursor, the node that the recording runs next in that frame", () => {
    for (const t of [decode, forked]) {
      for (let cursor = -1; cursor < t.p.steps - 1; cursor++) {
        const f = frontierFrame(t, cursor);
        const next = t.p.step.frame.indexOf(f, cursor + 1);
        // of a body that is complete nothing is left: the op that it belongs to comes next
        const body = next < 0 ? [] : [t.p.step.node[next]];
        expect(frontier(t, cursor).map((c) => c.node)).toEqual(expect.arrayContaining(body));
        expect(next < 0).toBe(frontier(t, cursor).length === 0);
        if (next < 0) expect(t.p.step.flags[cursor + 1] & t.p.flag.control).toBeTruthy();
      }
    }
  });

  test("has no node whose input is still missing", () => {
    for (let cursor = -1; cursor < decode.p.steps - 1; cursor++) {
      const f = frontierFrame(decode, cursor);
      for (const n of ready(decode, f, cursor)) {
        for (const v of decode.p.graphs[0].nodes[n][3]) expect(placeOf(decode, f, v, cursor)).not.toBeNull();
      }
    }
  });

  test("is in plan order and tells what the step of each node allocated and freed", () => {
    const cursor = stepOf(decode, "input_norm");
    const choices = frontier(decode, cursor);
    const { p } = decode;
    expect(choices.map((c) => p.graphs[0].nodes[c.node][0].split("/").pop())).toEqual(["q_proj", "k_proj", "v_proj"]);
    for (const c of choices) expect(c.alloc).toBe(p.step.alloc[c.step]);
  });

  test("is empty when all has run", () => {
    expect(frontierFrame(decode, decode.p.steps - 1)).toBe(-1);
    expect(frontier(decode, decode.p.steps - 1)).toEqual([]);
  });
});

describe("states of nodes", () => {
  test("tell what just ran, what can run, and how the others ended", () => {
    const cursor = stepOf(decode, "k_cache", 2);
    const states = nodeStates(decode, frameAt(decode, cursor), cursor);
    const state = (name: string) => states[decode.p.graphs[0].nodes.findIndex((n) => n[0] === `/layers.0/self_attn/${name}`)];
    expect(state("k_cache")).toBe("running");
    expect(state("v_cache")).toBe("frontier");
    expect(state("q_heads")).toBe("view");
    expect(state("k_rope")).toBe("in_place");
    expect(state("q_proj")).toBe("done");
    expect(state("context")).toBe("waiting");
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

  test("are nowhere before their op has run", () => {
    const cursor = stepOf(decode, "q_proj");
    expect(placeOf(decode, 0, value(decode, 0, "l0.q"), cursor - 1)).toBeNull();
    expect(placeOf(decode, 0, value(decode, 0, "l0.q"), cursor)!.from).toBe("out");
    expect(placeOf(decode, 0, value(decode, 0, "input_ids"), -1)!.from).toBe("bind");
  });
});
