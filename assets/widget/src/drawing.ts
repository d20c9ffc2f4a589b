// One block's drawing as an <svg>: boxes, poly-line edges and the short ends of values from elsewhere.
// It is made once; afterwards only attributes change, and only those of nodes whose state changed.
import { el, mark, say, svg } from "./dom.js";
import { opName, shape, shortName } from "./format.js";
import { outcome, type State, type StateWords } from "./replay.js";
import type { Lit } from "./select.js";
import type { Store } from "./store.js";
import type { Block, Codes, Drawing } from "./wire.js";

/** Letters of the states that only a planner has. */
const PLANNED: Record<string, string> = { path: "↓", listed: "✓" };

/** Letter of a state, so that no state is told by colour alone. U+FE0E asks for the plain form of a sign. */
export function letter({ state: states }: Codes, state: State): string {
  const found = PLANNED[state] ?? states.find(([name]) => name === state)?.[1] ?? "";
  return found.replace(/[▶⚠✓]/, "$&\uFE0E");
}

/** Width of text as it will be drawn; a canvas measures without touching the page. */
export class Ruler {
  #context = document.createElement("canvas").getContext("2d");
  #known = new Map<string, number>();
  constructor(private family: string) {}

  width(text: string, font: string): number {
    const key = font + text;
    let w = this.#known.get(key);
    if (w === undefined) {
      if (!this.#context) return text.length * 6.5;
      this.#context.font = `${font} ${this.family}`;
      this.#known.set(key, (w = this.#context.measureText(text).width));
    }
    return w;
  }

  /** The text, or as much of it as fits before an ellipsis; "" when not even two letters do. */
  fit(text: string, font: string, room: number): string {
    if (this.width(text, font) <= room) return text;
    let low = 0;
    let high = text.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.width(`${text.slice(0, middle)}…`, font) <= room) low = middle;
      else high = middle - 1;
    }
    return low < 2 ? "" : `${text.slice(0, low)}…`;
  }
}

/** A poly-line with its corners rounded a little, never more than half of the shorter leg. */
export function path(points: number[]): string {
  let d = `M${points[0]} ${points[1]}`;
  for (let i = 2; i + 3 < points.length; i += 2) {
    const [x0, y0, x, y, x1, y1] = points.slice(i - 2, i + 4);
    const before = Math.hypot(x - x0, y - y0) || 1;
    const after = Math.hypot(x1 - x, y1 - y) || 1;
    const r = Math.min(9, before / 2, after / 2);
    const at = (k: number, ax: number, ay: number) => `${(x + ((ax - x) * r) / k).toFixed(1)} ${(y + ((ay - y) * r) / k).toFixed(1)}`;
    d += `L${at(before, x0, y0)}Q${x} ${y} ${at(after, x1, y1)}`;
  }
  return `${d}L${points[points.length - 2]} ${points[points.length - 1]}`;
}

/** What the drawings of a graph show; `steps` tells which step ran each node in the shown frame. */
export interface Scene {
  states: State[]; steps: Int32Array; cursor: number; lit: Lit; newFrame: boolean;
  captions?: string[]; // second lines of the boxes, in place of shapes
  words?: StateWords;
}
interface Box { g: SVGGElement; mark: SVGTextElement; second: SVGTextElement; shape: SVGTextElement; room: number; state: State | ""; edges: number[]; name: string }
const OP = "600 12px", SMALL = "400 10.5px";

export class DrawingView {
  readonly root: SVGSVGElement;
  #boxes: Box[] = [];
  #edges: { el: SVGPathElement; from: number; to: number; shown: string }[] = [];

  constructor(private store: Store, private graph: number, private block: Block, private drawing: Drawing, private ruler: Ruler) {
    const lines = svg("g", { class: "kv-edges" });
    const stubs = svg("g", { class: "kv-stubs" });
    const boxes = svg("g");
    drawing.edges.forEach(([from, to, points]) => {
      const line = svg("path", { d: path(points), "data-edge": "future" });
      lines.append(line);
      this.#edges.push({ el: line, from, to, shown: "future" });
    });
    block.nodes.forEach((node, i) => boxes.append(this.#box(node, i)));
    this.#edges.forEach((e, i) => { this.#boxes[e.from]?.edges.push(i); this.#boxes[e.to]?.edges.push(i); });
    for (const stub of drawing.stubs) stubs.append(this.#stub(stub));
    this.root = svg("svg", {
      viewBox: `0 0 ${drawing.w} ${drawing.h}`, width: drawing.w, height: drawing.h, class: "kv-drawing",
      role: "graphics-document", "aria-label": block.title,
    }, lines, stubs, boxes);
    this.root.style.setProperty("--kv-w", `${drawing.w}px`);
  }

  #box(node: number, i: number): SVGGElement {
    const g = this.store.t.p.graphs[this.graph];
    const [name, op] = g.nodes[node];
    const [x, y, w, h] = this.drawing.boxes[i];
    const pad = 7;
    const type = opName(op);
    const two = h >= 30;
    const line = two ? y + h / 2 - 4 : y + h / 2 + 4;
    const letter = svg("text", { class: "kv-mk", x: x + w - 6, y: line, "text-anchor": "end" });
    const room = w - 2 * pad - 13; // the letter stands at the right
    // in a wide font a type may miss by little: better squeezed than cut
    const squeeze = this.ruler.width(type, OP) > room && this.ruler.width(type, OP) < room * 1.14;
    const opText = squeeze ? type : this.ruler.fit(type, OP, room) || type.slice(0, 3);
    const left = room - this.ruler.width(opText, OP) - 5;
    // a name is either told whole or, if some of it can be read, cut
    const full = shortName(g, node);
    const cut = this.ruler.fit(full, SMALL, left);
    const short = cut === full || cut.length > 5 ? cut : "";
    const label = svg("text", { class: "kv-op", x: x + pad, y: line, textLength: squeeze ? room : null, lengthAdjust: squeeze ? "spacingAndGlyphs" : null }, opText);
    if (short) label.append(svg("tspan", { class: "kv-short", dx: 5 }, short));
    const second = svg("text", { class: "kv-mk", x: x + w - 6, y: y + h / 2 + 11, "text-anchor": "end" });
    const info = svg("text", { class: "kv-shape", x: x + pad, y: y + h / 2 + 11 });
    const group = svg("g", {
      class: "kv-node", "data-kv": "graph-node", "data-node": node, "data-graph": this.graph, "data-state": "waiting",
      role: "graphics-symbol", "aria-label": `${op} ${name}`,
    }, svg("title", {}, `${op}  ${name}`), svg("rect", { x, y, width: w, height: h, rx: 5 }), label, letter);
    if (two) group.append(info, second);
    this.#boxes.push({ g: group, mark: letter, second, shape: info, room: w - 2 * pad, state: "", edges: [], name: `${op} ${name}` });
    return group;
  }

  #stub([box, side, x, y, slot]: [number, "in" | "out", number, number, number]): SVGGElement {
    const g = this.store.t.p.graphs[this.graph];
    const node = g.nodes[this.block.nodes[box]];
    const value = (side === "in" ? [...node[3], ...node[5]] : node[4])[slot] ?? -1; // captures stand behind the inputs
    const [bx, by, w, h] = this.drawing.boxes[box];
    const name = g.values[value] ?? "";
    const cache = this.store.t.p.caches.findIndex((c) => c.input === name || c.output === name);
    const inside = Math.max(bx + 4, Math.min(x, bx + w - 4));
    return svg("g", { class: "kv-stub", "data-value": value, "data-cache": cache < 0 ? null : cache },
      svg("title", {}, side === "in" ? `from elsewhere: ${name}` : `used elsewhere: ${name}`),
      svg("path", { d: `M${x} ${y}L${inside} ${side === "in" ? by : by + h}` }),
      svg("circle", { cx: x, cy: y, r: cache < 0 ? 2 : 4 }));
  }

  /** Show states by node of the graph. */
  sync(scene: Scene): void {
    const { states, steps, captions, newFrame } = scene;
    const { p } = this.store.t;
    const stale = new Set<number>();
    this.#boxes.forEach((box, i) => {
      const node = this.block.nodes[i];
      if (captions) say(box.shape, captions[node]);
      else if (newFrame) this.#shape(box, steps[node]);
      const state = states[node];
      if (state === box.state && state !== "running") return;
      box.state = state;
      mark(box.g, "data-state", state);
      mark(box.g, "aria-label", `${box.name}, ${scene.words?.[state] ?? p.codes.state.find(([name]) => name === state)?.[2]}`);
      const flags = state === "running" ? p.step.flags[steps[node]] ?? 0 : 0;
      say(box.mark, letter(p.codes, state));
      // what just ran shows both: that it ran, and below how it was decided
      say(box.second, state === "running" ? letter(p.codes, outcome(p, flags)) : "");
      for (const e of box.edges) stale.add(e);
    });
    if (newFrame) this.#edges.forEach((_, e) => stale.add(e));
    for (const e of stale) this.#edge(e, scene);
  }

  #shape(box: Box, step: number): void {
    const { p } = this.store.t;
    const first = step >= 0 ? p.step.out[step] : 0;
    const info = step >= 0 && p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    const versus = step >= 0 ? this.store.versus?.badge(this.store.t, step) : null;
    const names = this.store.versus?.names;
    const badge = versus && names ? `${names[0]} ${versus[0]} · ${names[1]} ${versus[1]}` : "";
    const short = this.ruler.width(badge, SMALL) > box.room && names ? `${names[0]} ≠ ${names[1]}` : badge;
    mark(box.shape, "data-versus", versus ? 1 : null);
    say(box.shape, this.ruler.fit(short || shape(info), SMALL, box.room));
    say(box.g.firstElementChild!, `${box.name}${info ? `\n${info}` : ""}${badge && `\n${badge}`}`);
  }

  #edge(at: number, { states, steps, cursor }: Scene): void {
    const edge = this.#edges[at];
    const from = this.block.nodes[edge.from];
    const to = this.block.nodes[edge.to];
    const ran = (n: number) => steps[n] >= 0 && steps[n] <= cursor;
    let kind = !ran(from) ? "future" : ran(to) ? "past" : "ready";
    if (ran(to)) {
      const { p } = this.store.t;
      const nodes = p.graphs[this.graph].nodes;
      const own = nodes[to][3].some((v, slot) => (p.step.taken[steps[to]] >> slot) & 1 && nodes[from][4].includes(v));
      if (own) kind = "own";
    }
    if (states[to] === "running") kind += " now";
    if (kind === edge.shown) return;
    edge.shown = kind;
    mark(edge.el, "data-edge", kind);
  }

  light(nodes: Set<number>, values: Set<number>): void {
    this.#boxes.forEach((box, i) => mark(box.g, "data-lit", nodes.has(this.block.nodes[i]) ? "1" : null));
    for (const stub of this.root.querySelectorAll<SVGGElement>(".kv-stub")) {
      mark(stub, "data-lit", values.has(Number(stub.dataset.value)) ? "1" : null);
    }
  }

  box(node: number): Element | null {
    return this.#boxes[this.block.nodes.indexOf(node)]?.g ?? null;
  }
}

/** A block with no drawing (its layout was given up): its nodes as a plain list. */
export function plainList(count: number): HTMLElement {
  return el("div.kv-plain", {}, `${count} ops, not drawn; see the table of steps`);
}
