// The text form of numbers, buffers and names, the same in every pane.
import type { Graph, Payload } from "./wire.js";

const whole = new Intl.NumberFormat("en-US");

export function count(n: number): string { return whole.format(n); }

/** Exact up to 9,999 B, then three digits: `2,176 B`, `12.3 kB`, `2.31 MB`. */
export function bytes(n: number): string {
  if (Math.abs(n) < 10_000) return `${whole.format(n)} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    n /= 1000;
    if (Math.abs(n) < 999.5 || unit === "GB") return `${n.toPrecision(3).replace(/e.*/, "")} ${unit}`;
  }
  return "";
}

/** A number with its sign; `write`: its format. */
export function signed(n: number | null, write = bytes): string { return n === null ? "" : n < 0 ? `−${write(-n)}` : `+${write(n)}`; }

/** Name and explanation of a figure, from kvviz/report/faces/markdown_text.py. */
export function figure({ codes }: Pick<Payload, "codes">, key: string): { name: string; about: string } {
  const [name, about] = codes.figure?.[key] ?? [key, ""];
  return { name, about };
}

/** `B12`, after three overwrites `B12.3`; all weights are `W`. */
export function buffer(p: Payload, storage: number, gen = 0): string {
  if (storage < 0) return "–";
  if (p.storage.origin[storage] === p.from.weights) return "W";
  return gen > 0 ? `B${storage}.${gen}` : `B${storage}`;
}

/** `[1,4,16]` of `float32 [1,4,16]`. */
export function shape(info: string): string { return info.slice(Math.max(0, info.indexOf("["))); }

export function capital(text: string): string { return text.charAt(0).toUpperCase() + text.slice(1); }

/** The op type without its domain. */
export function opName(op: string): string { return op.replace(/^.*\./, ""); }

/** The short name of a node beside its op type; see kvviz/view/page_data/payload_graphs.py. */
export function shortName(g: Graph, node: number): string { return g.names[node] ?? ""; }

/** An op with its short name. */
export function opLabel(g: Graph, node: number): string { return `${opName(g.nodes[node][1])} ${shortName(g, node)}`.trim(); }

/** The short name of a value. */
export function valueName(g: Graph, value: number): string { return g.called[value] ?? ""; }

/** The last two parts of a path with slashes or dots. */
export function shortValue(name: string): string {
  const mark = name.includes("/") ? "/" : ".";
  const parts = name.split(mark).filter(Boolean);
  return parts.length > 2 ? parts.slice(-2).join(mark) : name;
}

/** So many letters at the end of a name, with all of the number before them: names differ in their numbers. */
export function ending(name: string, letters: number): number {
  return letters + /\d*$/.exec(name.slice(0, name.length - letters))![0].length;
}

/** `keep` letters of a name without its middle; a number is there as a whole or not at all. */
export function elide(name: string, keep: number): string {
  if (name.length <= keep) return name;
  const tail = ending(name, keep >> 1) < keep ? ending(name, keep >> 1) : keep >> 1;
  const head = name.slice(0, keep - 1 - tail);
  return `${/\d/.test(name[head.length]) ? head.replace(/\d+$/, "") : head}…${name.slice(name.length - tail)}`;
}

/** A token as text, with a sign for line ends. */
export function visible(text: string): string { return text.replace(/\n/g, "⏎"); }

export function plural(n: number, word: string): string { return `${count(n)} ${word}${n === 1 ? "" : "s"}`; }

/** The smallest of 1, 2, 5, 10, 20 … (or 0.1, 0.2 …) that is not below `least`. */
export function round(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) ?? least;
}

/** Round numbers from 0 to `most`, about `count` of them. */
export function ticks(most: number, count: number): number[] {
  const step = round(most / Math.max(1, count));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}
