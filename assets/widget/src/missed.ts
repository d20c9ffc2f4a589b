// Missed in-place ops: by node (with the diagnosis of the kernel, if there is one), by kind, and as a matrix of roles and
// layers.
import { ensure, kept } from "./arrays.js";
import { numberOf, opAt, type Trace } from "./replay.js";
import type { Missed, Report } from "./wire.js";

/** All steps of one node, or of one node in one run. `bytes`: spent by missed steps; `worst`: place of the most expensive one. */
export interface Cell { graph: number; node: number; steps: number; missed: number; inPlace: number; elsewhere: number; views: number; bytes: number; worst: number; codes: string[]; runs: Set<number> }
/** `cells` by column; null: no such op. */
export interface RoleRow { role: string; op: string; cells: (Cell | null)[]; bytes: number; missed: number; usual: string }
/** `columns`: numbers of layers or runs; `outside`: missed ops outside of all columns. */
export interface Matrix { by: "layer" | "run"; layer: number; columns: number[]; rows: RoleRow[]; outside: { kinds: number; bytes: number } }

export const OUTSIDE = -1; // the layer of what is in none

export function layersOf({ p }: Trace): number[] {
  const seen = new Set<number>();
  for (const g of p.graphs) for (const layer of g.layer) if (layer >= 0) seen.add(layer);
  return [...seen].sort((a, b) => a - b);
}

export function roleOf({ p }: Trace, graph: number, node: number): string {
  const g = p.graphs[graph];
  return g.roles[g.role[node]] ?? g.nodes[node][0];
}

export function matrix(t: Trace, by: "layer" | "run", layer = OUTSIDE): Matrix {
  const { p, x } = t;
  const columns = by === "layer" ? layersOf(t) : p.runs.flatMap((r, i) => (r.last > r.first ? [i] : []));
  const at = new Map(columns.map((c, i) => [c, i]));
  const rows = new Map<string, RoleRow>();
  const others = new Map<string, number>();
  for (let i = 0; i < p.steps; i++) {
    const { graph, g, node, op: [, op] } = opAt(t, i);
    const own = g.layer[node] ?? OUTSIDE;
    const key = `${roleOf(t, graph, node)}\n${op}`;
    const flags = p.step.flags[i];
    const bytes = flags & p.flag.missed ? cost(t, i) : 0;
    const column = at.get(by === "layer" ? own : x.run[i]);
    if (column === undefined || (by === "run" && own !== layer)) {
      if (bytes) others.set(key, (others.get(key) ?? 0) + bytes);
      continue;
    }
    const row = ensure(rows, key, () => ({ role: roleOf(t, graph, node), op, cells: columns.map(() => null), bytes: 0, missed: 0, usual: "" }));
    const cell = (row.cells[column] ??= { graph, node, steps: 0, missed: 0, inPlace: 0, elsewhere: 0, views: 0, bytes: 0, worst: i, codes: [], runs: new Set() });
    cell.steps++;
    if (flags & p.flag.inPlace) cell.inPlace++;
    else if (flags & p.flag.elsewhere) cell.elsewhere++;
    else if (flags & p.flag.view) cell.views++;
    if (!(flags & p.flag.missed)) continue;
    if (!cell.missed || bytes > cost(t, cell.worst)) [cell.worst, cell.graph, cell.node] = [i, graph, node];
    cell.missed++;
    cell.runs.add(x.run[i]);
    cell.bytes += bytes;
    row.missed++;
    row.bytes += bytes;
  }
  for (const row of rows.values()) {
    for (const cell of row.cells) if (cell?.missed) cell.codes = codesOf(t, cell.worst);
    row.usual = usual(row.cells.flatMap((cell) => (cell ? [signature(cell)] : [])));
  }
  const outside = { kinds: others.size, bytes: [...others.values()].reduce((a, b) => a + b, 0) };
  return { by, layer, columns, rows: [...rows.values()].sort((a, b) => b.bytes - a.bytes || b.missed - a.missed), outside };
}

/** Reasons of a step, first those of the input with the fewest. */
function codesOf({ p }: Trace, step: number): string[] {
  const inputs = new Map<number, string[]>();
  for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
    ensure(inputs, p.block.input[k], () => []).push(p.strings[p.block.code[k]]);
  }
  const unfit = (codes: string[]) => Number(codes.some((c) => c === "SHAPE_DIFFERS" || c === "DTYPE_DIFFERS"));
  const near = [...inputs.values()].sort((a, b) => unfit(a) - unfit(b) || a.length - b.length);
  return [...new Set(near.flat())];
}

/** Equal for similar cells: reasons and counts. Bytes grow with every token, so they are left out. */
export function signature(cell: Cell): string {
  return `${[...cell.codes].sort().join(" ")}|${cell.missed}|${cell.inPlace}|${cell.elsewhere}|${cell.steps}`;
}

function usual(all: string[]): string {
  const often = new Map<string, number>();
  for (const one of all) often.set(one, (often.get(one) ?? 0) + 1);
  return [...often].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

/** Whether a cell differs from most of its row. */
export function isOdd(row: RoleRow, column: number): boolean {
  const cell = row.cells[column];
  return !!cell && signature(cell) !== row.usual;
}

/** The number of columns with a similar cell. */
export function alike(row: RoleRow, column: number): number {
  const cell = row.cells[column];
  return cell ? row.cells.filter((other) => other && signature(other) === signature(cell)).length : 0;
}

/** Rows with missed ops, without those below a number of bytes unless `all`, and what is hidden. */
export function shown(m: Matrix, below: number, all: boolean): { rows: RoleRow[]; hidden: number; bytes: number } {
  const rows = m.rows.filter((row) => row.missed);
  const few = all ? [] : rows.filter((row) => row.bytes < below);
  return { rows: rows.filter((row) => !few.includes(row)), hidden: few.length, bytes: few.reduce((n, row) => n + row.bytes, 0) };
}

/** Bytes that a missed step spent: new capacity, or bytes moved if its capacity came from the pool. */
export function cost({ p }: Trace, step: number): number { return Math.max(p.step.alloc[step], p.step.copied[step]); }

export function key(m: { graph: number; node: number }): number { return m.graph * 2 ** 24 + m.node; }

export function missed(t: Trace, report?: Report | null): Missed[] {
  const first = report?.missed ?? [];
  if (report && first.length >= report.total) return first;
  const sent = [...first, ...(report?.worst ?? [])];
  const { p } = t;
  const known = new Set(sent.map(key));
  const groups = new Map<number, Missed & { worst: number }>();
  for (let i = 0; i < p.steps; i++) {
    if (!(p.step.flags[i] & p.flag.missed)) continue;
    const { graph, node } = opAt(t, i);
    const id = key({ graph, node });
    if (known.has(id)) continue;
    const group = ensure(groups, id, () => ({ graph, node, frame: "", step: i, steps: [], times: 0, bytes: 0, reasons: [], fixes: [], worst: -1 }));
    const bytes = cost(t, i);
    group.steps.push(i);
    group.bytes += bytes;
    if (bytes > group.worst) [group.worst, group.step] = [bytes, i];
  }
  for (const group of groups.values()) {
    group.reasons = reasons(t, group.step);
    group.step = numberOf(t, group.step);
    group.times = group.steps.length;
  }
  return [...sent, ...[...groups.values()].sort((a, b) => b.bytes - a.bytes || a.steps[0] - b.steps[0])];
}

/** Missed nodes by `key`. */
export const missedByNode = kept((t: Trace) => new Map(missed(t).map((one) => [key(one), one])));

function reasons({ p }: Trace, step: number): Missed["reasons"] {
  const { g, op: [, , , inputs] } = opAt({ p }, step);
  return Array.from(p.block.code.subarray(p.step.block[step], p.step.block[step + 1]), (code, i) => {
    const k = p.step.block[step] + i;
    return { code: p.strings[code], value: g.values[inputs[p.block.input[k]]] ?? "", culprit: p.strings[p.block.culprit[k]], message: p.strings[p.block.message[k]], fix: -1 };
  });
}

export interface Kind { key: string; role: string; layers: number[]; runs: number; times: number; bytes: number; entries: Missed[] }
/** A line of the list: a kind, a node, or a step; `open`: null if nothing is below it. */
export interface Line { kind: Kind; entry: Missed; depth: 0 | 1 | 2; step: number; open: boolean | null; key: string; bytes: number }

export function kinds(t: Trace, entries: Missed[]): Kind[] {
  const { p, x } = t;
  const found = new Map<string, Kind & { in: Set<number> }>();
  for (const one of entries) {
    const role = roleOf(t, one.graph, one.node);
    const codes = [...new Set(one.reasons.map((r) => r.code))].sort().join(" ");
    const key = [role, p.graphs[one.graph].nodes[one.node][1], codes].join("\n");
    const kind = ensure(found, key, () => ({ key, role, layers: [], runs: 0, times: 0, bytes: 0, entries: [], in: new Set<number>() }));
    kind.entries.push(one);
    kind.times += one.times;
    kind.bytes += one.bytes;
    for (const step of one.steps) kind.in.add(x.run[step]);
    const layer = p.graphs[one.graph].layer[one.node] ?? -1;
    if (layer >= 0 && !kind.layers.includes(layer)) kind.layers.push(layer);
  }
  for (const kind of found.values()) {
    kind.runs = kind.in.size;
    kind.layers.sort((a, b) => a - b);
    kind.entries.sort((a, b) => b.bytes - a.bytes || a.step - b.step);
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes || a.entries[0].step - b.entries[0].step);
}

/** The visible lines: kinds, and what is below the open ones. */
export function lines(t: Trace, all: Kind[], open: Set<string>): Line[] {
  const found: Line[] = [];
  for (const kind of all) {
    const [worst] = kind.entries;
    const many = kind.entries.length > 1;
    const deep = many || worst.steps.length > 1;
    found.push({ kind, entry: worst, depth: 0, step: worst.step, open: deep ? open.has(kind.key) : null, key: kind.key, bytes: kind.bytes });
    if (!open.has(kind.key)) continue;
    for (const entry of byLayer(t, kind.entries)) {
      const key = `${kind.key}\n${entry.graph}/${entry.node}`;
      const steps = entry.steps.length > 1 || !many;
      if (many) found.push({ kind, entry, depth: 1, step: entry.step, open: steps ? open.has(key) : null, key, bytes: entry.bytes });
      if (many && !open.has(key)) continue;
      for (const at of steps ? entry.steps : []) found.push({ kind, entry, depth: 2, step: numberOf(t, at), open: null, key: `${key}\n${at}`, bytes: cost(t, at) });
    }
  }
  return found;
}

function byLayer({ p }: Trace, entries: Missed[]): Missed[] {
  const layer = (m: Missed) => p.graphs[m.graph].layer[m.node] ?? -1;
  return [...entries].sort((a, b) => layer(a) - layer(b) || a.graph - b.graph || a.node - b.node);
}

/** Kinds below this many bytes are hidden at first. */
export function small(t: Trace, report: Report | null, all: Kind[]): number {
  if (report?.small !== undefined) return report.small;
  return layersOf(t).length && all.length > 20 ? 1000 : 0;
}
