// What is told of a step, a buffer or a cache where it is shared: read from the payload's columns.
import { buffer, bytes, count } from "./format.js";
import type { Facts } from "./markdown.js";
import type { Trace } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Report } from "./wire.js";

/** Under everything: model, version, policy, and the lines that show it again, `step` of the recording. */
export function about({ p }: Trace, step: number | null): Facts {
  const { again = [], ...rest } = p.share ?? {};
  const last = again.length - 1;
  return { ...rest, again: again.map((text, i) => (i < last ? text : text.replace(", step={step}", step === null ? "" : `, step=${step}`))).join("\n") };
}

/** Bytes alive once a step is over. */
export function heldAfter({ p }: Trace, step: number): number {
  let held = p.step.live[step];
  for (let i = p.step.free[step]; i < p.step.free[step + 1]; i++) held -= p.storage.capacity[p.free.storage[i]];
  return held;
}

/** Runs and frames around a step, outermost first. */
function place({ p }: Trace, step: number): string {
  const path: string[] = [];
  for (let f = p.step.frame[step]; p.frame.parent[f] >= 0; f = p.frame.parent[f]) path.unshift(p.strings[p.frame.label[f]]);
  const f = p.step.frame[step];
  const scope = p.graphs[p.frame.graph[f]].nodes[p.step.node[step]][2];
  return [p.runs[p.frame.run[f]]?.label ?? "", ...path, scope].filter(Boolean).join(" · ");
}

export function stepFacts(t: Trace, step: number, report: Report | null): Facts {
  const { p } = t;
  const g = p.graphs[p.frame.graph[p.step.frame[step]]];
  const [name, op, , inputs] = g.nodes[p.step.node[step]];
  const number = numberOf(t, step);
  const entry = report?.missed.find((m) => m.steps.includes(step));
  const of = !entry || entry.step === number ? "" : `For step ${count(entry.step)}, where this op spent most: `;
  const blockers: Facts[] = [];
  for (let b = p.step.block[step]; b < p.step.block[step + 1]; b++) {
    blockers.push({ code: p.strings[p.block.code[b]], input: g.values[inputs[p.block.input[b]]] ?? "", message: p.strings[p.block.message[b]] });
  }
  if (!blockers.length && entry) blockers.push(...entry.reasons.map((r) => ({ code: r.code, input: r.value, message: r.message })));
  return {
    ...about(t, number),
    step: count(number), op, node: name, where: place(t, step), blockers,
    sentence: p.strings[p.step.sentence[step]],
    decision: p.strings[p.step.end[step]],
    rule: p.strings[p.step.rule[step]],
    allocated: bytes(p.step.alloc[step]), copied: bytes(p.step.copied[step]), written: bytes(p.step.written[step]),
    live: bytes(p.step.live[step]), held: bytes(heldAfter(t, step)),
    repeated: entry?.repeated ?? "",
    fixes: (entry?.fixes ?? []).map(({ label, sentence, code }) => ({ label, of, sentence, code })),
  };
}

export function storageFacts(t: Trace, id: number, report: Report | null, step: number | null): Facts {
  const { p } = t;
  const { storage: s } = p;
  const at = (i: number, before: string, never: string) => (i < 0 ? before : i >= p.steps ? never : `step ${count(numberOf(t, i))}`);
  const held = report?.held.find((h) => h.storage === id);
  return {
    ...about(t, step),
    buffer: buffer(p, id), size: bytes(s.capacity[id]), name: p.strings[s.name[id]] ?? "", owner: p.codes.owner[s.origin[id]] ?? "",
    made: at(s.born[id], "before the first step", ""), freed: s.freed[id] < 0 ? "not in this recording" : at(s.freed[id], "", "not in this recording"),
    reason: held?.reason ?? "",
  };
}

export function cacheFacts(t: Trace, id: number, run: number, step: number | null): Facts {
  const c = t.p.caches[id];
  const told = (column: number[], write: (n: number) => string) => (column[run] === undefined ? "" : write(column[run]));
  return {
    ...about(t, step), name: c.name, protocol: c.protocol, where: t.p.runs[run]?.label ?? "",
    valid: told(c.valid, count), capacity: told(c.capacity, count), copied: told(c.copied, bytes), written: told(c.written, bytes),
  };
}
