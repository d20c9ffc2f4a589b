// What follows from a query in the page: hits, ticks, the order of tables, the palette, breakpoints.
import { beforeAll, describe, expect, test } from "vitest";
import { actions, keysOf, movesOf, type Commands, type Places } from "../src/actions.js";
import { predicate, run } from "../src/debug.js";
import { use } from "../src/modules.js";
import { Hits } from "../src/hits.js";
import { ticks } from "../src/timeline.js";
import { entries, fit } from "../src/palette.js";
import query from "../src/query.js";
import { clicked, sorted } from "../src/rows.js";
import { Store, type Change } from "../src/store.js";
import { sortOf, withSort } from "../src/table.js";
import { unpack } from "../src/wire.js";
import { llama } from "./mock.js";

const modules = { load: () => Promise.reject(new Error("nothing is to be loaded")) };
const make = () => {
  const store = new Store(unpack(llama(2, 8)), -1, (later) => later());
  return { store, hits: new Hits(store, modules) };
};
beforeAll(() => void use(query));

describe("a query", () => {
  test("gives hits in its order and ascending", async () => {
    const { store, hits } = make();
    await hits.ask("op:Softmax sort:-step");
    const found = [...store.found!];
    expect(found.length).toBe(16);
    expect(found).toEqual([...store.hits!].reverse());
    expect(found.every((step) => store.t.p.graphs[0].nodes[store.t.p.step.node[step]][1] === "Softmax")).toBe(true);
  });

  test("is gone through one by one, round the end, both ways", async () => {
    const { store, hits } = make();
    await hits.ask("op:Softmax");
    const all = [...store.hits!];
    const seen = all.map(() => (hits.go(1), store.cursor));
    expect(seen).toEqual(all);
    hits.go(1);
    expect(store.cursor).toBe(all[0]);
    hits.go(-1);
    expect(store.cursor).toBe(all[all.length - 1]);
    store.seek(all[3] + 1);
    expect([hits.next(1), hits.next(-1)]).toEqual([all[4], all[3]]);
    await hits.ask("op:Softmax sort:-step");
    expect(hits.next(1)).toBe(all[all.length - 1]);
  });

  test("that cannot be read says so and keeps what was found; an empty one clears all", async () => {
    const { store, hits } = make();
    await hits.ask("op:Softmax");
    const found = store.found;
    await hits.ask("op:Softmax coppied>");
    expect([store.found, store.wrong.slice(0, 27)]).toEqual([found, 'there is no field "coppied"']);
    await hits.ask(" ");
    expect([store.query, store.found, store.hits, store.wrong]).toEqual(["", null, null, ""]);
  });

  test("is asked again of a new payload before any pane is told", async () => {
    const { store, hits } = make();
    store.add(hits);
    await hits.ask("op:Softmax");
    const told: (number | undefined)[] = [];
    store.add({ update: (change: Change) => void (change.payload && told.push(store.found?.length)) });
    store.replace(unpack(llama(2, 4)));
    expect(told).toEqual([16, 8]);
  });

  test("puts ticks where its steps are", async () => {
    const { store, hits } = make();
    await hits.ask("step:0|10");
    const { steps } = store.t.p;
    expect(ticks(store, 1000)).toEqual([Math.floor((0.5 / steps) * 1000), Math.floor((10.5 / steps) * 1000)]);
    await hits.ask("");
    expect(ticks(store, 1000)).toEqual([]);
  });

  test("is a breakpoint on recorded steps, without a kernel", async () => {
    const { store } = make();
    const point = { kind: "query", value: "op:Softmax run>=1", enabled: true };
    const wanted = Array.from({ length: store.t.p.steps }, (_, i) => i).filter((i) => store.t.x.run[i] >= 1 && store.t.p.graphs[0].nodes[store.t.p.step.node[i]][1] === "Softmax");
    expect(run(store.t, -1, 1, [point]).cursor).toBe(wanted[0]);
    expect(run(store.t, store.t.p.steps - 1, -1, [point]).cursor).toBe(wanted[wanted.length - 1]);
    expect(predicate(store.t, { ...point, value: "op:" })).toBeNull();
  });
});

describe("the order of tables", () => {
  test("stands in the query and is changed there", () => {
    expect(withSort("op:Concat sort:-live copied>0", { head: "copied", down: true })).toBe("op:Concat copied>0 sort:-copied");
    expect(withSort("", { head: "output", down: false })).toBe("sort:shape");
    expect(withSort("missed sort:op", null)).toBe("missed");
    expect(sortOf("missed sort:-copied")).toEqual({ head: "copied", down: true });
    expect(sortOf("sort:shape")).toEqual({ head: "output", down: false });
    expect(sortOf("missed")).toBeNull();
  });

  test("begins with the largest number or the first text, turns around, and ends", () => {
    expect(clicked(null, "copied", true)).toEqual({ head: "copied", down: true });
    expect(clicked({ head: "copied", down: true }, "copied", true)).toEqual({ head: "copied", down: false });
    expect(clicked({ head: "copied", down: false }, "copied", true)).toBeNull();
    expect(clicked({ head: "copied", down: true }, "op", false)).toEqual({ head: "op", down: false });
  });

  test("of rows keeps what is equal as it was, and puts what has nothing last", () => {
    const keys = [3, null, 1, 3, 2];
    expect(sorted(5, { head: "", down: true }, (_, row) => keys[row])).toEqual([0, 3, 4, 2, 1]);
    expect(sorted(5, { head: "", down: false }, (_, row) => keys[row])).toEqual([2, 4, 0, 3, 1]);
    const names = ["layer 10", "layer 2", "Layer 1"];
    expect(sorted(3, { head: "", down: false }, (_, row) => names[row])).toEqual([2, 1, 0]);
  });
});

describe("actions", () => {
  const { store, hits } = make();
  const said: string[] = [];
  const noted = new Proxy(store, { get: (target, name) => (said.push(String(name)), (target[name as keyof Store] as { bind?(to: Store): unknown } | null)?.bind?.(target) ?? target[name as keyof Store]) });
  const commands = new Proxy({}, { get: (_, name) => (name === "store" ? noted : () => void said.push(String(name))) }) as unknown as Commands;
  const places = new Proxy({}, { get: (_, name) => () => void said.push(String(name)) }) as Places;
  const list = actions(commands, places);

  test("have ids and keys of their own, and all do something", () => {
    expect(new Set(list.map(({ id }) => id)).size).toBe(list.length);
    const keys = list.flatMap((action) => action.keys);
    expect(new Set(keys).size).toBe(keys.length);
    for (const action of list) {
      said.length = 0;
      action.run();
      expect([action.id, said.length || store.note.length]).not.toEqual([action.id, 0]);
    }
    said.length = 0;
    movesOf(list)["."]();
    expect(said).toEqual(["nextRun"]);
    expect(keysOf(list.find(({ id }) => id === "next")!)).toBe("→ or n");
  });

  test("are found in the palette by parts of their titles, best first", () => {
    const titles = (text: string) => entries(store, list, hits, text).map(({ title }) => title);
    expect(titles("").length).toBe(list.length);
    expect(titles("full")[0]).toBe("Full screen");
    expect(titles("breakpoint next")[0]).toBe("Continue to the next breakpoint");
    expect(titles("nothing like it")).toEqual(["Search: nothing like it"]);
    expect(fit("Full screen", "x")).toBe(-1);
  });

  test("go to a step by its number, to a run by its label, and search for the rest", () => {
    const first = (text: string) => entries(store, list, hits, text)[0];
    for (const text of ["34", "step 34", "go to step 34"]) expect(first(text).title).toBe("Go to step 34");
    first("34").run();
    expect(store.number).toBe(34);
    expect(entries(store, list, hits, "99999").map(({ title }) => title)).toEqual(["Search: 99999"]);
    const { label } = store.t.p.runs[3];
    const to = entries(store, list, hits, label).find(({ title }) => title.startsWith(`Go to ${label}`))!;
    to.run();
    expect(store.run).toBe(3);
  });
});
