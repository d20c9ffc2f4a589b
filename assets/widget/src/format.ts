// How numbers, buffers and names are written; the same in every pane.
import type { Graph, Payload } from "./wire.js";

const whole = new Intl.NumberFormat("en-US");

export function count(n: number): string {
  return whole.format(n);
}

/** Exact up to 9,999 B, then three digits: `2,176 B`, `12.3 kB`, `2.31 MB`. */
export function bytes(n: number): string {
  if (Math.abs(n) < 10_000) return `${whole.format(n)} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    n /= 1000;
    if (Math.abs(n) < 999.5 || unit === "GB") return `${n.toPrecision(3).replace(/e.*/, "")} ${unit}`;
  }
  return "";
}

export function signed(n: number | null): string {
  return n === null ? "" : n < 0 ? `−${bytes(-n)}` : `+${bytes(n)}`;
}

/** `B12`, and after its contents were overwritten three times `B12.3`; all weights are one `W`. */
export function buffer(p: Payload, storage: number, gen = 0): string {
  if (storage < 0) return "–";
  if (p.storage.origin[storage] === 0) return "W";
  return gen > 0 ? `B${storage}.${gen}` : `B${storage}`;
}

/** `[1,4,16]` of `float32 [1,4,16]`. */
export function shape(info: string): string {
  const at = info.indexOf("[");
  return at < 0 ? info : info.slice(at);
}

const numbered = (text: string, op: string) => text === op || new RegExp(`^(node_)?${op}(_\\d+)?$`, "i").test(text);

/** The telling part of a node's name: its last part, or the one before if that only repeats the op type. */
export function shortName(g: Graph, node: number): string {
  const [name, op, , , outputs] = g.nodes[node];
  const parts = name.split(/[/:]+/).filter(Boolean);
  while (parts.length && numbered(parts[parts.length - 1], op.replace(/^.*\./, ""))) parts.pop();
  if (parts.length) return parts[parts.length - 1];
  const output = g.values[outputs.find((v) => v >= 0) ?? -1] ?? "";
  return output === name ? "" : output;
}

/** The last part of a value's name when it is a path. */
export function shortValue(name: string): string {
  const parts = name.split("/").filter(Boolean);
  return parts.length > 2 ? parts.slice(-2).join("/") : name;
}

export function plural(n: number, word: string): string {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}
