// The steps of findings, and the state of the page while one of them is framed.
import { describe, expect, it } from "vitest";
import { cost, partOf, series, stepsOfFinding } from "../src/evidence.js";
import { History } from "../src/inspector.js";
import { numberOf, opAt } from "../src/replay.js";
import { Store, type Change } from "../src/store.js";
import { unpack } from "../src/wire.js";
import { bytes } from "./traces.js";

const raw = await bytes("growing.payload");

function made() {
  const store = new Store(unpack(raw), -1, (run) => run());
  let time = 0;
  const history = new History(store, () => time);
  const later = () => { time += 1000; };
  later();
  store.add(history);
  const all = store.report!.findings;
  return { store, history, later, all, copied: all.findIndex((one) => one.kind === "copied") };
}

describe("the steps of a finding", () => {
  const { store: { t }, all } = made();

  it("are read from arithmetic series", () => {
    expect(series([4, 5, 3, 15, 0, 1])).toEqual([4, 9, 14, 15]);
    expect(series()).toEqual([]);
  });

  it("have the bytes of the finding, and the widest comes first", () => {
    const misses = all.filter((one) => one.kind === "miss");
    expect(misses.length).toBeGreaterThan(2);
    for (const one of misses) {
      const spent = Array.from(stepsOfFinding(t, one), (step) => cost(t, step));
      expect(spent).toHaveLength(one.times);
      expect(spent.reduce((a, b) => a + b, 0)).toBe(one.bytes);
      expect(spent).toEqual([...spent].sort((a, b) => b - a));
    }
  });

  it("lead back to it and to their kind of op", () => {
    all.forEach((one, finding) => {
      for (const part of one.parts ?? []) {
        for (const step of series(part.at)) {
          expect(partOf(t, all, step)).toEqual({ finding, part });
          expect(opAt(t, step).op[1]).toBe(part.op);
        }
      }
    });
    const calm = [...Array(t.p.steps).keys()].find((step) => !(t.p.step.flags[step] & t.p.flag.missed))!;
    expect(partOf(t, all, calm)).toBeNull();
  });
});

describe("a finding that is framed", () => {
  it("shows its widest step with the op selected, and tells the panes once", () => {
    const { store, all, copied } = made();
    const heard: Partial<Change>[] = [];
    store.add({ update: (change) => void heard.push({ ...change }) });
    heard.length = 0;
    store.frame(copied);
    const steps = stepsOfFinding(store.t, all[copied]);
    expect(store.evidence).toEqual({ finding: copied, at: 0, steps });
    expect(store.cursor).toBe(steps[0]);
    expect(store.selection).toMatchObject({ kind: "node", id: store.p.step.node[steps[0]], step: numberOf(store.t, steps[0]) });
    expect(heard.filter((change) => change.evidence)).toHaveLength(1);
    store.frame(copied, 1e9);
    expect(store.evidence!.at).toBe(steps.length - 1);
    store.frame(99);
    expect(store.evidence!.finding).toBe(copied);
  });

  it("is left by stepping and by another op, not by a buffer, and is returned to", () => {
    const { store, copied } = made();
    for (const leave of [() => store.seek(store.cursor + 1), () => store.select({ kind: "node", id: 0, graph: 0 })]) {
      store.frame(copied, 2);
      const { evidence } = store;
      store.select({ kind: "storage", id: 0 });
      expect(store.evidence).toBe(evidence);
      leave();
      expect([store.evidence, store.left]).toEqual([null, evidence]);
      expect(store.selection?.id ?? 0).toBe(0);
      store.frame(store.left!.finding, store.left!.at);
      expect([store.evidence, store.left]).toEqual([evidence, null]);
    }
  });

  it("comes back with undo, and goes again with it", () => {
    const { store, history, later, copied } = made();
    store.seek(5);
    later();
    store.frame(copied, 1);
    later();
    store.frame(0);
    later();
    history.back();
    expect(store.evidence).toMatchObject({ finding: copied, at: 1 });
    later();
    history.back();
    expect([store.cursor, store.evidence]).toEqual([5, null]);
    later();
    history.forward();
    expect(store.evidence).toMatchObject({ finding: copied, at: 1 });
  });

  it("is the first that asks for something when a page opens, or that of the place where it opens", () => {
    const { store, all } = made();
    store.open(false);
    expect(store.evidence).toMatchObject({ finding: all.findIndex((one) => !one.calm), at: 0 });
    const { cursor, selection } = store;
    const again = made().store;
    again.open(true);
    expect(again.evidence).toBeNull();
    again.seek(cursor);
    again.select(selection);
    again.open(true);
    expect(again.evidence).toEqual(store.evidence);
  });

  it("is left when the run goes on, and its older findings stay until there are newer ones", () => {
    const { store, copied } = made();
    store.frame(copied, 1);
    const { report } = store;
    store.replace({ ...unpack(raw), report: null, live: { frame: 0, frontier: [] } });
    expect([store.report, store.evidence, store.left!.at]).toEqual([report, null, 1]);
    store.replace({ ...unpack(raw), report: null });
    expect(store.report).toBeNull();
  });
});
