// Which steps a search text means: a buffer (`B12`, `B12.3`), a decision, or part of an op type, node, scope or value name.
import { decisionBit } from "./debug.js";
import { placeOf, type Trace } from "./replay.js";

function buffers({ p, x }: Trace, storage: number, gen: number | null): Set<number> {
  const steps = new Set<number>();
  if (storage >= p.storages) return steps;
  for (let i = x.outs.start[storage]; i < x.outs.start[storage + 1]; i++) {
    if (gen === null || p.out.gen[x.outs.ids[i]] === gen) steps.add(x.outStep[x.outs.ids[i]]);
  }
  return steps;
}

/** Steps in ascending order. */
export function find(t: Trace, text: string): Int32Array {
  const { p } = t;
  const query = text.toLowerCase();
  const found: number[] = [];
  const buffer = /^b(\d+)(?:\.(\d+))?$/.exec(query);
  if (buffer) {
    const storage = Number(buffer[1]);
    const gen = buffer[2] === undefined ? null : Number(buffer[2]);
    const wrote = buffers(t, storage, gen);
    for (let i = 0; i < p.steps; i++) {
      if (wrote.has(i)) found.push(i);
      else {
        const f = p.step.frame[i];
        const reads = p.graphs[p.frame.graph[f]].nodes[p.step.node[i]][3];
        const read = reads.some((v) => {
          const place = placeOf(t, f, v, i - 1);
          return place?.storage === storage && (gen === null || place.gen === gen);
        });
        if (read) found.push(i);
      }
    }
    return Int32Array.from(found);
  }
  const flag = decisionBit(t, query.replace(" ", "_"));
  // one text per node, not per step: there are far fewer nodes
  const hits = p.graphs.map((g) => Uint8Array.from(g.nodes, ([name, op, scope, inputs, outputs]) => {
    const values = [...inputs, ...outputs].map((v) => g.values[v] ?? "").join(" ");
    return `${op} ${name} ${scope} ${values}`.toLowerCase().includes(query) ? 1 : 0;
  }));
  for (let i = 0; i < p.steps; i++) {
    if ((flag && p.step.flags[i] & flag) || hits[p.frame.graph[p.step.frame[i]]][p.step.node[i]]) found.push(i);
  }
  return Int32Array.from(found);
}
