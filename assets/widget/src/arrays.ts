// Two tools on typed arrays: lists by key in one block of memory, and binary search.

/** For every key the positions that carry it, ascending: `ids[start[k] .. start[k + 1])`. */
export interface Lists { start: Int32Array; ids: Int32Array }

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

/** How many of `sorted[from .. to)` are <= x, plus `from`. */
export function upper(sorted: ArrayLike<number>, x: number, from = 0, to = sorted.length): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}
