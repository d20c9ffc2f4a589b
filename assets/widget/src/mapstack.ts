// Where the rectangles of the memory map stand: an address for every life, so that no two that are alive at once overlap.
import type { Lives } from "./mapdata.js";

export const ORDERS = ["lifetime", "bytes", "birth"] as const;
/** What comes first lies lowest. */
export type Order = (typeof ORDERS)[number];

const CHUNKS = 512; // of time: a life is looked for in those that it goes through
const MOST = 3000; // at once: beyond that what comes stands on top of all, gaps are not looked for

/** Steps from birth to death, as the inspector counts them. */
export function age(l: Lives, k: number): number {
  return l.to[k] - l.freed[k] - l.from[k];
}

export function inOrder(l: Lives, order: Order, among: ArrayLike<number>): Int32Array {
  const by = {
    lifetime: (a: number, b: number) => age(l, b) - age(l, a) || l.bytes[b] - l.bytes[a] || a - b,
    bytes: (a: number, b: number) => l.bytes[b] - l.bytes[a] || age(l, b) - age(l, a) || a - b,
    birth: (a: number, b: number) => l.from[a] - l.from[b] || a - b,
  };
  return Int32Array.from(among).sort(by[order]);
}

/** First fit: every life at the lowest address that is free from its birth to its death. `base` takes the addresses; the height is told. */
export function stack(l: Lives, sorted: Int32Array, steps: number, base: Float64Array): number {
  const chunk = Math.max(1, Math.ceil(steps / CHUNKS));
  const within: number[][] = Array.from({ length: Math.ceil(steps / chunk) + 1 }, () => []); // by address
  const seen = new Int32Array(l.n).fill(-1);
  let top = 0;
  for (const k of sorted) {
    const from = l.from[k];
    const to = l.to[k];
    const first = Math.floor(from / chunk);
    const last = Math.floor((to - 1) / chunk);
    let others = within[first];
    if (last > first) {
      others = [];
      for (let c = first; c <= last; c++) {
        for (const o of within[c]) {
          if (seen[o] === k || l.from[o] >= to || l.to[o] <= from) continue;
          seen[o] = k;
          others.push(o);
        }
      }
      if (others.length <= MOST) others.sort((a, b) => base[a] - base[b]);
    }
    let at = 0;
    if (others.length > MOST) {
      for (const o of others) at = Math.max(at, base[o] + l.bytes[o]);
    } else {
      for (const o of others) {
        if (l.from[o] >= to || l.to[o] <= from) continue;
        if (base[o] - at >= l.bytes[k]) break;
        at = Math.max(at, base[o] + l.bytes[o]);
      }
    }
    base[k] = at;
    for (let c = first; c <= last; c++) within[c].splice(placeFor(within[c], base, at), 0, k);
    top = Math.max(top, at + l.bytes[k]);
  }
  return top;
}

/** How many of a list stand no higher. */
function placeFor(list: number[], base: Float64Array, at: number): number {
  let from = 0;
  let to = list.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (base[list[middle]] <= at) from = middle + 1;
    else to = middle;
  }
  return from;
}
