// The bands of the memory map: one for every space and arena. In an arena with addresses a life stands at its address,
// elsewhere the lives of the band are stacked.
import { lives, type Lives } from "./mapdata.js";
import { inOrder, stack, type Order } from "./mapstack.js";
import type { Trace } from "./replay.js";

export type Sort = Order | "address";
/** `top`: bytes from foot to head. `addressed`: stands where the arena has it. */
export interface Band { space: string; arena: string; top: number; count: number; addressed: boolean }
/** By life: its band, and its foot there in bytes. */
export interface Layout { l: Lives; bands: Band[]; band: Uint16Array; base: Float64Array; order: Int32Array }

const laid = new WeakMap<Trace, Map<Sort, Layout>>();

/** Whether any storage tells its address. */
export function addressed({ p }: Trace): boolean {
  return p.storage.address.some((a) => a >= 0);
}

export function layout(t: Trace, sort: Sort): Layout {
  let known = laid.get(t);
  if (!known) laid.set(t, (known = new Map()));
  let found = known.get(sort);
  if (!found) known.set(sort, (found = lay(t, sort)));
  return found;
}

function lay(t: Trace, sort: Sort): Layout {
  const { p } = t;
  const l = lives(t);
  const { space, arena, address } = p.storage;
  const bands: Band[] = [];
  const members: number[][] = [];
  const known = new Map<string, number>();
  const band = new Uint16Array(l.n);
  const base = new Float64Array(l.n);
  for (let k = 0; k < l.n; k++) {
    const s = l.storage[k];
    const names = space.length ? [p.strings[space[s]], p.strings[arena[s]]] : ["", ""];
    // what tells no address cannot stand between those that do
    const fixed = sort === "address" && address.length > 0 && address[s] >= 0;
    const key = `${names.join("\0")}\0${fixed}`;
    let b = known.get(key);
    if (b === undefined) {
      known.set(key, (b = bands.length));
      bands.push({ space: names[0], arena: names[1], top: 0, count: 0, addressed: fixed });
      members.push([]);
    }
    band[k] = b;
    members[b].push(k);
    if (fixed) base[k] = address[s];
  }
  const order = inOrder(l, sort === "address" ? "lifetime" : sort, Array.from({ length: l.n }, (_, k) => k));
  const sorted: number[][] = bands.map(() => []);
  for (const k of order) sorted[band[k]].push(k);
  bands.forEach((b, i) => {
    b.count = members[i].length;
    if (!b.addressed) b.top = stack(l, Int32Array.from(sorted[i]), p.steps, base);
    else for (const k of members[i]) b.top = Math.max(b.top, base[k] + l.bytes[k]);
  });
  return { l, bands, band, base, order };
}
