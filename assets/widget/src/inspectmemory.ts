// A buffer, a value or a cache: where it comes from, who read and wrote it, and how long it is held.
import { el, td } from "./dom.js";
import { buffer, bytes, count, plural, shape, shortValue, valueName } from "./format.js";
import { bufferChip, facts, listed, nodeLink, stepLink, valueLink } from "./inspectparts.js";
import { infoOf } from "./inspectstep.js";
import { capacity, generation, placeOf, stack, stepsOf, valuesIn, type Trace } from "./replay.js";
import { bare } from "./steps.js";
import type { Store } from "./store.js";

const MOST = 60; // entries of a list

/** The first cursor at which a storage exists and the step that freed it; the life that holds the cursor, else the last. */
function lifeOf({ p, x }: Trace, s: number, cursor: number): { born: number; freed: number } {
  let found = { born: -1, freed: p.steps };
  for (let i = x.lives.start[s]; i < x.lives.start[s + 1]; i++) {
    found = { born: x.life.born[x.lives.ids[i]], freed: x.life.freed[x.lives.ids[i]] };
    if (found.freed > cursor) break;
  }
  return found;
}

/** The last step that read or wrote a storage while it lived; -1 = none. */
function lastUse({ p, x }: Trace, s: number): number {
  let last = -1;
  for (let i = x.outs.start[s]; i < x.outs.start[s + 1]; i++) last = Math.max(last, x.outStep[x.outs.ids[i]]);
  const readers = (frame: number, value: number) => {
    if (value < 0) return;
    const steps = stepsOf({ p, x }, frame);
    for (const n of x.graphs[p.frame.graph[frame]].readers[value]) last = Math.max(last, steps[n]);
  };
  for (let i = x.outs.start[s]; i < x.outs.start[s + 1]; i++) readers(p.step.frame[x.outStep[x.outs.ids[i]]], p.out.value[x.outs.ids[i]]);
  for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) readers(x.bindFrame[x.binds.ids[i]], p.bind.value[x.binds.ids[i]]);
  return last;
}

export function storageTitle({ p }: Trace, s: number, gen: number): { op: string; name: string; full: string } {
  const name = p.strings[p.storage.name[s]];
  return { op: buffer(p, s, gen), name: shortValue(name), full: name };
}

export function storageBody(store: Store, s: number): Node[] {
  const { t, cursor, now } = store;
  const { p } = t;
  if (p.storage.origin[s] === p.from.weights) return [facts(["bytes", [bytes(capacity(t, s, cursor))]], ["owner", ["the model: a weight, never overwritten"]])];
  const { born, freed } = lifeOf(t, s, cursor);
  const last = lastUse(t, s);
  const end = Math.min(freed, p.steps);
  const gen = generation(t, s, cursor);
  const held = store.report?.held.find((h) => h.storage === s);
  const late = end - 1 - Math.max(last, born);
  const inside = valuesIn(t, s, cursor, stack(t, now.frame));
  const maker = born >= 0 ? [stepLink(t, born), " by ", nodeLink(t, p.frame.graph[p.step.frame[born]], p.step.node[born], null)] : ["given to the run"];
  return [
    facts(
      ["bytes", [bytes(capacity(t, s, cursor))]],
      ["owner", [p.codes.owner[p.storage.origin[s]]]],
      ["born", maker],
      ["last used", last < 0 ? ["by no step"] : [stepLink(t, last)]],
      ["freed", freed >= p.steps ? ["not in this recording"] : [stepLink(t, freed)]],
      ["lives", [plural(end - Math.max(born, 0), "step")]],
      ["held", late > 0 && freed < p.steps ? [`${plural(late, "step")} past its last use`, held ? `: ${held.reason}` : ""] : []],
      ["holds now", listed(inside.map((h) => valueLink(t, p.frame.graph[h.frame], h.value)), 4)],
      ["overwritten", gen ? [plural(gen, "time")] : []],
    ),
    contents(t, s, cursor),
  ];
}

/** What was written into a storage, in order. */
function contents(t: Trace, s: number, cursor: number): HTMLElement {
  const { p, x } = t;
  const from = x.outs.start[s];
  const all = Array.from(x.outs.ids.subarray(from, x.outs.start[s + 1]));
  const near = Math.max(0, Math.min(all.length - MOST, all.findIndex((o) => x.outStep[o] >= cursor) - MOST / 2));
  const rows = all.slice(near, near + MOST).map((o) => {
    const step = x.outStep[o];
    const graph = p.frame.graph[p.step.frame[step]];
    return el("tr", { "data-now": step === cursor ? 1 : null }, el("th", { scope: "row" }, buffer(p, s, p.out.gen[o])), td(stepLink(t, step)), td(nodeLink(t, graph, p.step.node[step])),
      td(p.out.value[o] < 0 ? "" : valueLink(t, graph, p.out.value[o])), td(shape(p.strings[p.out.info[o]]), "kv-shape"), td(p.codes.how[p.out.how[o]], "kv-soft"));
  });
  const caption = all.length > rows.length ? `${count(rows.length)} of ${plural(all.length, "write")}` : all.length ? "What was written into it" : "No step writes into it";
  return el("table.kv-contents", {}, el("caption", {}, caption), ...rows);
}

export function valueTitle({ p }: Trace, graph: number, id: number): { op: string; name: string; full: string } {
  const g = p.graphs[graph];
  return { op: valueName(g, id) || shortValue(g.values[id]), name: "", full: g.values[id] };
}

export function valueBody(store: Store, graph: number, id: number, frame: number): Node[] {
  const { t } = store;
  const { p, x } = t;
  const { producer, readers, output } = x.graphs[graph];
  const place = frame < 0 ? null : placeOf(t, frame, id, p.steps);
  const steps = frame < 0 ? null : stepsOf(t, frame);
  const at = (node: number) => {
    const step = steps?.[node] ?? -1;
    return el("span", {}, nodeLink(t, graph, node), ...(step < 0 ? [] : [" ", stepLink(t, step)]));
  };
  const made = producer[id] >= 0 ? [at(producer[id])] : [p.graphs[graph].weights.includes(id) ? "a weight of the model" : "there when the graph starts"];
  return [facts(
    ["is", place ? [infoOf(p, place)] : []],
    ["made by", made],
    ["read by", readers[id].length ? listed(readers[id].map(at), 12) : [output[id] ? "an output of the graph" : "no op"]],
    ["lies in", place ? [bufferChip(t, store.cursor, place.storage, place.gen)] : []],
    ["output", output[id] && readers[id].length ? ["also an output of the graph: held until its frame ends"] : []],
  )];
}

export function cacheBody(store: Store, id: number): Node[] {
  const { t, now } = store;
  const { p } = t;
  const c = p.caches[id];
  const told = c.capacity[now.run] || bare(p, now.run) ? now.run : now.run - 1;
  const storage = c.storage[told] ?? -1;
  const sum = (column: number[]) => column.reduce((a, b) => a + b, 0);
  return [facts(
    ["kept by", [c.protocol]],
    ["value", [`${c.input} → ${c.output}, axis ${c.axis}`]],
    ["rows", [`${count(c.valid[told] ?? 0)} valid of ${count(c.capacity[told] ?? 0)} reserved`]],
    ["this run", [`${bytes(c.written[now.run] ?? 0)} written, ${bytes(c.copied[now.run] ?? 0)} copied`]],
    ["all runs", [`${bytes(sum(c.written))} written, ${bytes(sum(c.copied))} copied`]],
    ["lies in", storage < 0 ? [] : [bufferChip(t, store.cursor, storage, 0)]],
  )];
}
