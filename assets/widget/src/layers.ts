// Layers side by side: a row for every role, a cell for every layer, coloured by reason, with a depth by bytes; or the
// same roles by token in one layer. Cells that differ from their row have a frame.
import { Inks, outline, sized } from "./canvas.js";
import { button, el, mark, on, onHit, onKey, onResize, say } from "./dom.js";
import { fixBox } from "./inspectparts.js";
import { bytes, count, opName, plural, shortName } from "./format.js";
import { alike, isOdd, kinds, layersOf, matrix, missed, OUTSIDE, shown, small, type Cell, type Matrix, type RoleRow } from "./missed.js";
import type { Context, MakePane } from "./lazypane.js";
import { numberOf } from "./replay.js";
import type { Change, View } from "./store.js";

export const ROW = 18; // px; the style sheet says the same
export const CELL = 16;

export interface Picture {
  rows: RoleRow[]; columns: number; size: number; colour: "reason" | "decision";
  at: { row: number; column: number };
  here: (cell: Cell, column: number) => boolean; // the step at the cursor
}

/** Hues of reasons; others share one. */
const HUES: Record<string, string> = {
  NO_CAPACITY: "view", NOT_LAST_USE: "missed", ALIASED: "accent", NOT_CONTIGUOUS: "foreign", BORROWED_INPUT: "accent", POLICY: "soft",
  "in place": "inplace", "called in place": "elsewhere", view: "view", missed: "missed", "new memory": "soft", "": "none",
};

export function hueOf(name: string): string { return HUES[name] ?? "edge"; }

function decision(cell: Cell): string {
  if (cell.elsewhere && cell.elsewhere >= cell.missed) return "called in place";
  if (cell.missed) return "missed";
  return cell.inPlace ? "in place" : cell.views ? "view" : "new memory";
}

function drawCells(canvas: HTMLCanvasElement, host: HTMLElement, { rows, columns, size, colour, at, here }: Picture): void {
  const inks = new Inks(host);
  canvas.style.width = `${columns * size}px`;
  const context = sized(canvas, columns * size, rows.length * ROW, inks.ratio);
  if (!context) return;
  const most = Math.max(1, ...rows.flatMap((row) => row.cells.map((cell) => cell?.bytes ?? 0)));
  rows.forEach((row, y) => row.cells.forEach((cell, x) => {
    if (!cell) return;
    const [left, top, w, h] = [x * size + 1, y * ROW + 2, size - 2, ROW - 4];
    const key = colour === "decision" ? decision(cell) : cell.codes[0] ?? "";
    const plain = colour === "reason" && !cell.missed;
    if (plain) {
      context.strokeStyle = inks.colour("edge");
      context.lineWidth = 1;
      context.strokeRect(left + w / 2 - 2, top + h / 2 - 2, 4, 4);
    } else {
      context.globalAlpha = colour === "decision" ? 0.75 : 0.35 + 0.65 * Math.sqrt(cell.bytes / most);
      context.fillStyle = inks.colour(hueOf(key));
      context.fillRect(left, top, w, h);
      context.globalAlpha = 1;
    }
    if (isOdd(row, x)) outline(context, inks.colour("ink"), 1.5, [2, 2], left, top, w, h);
    if (here(cell, x)) outline(context, inks.colour("accent"), 2, [], left, top, w, h);
  }));
  if (rows[at.row]) outline(context, inks.colour("ink"), 2, [], at.column * size + 1, at.row * ROW + 1, size - 2, ROW - 2);
}

const NARROW = 860; // px, as in the style sheet

class LayersPane implements View {
  readonly slow = true;
  #matrix: Matrix | null = null;
  #rows: RoleRow[] = [];
  #layer = 0; // whose tokens are shown
  #byRun = false;
  #all = false; // kinds of few bytes, too
  #colour: "reason" | "decision" = "reason";
  #at = { row: 0, column: 0 };
  #size = CELL;
  #by: HTMLButtonElement;
  #few: HTMLButtonElement;
  #what: HTMLButtonElement;
  #names = el("div.kv-roles", { "aria-hidden": "true" });
  #canvas = el("canvas", { "aria-hidden": "true" });
  #cells = el("div.kv-rolecells", { tabindex: 0, role: "application", "aria-roledescription": "matrix of roles and layers", "data-kv": "layer-cells" }, this.#canvas);
  #sums = el("div.kv-rolesums", { "aria-hidden": "true" });
  #axis = el("div.kv-roleaxis", { "aria-hidden": "true" }, el("span"), el("span"));
  #grid = el("div.kv-rolegrid", {}, this.#names, this.#cells, this.#sums, el("span"), this.#axis);
  #scroll = el("div.kv-rolescroll", {}, this.#grid);
  #none = el("p.kv-none");
  #legend = el("p.kv-rolelegend");
  #detail = el("div.kv-detail", { "aria-live": "polite", "data-kv": "layer-detail" });

  constructor(private host: HTMLElement, private context: Context, private signal: AbortSignal) {
    this.#by = button("", "Tokens of one layer instead of layers, or back", "layers-by", () => {
      this.#byRun = !this.#byRun;
      this.#at.column = 0;
      this.#fill();
    }, signal);
    this.#few = button("", "Show kinds that spent few bytes too, such as ops that compute shapes", "layers-few", () => {
      this.#all = !this.#all;
      this.#fill();
    }, signal);
    this.#few.className = "kv-link";
    this.#what = button("", "Colour by the reason why not in place, or by how the op ran", "layers-colour", () => {
      this.#colour = this.#colour === "reason" ? "decision" : "reason";
      this.#fill();
    }, signal);
    host.append(el("div.kv-searchline.kv-tools", {}, this.#by, this.#what),
      el("div.kv-layers", {}, el("div.kv-roleside", {}, this.#none, this.#scroll, this.#legend), this.#detail));
    on(this.#canvas, "click", (event) => this.#pick(event), signal);
    on(this.#canvas, "dblclick", (event) => this.#pick(event, true), signal);
    onKey(this.#cells, (key) => this.#key(key), signal);
    on(this.#canvas, "pointermove", (event) => {
      const found = this.#under(event);
      this.#canvas.title = found ? this.#describe(found.row, found.column) : "";
    }, signal);
    onHit(this.#names, "role", (name) => this.#choose(Number(name.dataset.id), this.#at.column), signal);
    onHit(this.#detail, "layer-step", (link) => context.store.go(Number(link.dataset.id)), signal);
    onResize(host, () => this.#paint(), signal);
  }

  update(change: Change): void {
    if (change.payload || change.report) this.#fill();
    else if (change.look || change.cursor || change.selection) {
      if (change.selection) this.#follow();
      this.#paint();
    }
  }

  #fill(): void {
    const { t, report } = this.context.store;
    const layers = layersOf(t);
    const flat = !layers.length;
    if (!layers.includes(this.#layer)) this.#layer = layers[0] ?? OUTSIDE;
    const byRun = this.#byRun || flat;
    const m = (this.#matrix = matrix(t, byRun ? "run" : "layer", flat ? OUTSIDE : this.#layer));
    const least = small(t, report, kinds(t, missed(t, report)));
    const found = this.#colour === "reason" ? shown(m, least, this.#all) : { rows: m.rows, hidden: 0, bytes: 0 };
    this.#rows = found.rows;
    const hidden = this.#all ? m.rows.filter((r) => r.missed && r.bytes < least).length : found.hidden;
    say(this.#by, byRun ? "by layer" : `tokens of layer ${this.#layer}`);
    say(this.#what, `colour: ${this.#colour}`);
    say(this.#few, `${this.#all ? "shown" : "hidden"}: ${plural(hidden, "kind")} below ${bytes(least)} (${this.#all ? "hide" : "show"})`);
    this.#by.hidden = flat;
    this.#few.hidden = !hidden || this.#colour === "decision";
    say(this.#none, this.#rows.length ? "" : byRun ? "Nothing missed here: every op that could run in place did." : "Nothing missed in any layer: every op that could run in place did.");
    this.#none.hidden = this.#rows.length > 0;
    this.#legend.hidden = !this.#rows.length && this.#few.hidden;
    this.#detail.hidden = !this.#rows.length;
    this.#what.hidden = !this.#rows.length && this.#colour === "reason";
    this.#by.hidden ||= this.#what.hidden;
    this.#scroll.hidden = !this.#rows.length;
    this.#names.replaceChildren(...this.#rows.map((row, i) => el("div", { "data-kv": "role", "data-id": i, title: `${opName(row.op)} ${row.role}` }, el("bdi", {}, row.role))));
    this.#sums.replaceChildren(...this.#rows.map((row) => {
      const code = row.cells.find((cell) => cell?.missed)?.codes[0] ?? "";
      return el("div", {}, el("span.kv-num", {}, row.missed ? bytes(row.bytes) : ""), el("code", { "data-hue": hueOf(code) }, code));
    }));
    const name = (column: number) => (m.by === "layer" ? `layer ${m.columns[column]}` : t.p.runs[m.columns[column]]?.label ?? "");
    say(this.#axis.children[0], name(0));
    say(this.#axis.children[1], m.columns.length > 1 ? name(m.columns.length - 1) : "");
    const rest = m.by === "layer" ? "outside of layers" : "elsewhere";
    const outside = m.outside.bytes ? `; ${rest}: ${plural(m.outside.kinds, "kind")}, ${bytes(m.outside.bytes)}` : "";
    const keys = this.#colour === "reason" ? [...new Set(this.#rows.flatMap((row) => row.cells.flatMap((cell) => cell?.codes[0] ?? [])))] : ["in place", "called in place", "view", "missed", "new memory"];
    this.#legend.replaceChildren(...keys.map((key) => el("span", {}, el("i", { "data-hue": hueOf(key), style: `--kv-hue: var(--kv-${hueOf(key)})` }), key)), el("span", {}, el("i", { "data-hue": "none" }), "ran otherwise"), el("span", {}, el("i", { "data-odd": 1 }), "differs from its row"), el("span", {}, `depth: bytes${outside}`), this.#few);
    this.#at = { row: Math.max(0, Math.min(this.#at.row, this.#rows.length - 1)), column: Math.max(0, Math.min(this.#at.column, m.columns.length - 1)) };
    this.#follow();
    this.#paint();
    this.#tell();
  }

  /** Move to the cell of the selected node. */
  #follow(): void {
    const { selection } = this.context.store;
    if (selection?.kind !== "node") return;
    const own = this.#cell();
    if (own && own.node === selection.id && own.graph === selection.graph) return;
    for (const [row, { cells }] of this.#rows.entries()) {
      const column = cells.findIndex((cell) => cell?.node === selection.id && cell.graph === selection.graph);
      if (column < 0) continue;
      this.#at = { row, column };
      return this.#tell();
    }
  }

  #cell(): Cell | null { return this.#rows[this.#at.row]?.cells[this.#at.column] ?? null; }

  #paint(): void {
    const m = this.#matrix;
    if (!m || !this.host.clientWidth) return;
    const { cursor, t } = this.context.store;
    const room = this.#scroll.clientWidth - this.#names.offsetWidth - (this.host.clientWidth < NARROW ? 90 : 240);
    this.#size = Math.max(7, Math.min(CELL, Math.floor(room / Math.max(1, m.columns.length))));
    const graph = cursor < 0 ? -1 : t.p.frame.graph[t.p.step.frame[cursor]];
    const here = (cell: Cell, column: number) => cursor >= 0 && cell.graph === graph && cell.node === t.p.step.node[cursor] && (m.by === "layer" || m.columns[column] === t.x.run[cursor]);
    drawCells(this.#canvas, this.host, { rows: this.#rows, columns: m.columns.length, size: this.#size, colour: this.#colour, at: this.#at, here });
    this.#axis.style.width = `${m.columns.length * this.#size}px`;
    [...this.#names.children].forEach((name, i) => mark(name, "data-chosen", i === this.#at.row ? 1 : null));
  }

  #under(event: MouseEvent): { row: number; column: number } | null {
    const box = this.#canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / ROW);
    const column = Math.floor((event.clientX - box.left) / this.#size);
    return row >= 0 && row < this.#rows.length && column >= 0 && column < (this.#matrix?.columns.length ?? 0) ? { row, column } : null;
  }

  #pick(event: MouseEvent, go = false): void {
    const found = this.#under(event);
    if (found) this.#choose(found.row, found.column, go);
  }

  #choose(row: number, column: number, go = false): void {
    const { store } = this.context;
    this.#at = { row, column };
    const m = this.#matrix;
    if (m?.by === "layer") {
      this.#layer = m.columns[column];
      say(this.#by, `tokens of layer ${this.#layer}`);
    }
    const cell = this.#cell();
    if (cell) {
      const step = numberOf(store.t, cell.worst);
      store.select({ kind: "node", id: cell.node, graph: cell.graph, step });
      if (go) store.go(step);
    }
    this.#paint();
    this.#tell();
  }

  #key(key: string): boolean | void {
    if (!this.#matrix || !this.#rows.length) return false;
    const { row, column } = this.#at;
    const last = { row: this.#rows.length - 1, column: this.#matrix.columns.length - 1 };
    const to = {
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1],
      Home: [row, 0], End: [row, last.column], PageUp: [0, column], PageDown: [last.row, column], Enter: [row, column],
    }[key];
    if (!to) return false;
    this.#choose(Math.max(0, Math.min(last.row, to[0])), Math.max(0, Math.min(last.column, to[1])), key === "Enter");
    const name = this.#names.children[this.#at.row];
    if (name) this.context.store.reveal(this.#scroll, name);
  }

  #where(column: number): string {
    const m = this.#matrix!;
    const layer = this.#layer < 0 ? "" : `, layer ${this.#layer}`;
    return m.by === "layer" ? `, layer ${m.columns[column]}` : `${layer}, ${this.context.store.t.p.runs[m.columns[column]].label}`;
  }

  #describe(row: number, column: number): string {
    const found = this.#rows[row];
    const cell = found.cells[column];
    const what = !cell ? "no such op" : cell.missed ? `${bytes(cell.bytes)} missed in ${plural(cell.missed, "step")}: ${cell.codes.join(", ")}` : ran(cell);
    return `${found.role}${this.#where(column)}: ${what}${isOdd(found, column) ? "; differs from its row" : ""}`;
  }

  #tell(): void {
    const { store, ask } = this.context;
    const { t, report } = store;
    const { row, column } = this.#at;
    const found = this.#rows[row];
    mark(this.#cells, "aria-label", found ? this.#describe(row, column) : "Roles and layers");
    const cell = this.#cell();
    if (!found) return this.#detail.replaceChildren();
    const title = el("p.kv-big", {}, `${found.role}${this.#where(column)}`);
    if (!cell) return this.#detail.replaceChildren(title, el("p.kv-soft", {}, "There is no such op here."));
    const m = this.#matrix!;
    const there = found.cells.filter(Boolean).length;
    const runs = new Set(t.p.runs.flatMap((r, i) => (r.last > r.first ? [i] : []))).size;
    const same = `${count(alike(found, column))} of ${plural(there, m.by === "layer" ? "layer" : "token")}`;
    const g = t.p.graphs[cell.graph];
    const step = numberOf(t, cell.worst);
    const parts: Node[] = [
      title,
      el("p", {}, `Alike in ${same}${m.by === "layer" && cell.missed ? `; missed in ${cell.runs.size} of ${plural(runs, "token")}` : ""}.`),
      el("p.kv-soft", {}, opName(g.nodes[cell.node][1]), " ", el("code", { title: g.nodes[cell.node][0] }, shortName(g, cell.node) || g.nodes[cell.node][0]), " · ",
        el("button", { class: "kv-link", "data-kv": "layer-step", "data-id": step }, `step ${count(step)}`)),
    ];
    if (!cell.missed) return this.#detail.replaceChildren(...parts, el("p", {}, `Here it ${ran(cell)}.`));
    parts.push(el("p", {}, el("b", {}, bytes(cell.bytes)), ` of ${bytes(found.bytes)} in this row: `, el("code", {}, cell.codes.join(", "))));
    const all = [...(report?.missed ?? []), ...(report?.worst ?? [])];
    const own = all.find((e) => e.node === cell.node && e.graph === cell.graph);
    const entry = own ?? all.find((e) => found.cells.some((c) => c && c.node === e.node && c.graph === e.graph));
    const at = entry?.reasons.findIndex((r) => r.fix >= 0) ?? -1;
    if (entry && at >= 0) {
      if (!own) parts.push(el("p.kv-soft", {}, `The change for layer ${g.layer.length ? t.p.graphs[entry.graph].layer[entry.node] : ""}, which is alike:`));
      parts.push(fixBox(entry.fixes[entry.reasons[at].fix], { step: entry.step, blocker: at }, store, ask, this.signal, true));
    }
    this.#detail.replaceChildren(...parts);
  }
}

function ran(cell: Cell): string {
  const other = cell.steps - cell.inPlace - cell.views - cell.missed;
  const parts = [cell.inPlace && `ran in place ${plural(cell.inPlace, "time")}`, cell.views && `made a view ${plural(cell.views, "time")}`, other && `took new memory ${plural(other, "time")}`];
  return parts.filter(Boolean).join(", ");
}

export default ((host, context, signal) => new LayersPane(host, context, signal)) satisfies MakePane;
