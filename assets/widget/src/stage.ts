// The canvas of the graph pane: pan, zoom, hit tests, and its minimap. Its owner provides the content.
import { bordered, filled, Inks, sized } from "./canvas.js";
import { button, Delay, el, mark, onDrag, onPointer, onResize, placeIn, say, set } from "./dom.js";
import { Painter, stripOf, TINT, worst, type Painted } from "./graphpaint.js";
import { anchorAt, boxOf, clampPort, fit, HEAD, headAt, hitIn, keep, rowAt, show, ZOOMS, type Anchor, type Level, type Port, type Rect, type Row, type Sketch } from "./level.js";
import type { Store } from "./store.js";

export type Target = { kind: "node"; node: number } | { kind: "value"; value: number } | { kind: "head"; row: Row } | { kind: "cell"; row: Row; cell: number } | { kind: "pair"; pairs: number[]; text: string } | { kind: "exit"; rect: Rect } | null;
export interface Owner {
  lay(zoom: number, room: number): Level;
  paint(level: Level): Omit<Painted, "level" | "port" | "zoom"> | null;
  sketch(row: Row): Sketch;
  cells(row: Row): number;
  line(x: number, y: number): Target; // of a hidden pair, at a point of the level
  fits(): Row | null; // the one block to fit, null = all
  click(target: Target): void;
  double(target: Target): void;
  title(target: Target): string;
  settled(): void; // nothing has moved for a while
}

/** The scale of the minimap, separate for each axis. */
export function mini(level: Level, width: number, height: number): { kx: number; ky: number; w: number; h: number } {
  const ky = Math.min(0.25, height / Math.max(1, level.h));
  return { kx: width / Math.max(1, level.w), ky, w: width, h: Math.max(1, level.h * ky) };
}
type Mini = ReturnType<typeof mini>;
export function windowOf(m: Mini, port: Port): Rect {
  const x = Math.max(0, port.x * m.kx);
  const y = Math.max(0, port.y * m.ky);
  return { x, y, w: Math.min(m.w - x, port.w * m.kx), h: Math.min(m.h - y, port.h * m.ky) };
}
/** The port centred at a place of the minimap. */
export function fromMini(m: Mini, port: Port, x: number, y: number): Port {
  return { ...port, x: x / m.kx - port.w / 2, y: y / m.ky - port.h / 2 };
}

const MINI_OPS = 400; // in more the minimap would be all that takes time
/** The minimap: cards as bars, the ops of open ones, and the visible part. */
export function paintMini(context: CanvasRenderingContext2D, painter: Painter, { hits, level, scene, zoom, ...v }: Painted, { kx, ky }: { kx: number; ky: number }, window: Rect, size: { w: number; h: number }): void {
  context.clearRect(0, 0, size.w, size.h);
  const open = level.rows.filter((r) => r.open && r.block >= 0);
  const few = open.reduce((n, r) => n + v.nodes(r).length, 0) <= MINI_OPS;
  for (const row of level.rows) {
    if (row.block < 0 && row.open) continue;
    const state = worst(scene.states, v.nodes(row));
    const inside = few && open.includes(row);
    filled(context, painter.colour(state === "running" ? (inside ? "accent-pale" : "accent") : inside || state === "waiting" ? "line" : "edge"), row.x * kx, row.y * ky, Math.max(2, row.w * kx - 1), Math.max(1.5, row.h * ky - 1));
    if (hits.size && v.nodes(row).some((n) => hits.has(n))) {
      filled(context, painter.colour("ink"), size.w - 4, row.y * ky, 4, inside ? Math.max(1.5, row.h * ky - 1) : 2);
    }
    if (!inside) continue;
    const { boxes, pills, nodes } = v.sketch(row);
    boxes.forEach(([x, y, w, h], i) => {
      filled(context, painter.colour(i < pills.length ? "view-mid" : TINT[scene.states[nodes[i - pills.length]]]), (row.bx + x * zoom) * kx, (row.by + y * zoom) * ky, Math.max(1.5, w * zoom * kx), Math.max(1.5, h * zoom * ky));
    });
  }
  bordered(context, painter.colour("ink"), 1.5, window.x + 1, window.y + 1, Math.max(3, window.w - 2), Math.max(3, window.h - 2));
}

const MINI = 72, MINI_FROM = 400; // px: width of the minimap, and of the pane from which there is one
const SETTLE = 150; // ms
export const LEGIBLE = 0.85; // least zoom of a small drawing

export class Stage {
  level: Level = { rows: [], w: 0, h: 0 };
  zoom = 1;
  port: Port = { x: 0, y: 0, w: 1, h: 1 };
  readonly canvas = el("canvas", { "aria-hidden": "true", "data-kv": "graph-canvas" });
  readonly tools: HTMLElement[];
  #wide = true; // kept: to ask the element would force a layout
  #mini = el("canvas.kv-minimap", { "aria-hidden": "true", "data-kv": "minimap", title: "Drag to move the part that is shown" });
  #said: HTMLButtonElement;
  #painter: Painter | null = null;
  #ratio = 0;
  #frame = 0;
  #rest: Delay;
  #small = false; // the drawing is small, and is shown at true size or as large as fits
  #snug = false; // likewise, and nobody has zoomed

  constructor(readonly root: HTMLElement, private store: Store, private owner: Owner, signal: AbortSignal) {
    root.append(this.canvas, this.#mini);
    this.#said = button("100 %", "True size (0)", "zoom", () => this.zoomTo(1), signal, "0");
    this.tools = [
      button("−", "Zoom out (−, Ctrl and wheel)", "zoom-out", () => this.zoomTo(this.zoom / ZOOMS.step), signal, "-"), this.#said,
      button("+", "Zoom in (+, Ctrl and wheel)", "zoom-in", () => this.zoomTo(this.zoom * ZOOMS.step), signal, "+"),
      button("Fit", "Fit what is open into the pane, or true size (f)", "fit", () => (this.#snug || (this.zoom !== 1 && !this.#small) ? this.zoomTo(1) : this.fit()), signal, "f"),
    ];
    onResize(root, () => this.#resize(), signal);
    let port = this.port;
    onPointer(this.canvas, {
      press: (event) => {
        ({ port } = this);
        return event.button ? null : "xy";
      },
      drag: ([fromX, fromY], [x, y]) => void this.#go({ ...port, x: port.x + fromX - x, y: port.y + fromY - y }),
      click: (at) => {
        const target = this.#at(...at);
        if (target?.kind === "exit") this.reveal(target.rect);
        else owner.click(target);
      },
      double: (at) => owner.double(this.#at(...at)),
      over: (at) => {
        const target = at && this.#at(...at);
        mark(this.canvas, "title", owner.title(target));
        mark(this.canvas, "data-over", target ? target.kind : null);
      },
    }, signal);
    onDrag(this.#mini, (event) => void this.#go(fromMini(this.#map(), this.port, ...placeIn(this.#mini, event))), signal);
    root.addEventListener("wheel", (event) => this.#wheel(event), { passive: false, signal });
    this.#rest = new Delay(signal);
    signal.addEventListener("abort", () => cancelAnimationFrame(this.#frame));
  }

  /** The wheel scrolls the notebook unless the pane has the focus and something left to scroll. */
  #wheel(event: WheelEvent): void {
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? this.port.h : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      return this.zoomTo(this.zoom * Math.exp(Math.max(-0.3, Math.min(0.3, -event.deltaY * unit * 0.003))), ...placeIn(this.canvas, event));
    }
    if ((this.root.getRootNode() as Document).activeElement !== this.root) return;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    if (this.pan(dx * unit, dy * unit)) event.preventDefault();
  }

  #at(px: number, py: number): Target {
    const exit = this.#painter?.exits.find((e) => Math.hypot(e.x - px, e.y - py) < 10);
    if (exit) {
      const [bx, by, w, h] = this.owner.sketch(exit.row).boxes[exit.box];
      return { kind: "exit", rect: { x: exit.row.bx + bx * this.zoom, y: exit.row.by + by * this.zoom, w: w * this.zoom, h: h * this.zoom } };
    }
    const x = this.port.x + px;
    const y = this.port.y + py;
    const row = rowAt(this.level, x, y);
    const node = row && row.block >= 0 && row.open && y >= headAt(row, this.port.y) + HEAD ? hitIn(this.owner.sketch(row), (x - row.bx) / this.zoom, (y - row.by) / this.zoom, 5 / this.zoom) : null;
    if (node?.kind === "node") return node;
    const line = this.owner.line(x, y);
    if (line || !row) return line;
    if (y < headAt(row, this.port.y) + HEAD) {
      const cells = this.owner.cells(row);
      const { x: from, cell } = stripOf(row, cells, this.port);
      return row.block < 0 && x >= from && x < from + cells * cell ? { kind: "cell", row, cell: Math.floor((x - from) / cell) } : { kind: "head", row };
    }
    return node;
  }

  #map() { return mini(this.level, MINI, this.port.h - 12); }

  #resize(): void {
    const { clientWidth: w, clientHeight: h } = this.root;
    if (!w || !h) return;
    this.#wide = w >= MINI_FROM;
    this.port = { ...this.port, w: this.#wide && !this.#snug ? w - MINI - 12 : w, h };
    this.#ratio = 0;
    if (this.#snug) this.fit();
    else this.relay();
    this.owner.settled();
  }

  /** Lay out again after a fold or a resize. The top row keeps its position. */
  relay(anchor: Anchor | null = this.#top()): void {
    const { port } = this;
    this.level = this.owner.lay(this.zoom, port.w);
    this.port = clampPort((anchor && keep(anchor, this.level, this.zoom, port)) ?? port, this.level);
    this.soon();
  }

  #top(): Anchor | null {
    const { port } = this;
    const row = this.level.rows.find((r) => r.block >= 0 && r.y >= port.y && r.y < port.y + port.h) ?? this.level.rows.find((r) => r.block >= 0 && r.y + r.h > port.y);
    return row ? anchorAt(row, port, this.zoom, row.bx - port.x, row.y - port.y) : null;
  }

  /** Keep a small drawing as large as fits, until somebody zooms. */
  set small(small: boolean) {
    this.#small = this.#snug = small;
    this.#resize();
  }

  zoomTo(zoom: number, sx = this.port.w / 2, sy = this.port.h / 2): void {
    if (this.#snug) {
      this.#snug = false;
      this.#resize();
    }
    this.#zoom(zoom, sx, sy);
  }

  #zoom(zoom: number, sx = this.port.w / 2, sy = this.port.h / 2): void {
    const to = Math.max(ZOOMS.least, Math.min(ZOOMS.most, zoom));
    const row = rowAt(this.level, this.port.x + sx, this.port.y + sy);
    const anchor = row ? anchorAt(row, this.port, this.zoom, sx, sy) : this.#top();
    this.zoom = to;
    say(this.#said, `${Math.round(100 * to)} %`);
    this.relay(anchor);
  }

  /** Fit the present block, or else everything that is open. */
  fit(): void {
    if (this.#small && !this.#snug) return void (this.small = true);
    const { port, owner } = this;
    const row = owner.fits();
    this.#zoom(Math.max(this.#small ? LEGIBLE : 0, fit(row ? (zoom) => owner.lay(zoom, 0).rows.find((r) => r.block === row.block)! : (zoom) => owner.lay(zoom, port.w), port)));
    const now = row && this.level.rows.find((r) => r.block === row.block);
    if (now) this.#go({ ...port, x: now.x, y: now.y });
  }

  pan(dx: number, dy: number): boolean { return this.#go({ ...this.port, x: this.port.x + dx, y: this.port.y + dy }); }

  #go(port: Port): boolean {
    const to = clampPort(port, this.level);
    if (to.x === this.port.x && to.y === this.port.y) return false;
    this.port = to;
    this.soon();
    return true;
  }

  reveal(rect: Rect): void { this.#go(show(this.port, rect, rect.y > HEAD ? HEAD : 0)); }

  /** The rectangle of a node, or of the head of its row, in px of the level. */
  rect(row: Row, node = -1): Rect {
    const box = row.open && row.block >= 0 && node >= 0 ? boxOf(this.owner.sketch(row), node) : undefined;
    if (!box) return { x: row.x, y: row.y, w: Math.min(row.w, this.port.w - 30), h: HEAD };
    const [x, y, w, h] = box;
    return { x: row.bx + x * this.zoom, y: row.by + y * this.zoom, w: w * this.zoom, h: h * this.zoom };
  }

  look(): void {
    this.#painter = null;
    this.soon();
  }

  soon(): void { this.#frame ||= requestAnimationFrame(() => this.draw()); }

  draw(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { port, level, zoom } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const fresh = !this.#painter || ratio !== this.#ratio;
    const map = this.#map();
    if (fresh) {
      sized(this.canvas, port.w, port.h, ratio, { alpha: false });
      sized(this.#mini, MINI, Math.max(1, port.h - 12), ratio);
      set(this.canvas, "width", `${port.w}px`);
      set(this.#mini, "width", `${MINI}px`);
    }
    this.#ratio = ratio;
    const context = this.canvas.getContext("2d", { alpha: false });
    const small = this.#mini.getContext("2d");
    if (!context || !small) return;
    const own = this.owner.paint(level);
    this.canvas.hidden = !own;
    if (!own) return;
    this.#painter ??= new Painter(context, this.store, new Inks(this.root));
    const painted: Painted = { ...own, level, port, zoom };
    this.#painter.paint(painted);
    const whole = level.h <= port.h && level.w <= port.w;
    this.#mini.hidden = whole || !this.#wide || this.#snug;
    if (!this.#mini.hidden) paintMini(small, this.#painter, painted, map, windowOf(map, port), { w: MINI, h: port.h - 12 });
    this.#rest.start(SETTLE, () => this.owner.settled());
  }
}
