// Lookup tables for scrubbing, built once per payload in one pass over the columns.
import { group, idsOf } from "./arrays.js";
import type { Graph, Ints, Payload } from "./wire.js";

/** Producers, readers and dependencies within one graph. */
function indexGraph(g: Graph) {
  const producer: Ints = new Int32Array(g.values.length).fill(-1); // by value; -1 = exists when the frame starts
  const readers: number[][] = g.values.map(() => []); // by value: nodes of `order`, captures count as reads
  const waits: number[][] = g.nodes.map(() => []); // by node: nodes of this graph that must have run
  const block: Ints = new Int32Array(g.nodes.length).fill(-1); // by node; -1 = in none
  const output = new Uint8Array(g.values.length); // by value: 1 = a graph output, held until the frame ends
  for (const n of g.order) for (const v of g.nodes[n][4]) if (v >= 0) producer[v] = n;
  for (const n of g.order) {
    for (const v of new Set([...g.nodes[n][3], ...g.nodes[n][5]])) {
      if (v < 0) continue;
      readers[v].push(n);
      if (producer[v] >= 0 && !waits[n].includes(producer[v])) waits[n].push(producer[v]);
    }
  }
  g.blocks.forEach((b, i) => b.nodes.forEach((n) => (block[n] = i)));
  for (const v of g.outputs) output[v] = 1;
  return { producer, readers, waits, block, output };
}

/** The owner of each entry, from n + 1 offsets. */
function owners(offsets: Ints, entries: number): Ints {
  const owner = new Int32Array(entries);
  for (let i = 0, at = 0; i + 1 < offsets.length; i++) for (; at < offsets[i + 1]; at++) owner[at] = i;
  return owner;
}

/**
 * When storages come and go, as cursors: one that a pool hands out again lives once more. `born` is -1 for everything that
 * a run was given, also a buffer that an earlier run made: it exists from whatever was first seen of it.
 */
function lifetimes(p: Payload, x: ReturnType<typeof owned>) {
  const found: [number, number, number][] = [];
  const frees = group(p.free.storage, p.storages);
  const freeStep = owners(p.step.free, p.free.storage.length);
  for (let s = 0; s < p.storages; s++) {
    let out = x.outs.start[s];
    let from = p.storage.born[s];
    if (from < 0 && p.storage.origin[s] !== p.from.weights) {
      from = out < x.outs.start[s + 1] ? x.outStep[x.outs.ids[out]] : p.steps;
      for (const b of idsOf(x.binds, s)) {
        // a later run's arrays come with its first step: until then the finished run is what is shown
        const first = x.first[x.bindFrame[b]];
        from = Math.min(from, first > 0 ? first : -1);
      }
    }
    for (const free of idsOf(frees, s)) {
      const to = freeStep[free];
      found.push([s, from, to]);
      while (out < x.outs.start[s + 1] && x.outStep[x.outs.ids[out]] <= to) out++;
      from = out < x.outs.start[s + 1] ? x.outStep[x.outs.ids[out]] : p.steps;
    }
    if (from < p.steps || frees.start[s] === frees.start[s + 1]) found.push([s, from, p.storage.freed[s] < Math.max(0, from) ? p.steps : p.storage.freed[s]]);
  }
  const column = (part: 0 | 1 | 2) => Int32Array.from(order, (i) => found[i][part]);
  const order = group(found.map(([, from]) => from + 1), p.steps + 2).ids;
  // by birth: cursors from which it exists, and from which it is gone; `steps` = never
  const life = { storage: column(0), born: column(1), freed: column(2) };
  return { life, lives: group(life.storage, p.storages) }; // lives by storage
}

/** What belongs to what. */
function owned(p: Payload) {
  const { frame, step, out } = p;
  const depth: Ints = new Int32Array(p.frames); // by frame; main is 0
  const first: Ints = new Int32Array(p.frames).fill(p.steps); // by frame: its first step or one of a frame inside; `steps` if none yet
  const run: Ints = new Int32Array(p.steps); // by step
  // parents are made before their children
  for (let f = 0; f < p.frames; f++) depth[f] = frame.parent[f] < 0 ? 0 : depth[frame.parent[f]] + 1;
  let peak = -1; // the step with the largest live bytes, -1 if there are no steps
  for (let i = 0; i < p.steps; i++) {
    run[i] = frame.run[step.frame[i]];
    if (peak < 0 || step.live[i] > step.live[peak]) peak = i;
    for (let f = step.frame[i]; f >= 0 && first[f] > i; f = frame.parent[f]) first[f] = i;
  }
  let weights = 0; // bytes of all weight storages
  for (let s = 0; s < p.storages; s++) if (p.storage.origin[s] === p.from.weights) weights += p.storage.capacity[s];
  return {
    graphs: p.graphs.map(indexGraph), depth, first, run, peak, weights,
    steps: group(step.frame, p.frames), // steps by frame
    outStep: owners(step.out, out.value.length), // by out: its step
    outs: group(out.storage, p.storages), // by storage, as the next two
    binds: group(p.bind.storage, p.storages),
    grown: group(p.grow.storage, p.storages),
    bindFrame: owners(frame.bind, p.bind.value.length), // by bind: its frame
  };
}

export type Index = ReturnType<typeof owned> & ReturnType<typeof lifetimes>;

export function buildIndex(p: Payload): Index {
  const x = owned(p);
  return { ...x, ...lifetimes(p, x) };
}
