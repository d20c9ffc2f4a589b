// A plan that Python made: where its walk is, and the state of every op after each event.
import { describe, expect, test } from "vitest";
import { frontierAt, pathAt, planNow, planStates, readyAt, unpackPlan } from "../src/planner.js";
import { Store } from "../src/store.js";
import { bytes } from "./traces.js";

const plan = unpackPlan(await bytes("plan.payload"));
const { p, e } = plan;
const events = [...Array(p.steps).keys()];
const action = (i: number) => p.strings[e.action[i]];
const did = (name: string, before: number) => new Set(events.slice(0, before).filter((i) => action(i) === name).map((i) => e.node[i]));

describe("a plan", () => {
  test("tells the frontier of any event, whichever was looked at before", () => {
    const inOrder = events.map((i) => frontierAt(plan, i));
    for (const i of [...events].sort((a, b) => ((a * 7) % 5) - ((b * 7) % 5))) expect(frontierAt(plan, i)).toEqual(inOrder[i]);
    expect(frontierAt(plan, -1)).toEqual([]);
  });

  test("follows the walk: down to what is needed, and back once that is in the list", () => {
    for (const i of events) {
      const path = pathAt(plan, i);
      const visits = action(i) === "visit";
      expect([i, path.length]).toEqual([i, p.strings[e.phase[i]] === "pick" ? 0 : e.depth[i] + (visits ? 1 : 0)]);
      if (visits) expect(path.at(-1)).toBe(e.node[i]);
      for (const n of path) expect([did("visit", i + 1).has(n), did("append", i + 1).has(n)]).toEqual([true, false]);
    }
  });

  test("has one state for every op: on the path, in the list, in the frontier, picked", () => {
    expect(new Set(planStates(plan, -1).states)).toEqual(new Set(["waiting"]));
    for (const i of events.filter((i) => action(i) !== "skip")) {
      const [listed, picked, path] = [did("append", i), did("pick", i), pathAt(plan, i)];
      const ready = action(i) === "pick" ? [...frontierAt(plan, i), ...readyAt(plan, i)] : [];
      const told = p.graphs[0].nodes.map((_, n) => (n === e.node[i] ? "running" : path.includes(n) ? "path" : picked.has(n) ? "done"
        : ready.includes(n) ? "frontier" : listed.has(n) ? "listed" : "waiting"));
      expect([i, planStates(plan, i).states]).toEqual([i, told]);
    }
  });

  test("says in the second line of a box at which step the op will run", () => {
    const { captions } = planStates(plan, p.steps - 1);
    expect(plan.picks.map((i) => captions[e.node[i]])).toEqual(plan.picks.map((_, step) => `step ${step}`));
  });

  test("gives the store its events in place of steps, and the choice that was made", () => {
    const store = new Store(p, p.steps + 99, (run) => run(), (s) => planNow(plan, s));
    expect(store.cursor).toBe(p.steps - 1);
    const wide = plan.picks.find((i) => frontierAt(plan, i).length > 1)!;
    store.seek(wide);
    expect(store.now.choices.map((c) => [c.node, c.step])).toEqual(frontierAt(plan, wide).map((n) => [n, plan.picked[n]]));
    expect(store.now.states[e.node[wide]]).toBe("running");
  });
});
