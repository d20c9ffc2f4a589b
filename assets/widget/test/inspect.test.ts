// What the inspector shows, names in messages, and going back to where one was.
import { describe, expect, it } from "vitest";
import { History } from "../src/inspector.js";
import { Store } from "../src/store.js";
import { linked } from "../src/inspectstep.js";
import { executed, named, ofCursor, ofSelection } from "../src/select.js";
import { unpack } from "../src/wire.js";
import { llama } from "./mock.js";

function made() {
  const store = new Store(unpack(llama(2, 4)), -1, (run) => run());
  let time = 0;
  const history = new History(store, () => time);
  store.add(history);
  const later = () => { time += 1000; };
  later();
  return { store, history, later };
}

describe("a history", () => {
  it("goes back over a jump and forward again", () => {
    const { store, history, later } = made();
    store.seek(50);
    later();
    store.seek(90);
    expect(history.jumped).toBe(true);
    expect(history.from?.number).toBe(50);
    later();
    expect(history.back()).toBe(true);
    expect(store.cursor).toBe(50);
    expect(history.forward()).toBe(true);
    expect(store.cursor).toBe(90);
    expect(history.forward()).toBe(false);
  });

  it("does not count single steps, and takes the positions of one drag for one jump", () => {
    const { store, history, later } = made();
    store.seek(20);
    later();
    for (let i = 21; i < 30; i++) store.seek(i);
    expect(history.from?.number).toBe(-1);
    for (let i = 40; i < 80; i += 4) store.seek(i, "person", true);
    later();
    history.back();
    expect(store.cursor).toBe(29);
  });

  it("brings back what was looked at, without a move", () => {
    const { store, history, later } = made();
    store.seek(10);
    later();
    store.select({ kind: "storage", id: 3 });
    later();
    store.select({ kind: "node", id: 1, graph: 0 });
    history.back();
    expect([store.cursor, store.selection]).toEqual([10, { kind: "storage", id: 3 }]);
  });
});

describe("what is shown", () => {
  const { t, now } = new Store(unpack(llama(2, 4)), 30, (run) => run());
  const { p } = t;

  it("is an execution of the node in the frame that is open, or the one that is named", () => {
    const node = p.step.node[30];
    expect(ofCursor(-1)).toEqual({ kind: "start" });
    expect(ofSelection(t, { kind: "node", id: node, graph: 0 }, now, 30)).toEqual({ kind: "step", step: 30 });
    const again = Array.from(p.step.node).lastIndexOf(node);
    expect(again).toBeGreaterThan(30);
    expect(ofSelection(t, { kind: "node", id: node, graph: 0, step: again }, now, 30)).toEqual({ kind: "step", step: again });
  });

  it("can be chosen again", () => {
    expect(ofSelection(t, executed(t, 30), now, 30)).toEqual(ofCursor(30));
    expect(ofSelection(t, { kind: "storage", id: 2 }, now, 30)).toEqual({ kind: "storage", id: 2 });
    expect(ofSelection(t, { kind: "value", graph: 0, id: 1 }, now, 30)).toEqual({ kind: "value", graph: 0, id: 1, frame: now.frame });
  });

  it("finds the node or value that a message names", () => {
    const g = p.graphs[0];
    expect(named(t, 0, g.nodes[5][0])).toEqual({ kind: "node", id: 5, graph: 0 });
    expect(named(t, 0, g.values[7])).toEqual({ kind: "value", id: 7, graph: 0 });
    expect(named(t, 0, "no such name")).toBeNull();
  });
});

it("puts links in the place of names, and behind where a name is not there", () => {
  const link = (text: string) => ({ text }) as unknown as HTMLElement;
  const [a, b, c] = ["x/y", "z", "gone"].map(link);
  expect(linked("Add cannot take x/y: z reads it", [["x/y", a], ["z", b], ["gone", c]])).toEqual(["Add cannot take ", a, ": ", b, " reads it", " → ", c]);
});
