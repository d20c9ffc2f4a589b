// The writing side of src/wire.ts, for tests: tables to payload bytes, and a small layered drawing of a block.
import { FORMAT, type Drawing, type Header, type Node } from "../src/wire.js";

export type Tables = Record<string, number[]>;

const DOUBLES = new Set([
  "bind.offset", "bind.bytes", "storage.capacity", "step.live", "step.alloc", "step.copied", "step.written",
  "out.offset", "out.bytes", "block.bytes", "grow.bytes", "storage.address", "numbers", "scale",
]);

/** `ends`: of a change, how many entries of the old column stay before and after the new ones. */
export function pack(header: Omit<Header, "columns" | "format">, tables: Tables, ends: Record<string, [number, number]> = {}): ArrayBuffer {
  const columns: Header["columns"] = {};
  const offsets: Record<string, number> = {};
  let size = 0;
  for (const [name, data] of Object.entries(tables)) {
    const double = DOUBLES.has(name);
    columns[name] = [double ? "d" : "i", data.length, ...(ends[name] ?? [])];
    offsets[name] = size;
    size = Math.ceil((size + data.length * (double ? 8 : 4)) / 8) * 8;
  }
  const text = new TextEncoder().encode(JSON.stringify({ format: FORMAT, ...header, columns }));
  const start = Math.ceil((4 + text.length) / 8) * 8;
  const raw = new ArrayBuffer(start + size);
  const bytes = new Uint8Array(raw).fill(32, 4, start);
  new DataView(raw).setUint32(0, start - 4, true);
  bytes.set(text, 4);
  for (const [name, data] of Object.entries(tables)) {
    const at = start + offsets[name];
    (columns[name][0] === "d" ? new Float64Array(raw, at, data.length) : new Int32Array(raw, at, data.length)).set(data);
  }
  return raw;
}

export async function zip(raw: ArrayBuffer): Promise<Uint8Array> {
  const stream = new Blob([raw]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const W = 104, H = 36, GAP_X = 18, GAP_Y = 26;

/** Rank by longest path, order in a rank by the mean of the inputs' places. */
export function draw(all: Node[], nodes: number[], drawn: (value: number) => boolean): Drawing {
  const box = new Map(nodes.map((n, i) => [n, i]));
  const maker = new Map<number, number>();
  for (const n of nodes) for (const v of all[n][4]) maker.set(v, box.get(n)!);
  const rank: number[] = [];
  const ranks: number[][] = [];
  const place: number[] = [];
  nodes.forEach((n, i) => {
    const from = all[n][3].map((v) => maker.get(v)).filter((b): b is number => b !== undefined);
    rank[i] = from.length ? Math.max(...from.map((b) => rank[b])) + 1 : 0;
    (ranks[rank[i]] ??= []).push(i);
  });
  for (const row of ranks) {
    const key = (i: number) => {
      const from = all[nodes[i]][3].map((v) => maker.get(v)).filter((b): b is number => b !== undefined && place[b] !== undefined);
      return from.length ? from.reduce((s, b) => s + place[b], 0) / from.length : i;
    };
    row.sort((a, b) => key(a) - key(b));
    row.forEach((i, at) => (place[i] = at - (row.length - 1) / 2));
  }
  const wide = Math.max(...ranks.map((r) => r.length));
  const w = wide * (W + GAP_X) + GAP_X;
  const boxes = nodes.map((_, i): [number, number, number, number] => [
    Math.round(w / 2 + place[i] * (W + GAP_X) - W / 2), 18 + rank[i] * (H + GAP_Y), W, H,
  ]);
  const edges: Drawing["edges"] = [];
  const stubs: Drawing["stubs"] = [];
  const inside = new Map<number, number>();
  nodes.forEach((n, i) => {
    const [x, y] = boxes[i];
    let slot = 0;
    all[n][3].forEach((v, at) => {
      const from = maker.get(v);
      if (from === undefined) {
        if (v >= 0 && drawn(v)) stubs.push([i, "in", x + 16 + 24 * slot++, y - 12, at]);
        return;
      }
      inside.set(v, (inside.get(v) ?? 0) + 1);
      const [fx, fy] = boxes[from];
      const points = [fx + W / 2, fy + H];
      if (rank[i] > rank[from] + 1) points.push(fx + W / 2 + (x - fx) * 0.3, fy + H + GAP_Y / 2, x + W / 2, y - GAP_Y / 2);
      edges.push([from, i, [...points, x + W / 2, y]]);
    });
  });
  nodes.forEach((n, i) => {
    all[n][4].forEach((v, at) => {
      if (!inside.has(v)) stubs.push([i, "out", boxes[i][0] + W / 2 + at * 16, boxes[i][1] + H + 12, at]);
    });
  });
  return { w, h: ranks.length * (H + GAP_Y) + 24, boxes, edges, stubs, pills: [] };
}
