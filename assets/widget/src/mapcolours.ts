// Colours of the memory map: classes of lives by whose they are, by cache, by the op that made them or by size. What is
// alive at the cursor has the full colour, all else a pale one.
import { bytes, opName, shortValue } from "./format.js";
import type { Lives } from "./mapdata.js";
import { opAt, type Trace } from "./replay.js";

export const COLOURS = ["owner", "cache", "op", "size"] as const;
export type Colour = (typeof COLOURS)[number];
/** `hue`: a token; `share` of it in the pale colour. */
export interface Class { name: string; hue: string; share: number }
export interface Classes { of: Uint8Array; all: Class[] }

const HUES = ["view", "accent", "inplace-ink", "missed-ink", "foreign"];
const REST = "soft";
const PALE = 0.4;
/** Whose a storage is, by the name of its origin; those of the caller are like one another. */
const OWNER: Record<string, string> = { run: "accent", pool: "foreign" };

const plain = (name: string, hue: string): Class => ({ name, hue, share: PALE });

/** Classes in the order in which they are first met. */
function grouped(l: Lives, of: (k: number) => Class): Classes {
  const all: Class[] = [];
  const at = Uint8Array.from({ length: l.n }, (_, k) => {
    const c = of(k);
    const known = all.findIndex((o) => o.name === c.name);
    return known < 0 ? all.push(c) - 1 : known;
  });
  return { of: at, all };
}

export function classes(t: Trace, l: Lives, colour: Colour): Classes {
  const { p, x } = t;
  const origin = (k: number) => p.codes.origin[p.storage.origin[l.storage[k]]];
  if (colour === "owner") {
    return grouped(l, (k) => {
      if (l.cache[k] >= 0) return plain("cache", HUES[0]);
      return plain(OWNER[origin(k)] ? origin(k) : "caller", OWNER[origin(k)] ?? REST);
    });
  }
  if (colour === "cache") {
    const named = p.caches.map((c, i) => plain(shortValue(c.name), HUES[i % HUES.length]));
    const rest = plain("no cache", REST);
    // so many that colours repeat: the first ones and a class for each further hue
    return named.length <= 200 ? { of: Uint8Array.from(l.cache, (c) => (c < 0 ? named.length : c)), all: [...named, rest] } : grouped(l, (k) => (l.cache[k] < 0 ? rest : plain(`cache ${l.cache[k] % HUES.length}`, HUES[l.cache[k] % HUES.length])));
  }
  if (colour === "op") {
    const op = (k: number) => {
      const step = l.maker[k] < 0 ? -1 : x.outStep[l.maker[k]];
      return step < 0 ? "given" : opName(opAt(t, step).op[1]);
    };
    const sum = new Map<string, number>();
    for (let k = 0; k < l.n; k++) if (l.maker[k] >= 0) sum.set(op(k), (sum.get(op(k)) ?? 0) + l.bytes[k]);
    const top = [...sum].sort((a, b) => b[1] - a[1]).slice(0, HUES.length).map(([name]) => name);
    const all = [...top.map((name, i) => plain(name, HUES[i])), plain("other", REST)];
    return { of: Uint8Array.from({ length: l.n }, (_, k) => (top.indexOf(op(k)) + all.length) % all.length), all };
  }
  const most = Math.log2(Math.max(2, ...l.bytes.length ? [l.bytes.reduce((a, b) => Math.max(a, b), 0)] : []));
  const levels = 5;
  const all = Array.from({ length: levels }, (_, i) => ({ name: `≤ ${bytes(2 ** (most * ((i + 1) / levels)))}`, hue: "accent", share: 0.12 + 0.12 * i }));
  return { of: Uint8Array.from(l.bytes, (b) => Math.min(levels - 1, Math.floor((Math.log2(Math.max(1, b)) / most) * levels))), all };
}

const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
/** Four bytes of a pixel. */
export function pixel(colour: string): number {
  if (!brush) return 0xff888888;
  brush.fillStyle = colour;
  brush.fillRect(0, 0, 1, 1);
  return new Uint32Array(brush.getImageData(0, 0, 1, 1).data.buffer)[0];
}
