import { describe, expect, test } from "vitest";
import { frontierAt, pathAt, planNow, planStates, readyAt, unpackPlan } from "../src/planner.js";
import { Store } from "../src/store.js";
import { FRONTIERS, planning } from "./planning.js";

// a diamond: x → a → (b, c) → d → y; the walk goes d, b, a, then c
const plan = unpackPlan(planning());
const names = (nodes: number[]) => nodes.map((n) => plan.p.graphs[0].nodes[n][0]).join("");
const at = (action: string, name: string) => [...Array(plan.p.steps).keys()].find((i) => plan.p.strings[plan.e.action[i]] === action && names([plan.e.node[i]]) === name)!;

describe("a plan", () => {
  test("knows which event picked each op, and in which order", () => {
    expect(names(plan.picks.map((e) => plan.e.node[e]))).toBe("abcd");
    expect(plan.picks.map((e) => plan.picked[plan.e.node[e]])).toEqual(plan.picks);
    expect(plan.walk).toBe(plan.picks[0]);
  });

  test("tells the frontier of any event, whichever was looked at before", () => {
    const order = [...Array(plan.p.steps).keys()].sort((a, b) => ((a * 7) % 5) - ((b * 7) % 5));
    for (const i of order) expect(names(frontierAt(plan, i))).toBe(FRONTIERS[i]);
    expect(frontierAt(plan, -1)).toEqual([]);
  });

  test("follows the walk: down to what is needed, and back once that is in the list", () => {
    expect(names(pathAt(plan, at("visit", "a")))).toBe("dba");
    expect(names(pathAt(plan, at("skip", "a")))).toBe("dba");
    expect(names(pathAt(plan, at("append", "a")))).toBe("db");
    expect(names(pathAt(plan, at("visit", "c")))).toBe("dc");
    expect(pathAt(plan, plan.picks[0])).toEqual([]);
  });

  test("has one state for every op: on the path, in the list, in the frontier, picked", () => {
    const states = (i: number) => Object.fromEntries(planStates(plan, i).states.map((s, n) => [names([n]), s]));
    expect(states(-1)).toEqual({ a: "waiting", b: "waiting", c: "waiting", d: "waiting" });
    expect(states(at("append", "a"))).toEqual({ a: "running", b: "path", c: "waiting", d: "path" });
    expect(states(at("visit", "c"))).toEqual({ a: "listed", b: "listed", c: "running", d: "path" });
    // a is picked, and because of that b and c can run
    expect(states(at("pick", "a"))).toEqual({ a: "running", b: "frontier", c: "frontier", d: "listed" });
    expect(states(at("pick", "c"))).toEqual({ a: "done", b: "done", c: "running", d: "frontier" });
  });

  test("says in the second line of a box at which step the op will run", () => {
    const { captions } = planStates(plan, plan.p.steps - 1);
    expect(captions.map((text, n) => `${names([n])} ${text}`).sort()).toEqual(["a step 0", "b step 1", "c step 2", "d step 3"]);
  });

  test("names the ops that a pick made runnable", () => {
    expect(names(readyAt(plan, at("pick", "a")))).toBe("bc");
    expect(readyAt(plan, at("append", "a"))).toEqual([]);
  });

  test("gives the store its events in place of steps, and the choice that was made", () => {
    const store = new Store(plan.p, 99, (run) => run(), (s) => planNow(plan, s));
    expect(store.cursor).toBe(plan.p.steps - 1);
    store.seek(at("pick", "b"));
    expect(store.now.choices.map((c) => [names([c.node]), c.step])).toEqual([["b", at("pick", "b")], ["c", at("pick", "c")]]);
    expect(store.now.states[plan.e.node[store.cursor]]).toBe("running");
  });
});
