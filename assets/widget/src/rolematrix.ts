// Roles × layers, and roles × tokens of one layer: what every op of a role came to there; pure, from the columns.
import { cost } from "./missed.js";
import type { Trace } from "./replay.js";

/** All steps of one node, or of one node in one run. `bytes` were spent by the missed ones; `worst` is the place of the one that counts. */
export interface Cell { graph: number; node: number; steps: number; missed: number; inPlace: number; elsewhere: number; views: number; bytes: number; worst: number; codes: string[]; runs: Set<number> }
/** `cells` by column: null where no such op is. */
export interface RoleRow { role: string; op: string; cells: (Cell | null)[]; bytes: number; missed: number; usual: string }
/** `columns`: numbers of layers, or of runs; `outside`: missed ops that no column has. */
export interface Matrix { by: "layer" | "run"; layer: number; columns: number[]; rows: RoleRow[]; outside: { kinds: number; bytes: number } }

export const OUTSIDE = -1; // the layer of what is in none

/** Layers of a recording, ascending. */
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
    const graph = p.frame.graph[p.step.frame[i]];
    const node = p.step.node[i];
    const own = p.graphs[graph].layer[node] ?? OUTSIDE;
    const op = p.graphs[graph].nodes[node][1];
    const key = `${roleOf(t, graph, node)}\n${op}`;
    const flags = p.step.flags[i];
    const bytes = flags & p.flag.missed ? cost(t, i) : 0;
    const column = at.get(by === "layer" ? own : x.run[i]);
    if (column === undefined || (by === "run" && own !== layer)) {
      if (bytes) others.set(key, (others.get(key) ?? 0) + bytes);
      continue;
    }
    let row = rows.get(key);
    if (!row) rows.set(key, (row = { role: roleOf(t, graph, node), op, cells: columns.map(() => null), bytes: 0, missed: 0, usual: "" }));
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

/** Reasons of a step, those first of the input that came nearest to being taken over. */
export function codesOf({ p }: Trace, step: number): string[] {
  const inputs = new Map<number, string[]>();
  for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
    const codes = inputs.get(p.block.input[k]) ?? [];
    inputs.set(p.block.input[k], [...codes, p.strings[p.block.code[k]]]);
  }
  const unfit = (codes: string[]) => Number(codes.some((c) => c === "SHAPE_DIFFERS" || c === "DTYPE_DIFFERS"));
  const near = [...inputs.values()].sort((a, b) => unfit(a) - unfit(b) || a.length - b.length);
  return [...new Set(near.flat())];
}

/** What a cell has in common with those that are alike: the reasons, and how often; bytes grow from token to token. */
export function signature(cell: Cell): string {
  return `${[...cell.codes].sort().join(" ")}|${cell.missed}|${cell.inPlace}|${cell.elsewhere}|${cell.steps}`;
}

function usual(all: string[]): string {
  const often = new Map<string, number>();
  for (const one of all) often.set(one, (often.get(one) ?? 0) + 1);
  return [...often].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

/** Whether a cell differs from what is usual in its row, or is missing where all others are. */
export function isOdd(row: RoleRow, column: number): boolean {
  const cell = row.cells[column];
  return !!cell && signature(cell) !== row.usual;
}

/** Columns whose cells are alike. */
export function alike(row: RoleRow, column: number): number {
  const cell = row.cells[column];
  return cell ? row.cells.filter((other) => other && signature(other) === signature(cell)).length : 0;
}

/** Rows with something missed, those of few bytes only if wanted, and what is hidden. */
export function shown(m: Matrix, below: number, all: boolean): { rows: RoleRow[]; hidden: number; bytes: number } {
  const rows = m.rows.filter((row) => row.missed);
  const few = all ? [] : rows.filter((row) => row.bytes < below);
  return { rows: rows.filter((row) => !few.includes(row)), hidden: few.length, bytes: few.reduce((n, row) => n + row.bytes, 0) };
}
