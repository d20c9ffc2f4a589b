// Summaries of values as kvviz/view/page_data/payload_values.py encodes them. A value is identified by its entry.
import { open, type Floats, type Ints, type Kinds } from "./wire.js";

/** The first value with a NaN or an infinity; `step`: number of its producer, -1: given to a run. */
export interface Found { step: number; value: string; text: string }
/** Codes of cells without a number; `whole`: a weight of 1. */
export interface ValueCodes { bins: number; shades: number; empty: number; below: number; above: number; nan: number; whole: number }
interface Header { format: number; columns: Kinds; about: string; budget: number; steps: number; first: { nan: Found | null; inf: Found | null }; codes: ValueCodes }

/** `down`, `across`, `axis` (of the heads): axes of the value, -1 = none; `each`: numbers per cell along them. */
export interface Picture { heads: number; down: number; across: number; axis: number; each: [number, number]; rows: number; columns: number; low: number; high: number; cells: Uint8Array }
/** Attention weights of the last query of a run; `start`: row of the first key. */
export interface Rows { heads: number; keys: number; start: number; weights: Uint16Array }

const PICTURE = 11;
const ROWS = 6;

export type ValueData = ReturnType<typeof unpackValues>;
export function unpackValues(raw: ArrayBuffer) {
  const { header, column } = open<Header>(raw);
  const { about, budget, steps, first, codes } = header;
  const ints = (name: string) => column(name) as Ints;
  const histogram = new Map<number, Ints>(); // by entry
  const bins = ints("histogram");
  ints("histogram_of").forEach((entry, i) => histogram.set(entry, bins.subarray(i * codes.bins, (i + 1) * codes.bins)));
  const pictures = new Map<number, Picture[]>(); // by entry: of its heads
  const [shape, scale, packed] = [ints("picture"), column("scale"), ints("cells")];
  const cells = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);
  for (let i = 0; i * PICTURE < shape.length; i++) {
    const [entry, , heads, down, across, axis, high, wide, rows, columns, from] = shape.subarray(i * PICTURE);
    const made = { heads, down, across, axis, each: [high, wide] as [number, number], rows, columns, low: scale[2 * i], high: scale[2 * i + 1], cells: cells.subarray(from, from + rows * columns) };
    pictures.set(entry, [...(pictures.get(entry) ?? []), made]);
  }
  const attention = new Map<string, Rows>(); // by "cache:run"
  const [rows, weighed] = [ints("attention"), ints("weights")];
  const weights = new Uint16Array(weighed.buffer, weighed.byteOffset, weighed.length * 2);
  for (let i = 0; i < rows.length; i += ROWS) {
    const [cache, run, heads, keys, start, from] = rows.subarray(i);
    attention.set(`${cache}:${run}`, { heads, keys, start, weights: weights.subarray(from, from + heads * keys) });
  }
  return {
    about, budget, steps, first, codes, histogram, pictures, attention,
    at: ints("at"), slot: ints("slot"), // by entry: number of the step and which of its outputs; below 0: -1 - run, and which binding of its main frame
    numbers: column("numbers") as Floats, counts: ints("counts"), // by entry: smallest, largest, mean; NaN, +∞, −∞
  };
}

/** Attention weights of the last query by query head and row; null: not recorded. */
export function weightsOf(v: ValueData | null | undefined, cache: number, run: number): number[][] | null {
  const found = v?.attention.get(`${cache}:${run}`);
  if (!v || !found) return null;
  const { heads, keys, start, weights } = found;
  return Array.from({ length: heads }, (_, head) => [...new Array<number>(start).fill(0), ...Array.from(weights.subarray(head * keys, (head + 1) * keys), (w) => w / v.codes.whole)]);
}
