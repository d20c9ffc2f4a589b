// What the memory map says of one storage, and of a window.
import { buffer, bytes, count, opName, plural, shortName } from "./format.js";
import type { Layout } from "./mapbands.js";
import { heldFrom, peakIn } from "./mapdata.js";
import { nameOf } from "./mapmarks.js";
import { age } from "./mapstack.js";
import { generation, type Trace } from "./replay.js";
import { numberOf } from "./steps.js";

/** Lines on a life: buffer, bytes, what, whose; born, used, freed. `cursor`: what generation it has. */
export function lines(t: Trace, layout: Layout, k: number, cursor: number): string[] {
  const { p, x } = t;
  const { l, bands, band, base } = layout;
  const s = l.storage[k];
  const at = Math.max(l.from[k], Math.min(cursor, l.to[k] - 1));
  const step = (place: number) => `step ${count(numberOf(t, place))}`;
  const o = l.maker[k];
  const f = o < 0 ? -1 : p.step.frame[x.outStep[o]];
  const g = f < 0 ? null : p.graphs[p.frame.graph[f]];
  const node = o < 0 ? -1 : p.step.node[x.outStep[o]];
  const born = g ? `made in ${step(l.from[k])} by ${opName(g.nodes[node][1])} ${shortName(g, node)}`.trim() : l.given[k] ? "there before the first step" : `there from ${step(l.from[k])}`;
  const used = l.used[k] < 0 ? "used by no step" : `last used in ${step(l.used[k])}`;
  const freed = l.freed[k] ? `freed by ${step(l.to[k] - 1)}` : p.live ? "alive" : "not freed in this recording";
  const { addressed, arena } = bands[band[k]];
  return [
    `${buffer(p, s, generation(t, s, at))} · ${bytes(l.bytes[k])} · ${nameOf(t, layout, k)}`,
    `${p.codes.owner[p.storage.origin[s]]}${l.cache[k] >= 0 ? `, holds ${p.caches[l.cache[k]].name}` : ""}${addressed ? `, ${arena} from address ${count(base[k])}` : ""}`,
    born,
    `${used}; ${freed}`,
    `lives ${plural(age(l, k), "step")}${heldFrom(t, l, k) >= 0 ? "; held past its last use" : ""}`,
  ];
}

/** The peak within a window, as places of steps. */
export function peakText(t: Trace, from: number, to: number): { text: string; step: number } {
  const { step, bytes: most } = peakIn(t, Math.floor(from), Math.ceil(to));
  return { text: step < 0 ? "no steps" : bytes(most), step };
}
