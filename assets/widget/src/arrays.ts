// Lists by key in one block of memory, binary search, and cached functions.

/** The positions of each key, ascending: `ids[start[k] .. start[k + 1])`. */
export interface Lists { start: Int32Array; ids: Int32Array }

/** The positions of a key. */
export function idsOf({ start, ids }: Lists, key: number): Int32Array { return ids.subarray(start[key], start[key + 1]); }

/** Counting sort of positions by key; negative keys are left out. */
export function group(keys: ArrayLike<number>, buckets: number): Lists {
  const start = new Int32Array(buckets + 1);
  for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) start[keys[i] + 1]++;
  for (let k = 0; k < buckets; k++) start[k + 1] += start[k];
  const ids = new Int32Array(start[buckets]);
  const next = start.slice(0, buckets);
  for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) ids[next[keys[i]]++] = i;
  return { start, ids };
}

/** The first number in `from .. to` for which `holds` is true, given that it stays true from there on; `to` if none. */
export function first(from: number, to: number, holds: (at: number) => boolean): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (holds(middle)) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** The end of the entries <= x in `sorted[from .. to)`; `by`: positions through which it is sorted. Not built on `first`, since it is called often. */
export function upper(sorted: ArrayLike<number>, x: number, from = 0, to = sorted.length, by?: ArrayLike<number>): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[by ? by[middle] : middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The places of the entries of `i`, from n + 1 offsets. */
export function within(offsets: ArrayLike<number>, i: number): number[] {
  return Array.from({ length: offsets[i + 1] - offsets[i] }, (_, k) => offsets[i] + k);
}

/** The entry of a map; added if it is missing. */
export function ensure<K, V>(map: { get(key: K): V | undefined; set(key: K, value: V): unknown }, key: K, make: () => V): V {
  let found = map.get(key);
  if (found === undefined) map.set(key, (found = make()));
  return found;
}

/** A function that caches its result for each object. */
export function kept<K extends object, V>(make: (of: K) => V): (of: K) => V {
  const known = new WeakMap<K, V>();
  return (of) => ensure(known, of, () => make(of));
}
