// A graph as a column of at most ten cards (blocks, and repeated layers as one card), its blocks with the nodes and values of their boxes, lines
// and ends; and its visible part: pan, zoom, fit, minimap, hit tests, arrow keys. Positions depend on the zoom, since heads keep their size.
import { ensure } from "./arrays.js";
import { bytes, count, plural } from "./format.js";
import { key, missedByNode } from "./evidence.js";
import { cacheOf, outcome, type State, type StateWords, type Trace } from "./replay.js";
import type { Block, Drawing, Graph, Payload } from "./wire.js";
import type { Lit } from "./select.js";

/** One block, the layers of a stack, or consecutive blocks; one member is shown at a time. */
export interface Card { title: string; stack: string; members: Member[] }
interface Member { label: string; blocks: number[] }

export const MOST_CARDS = 10;
const MOST_STACKS = 6;

export function cardsOf(g: Graph): Card[] {
  const numbers = new Map<string, Set<number>>();
  for (const { stack } of g.blocks) if (stack) ensure(numbers, stack[0], () => new Set()).add(stack[1]);
  // only the largest stacks become cards
  const stacks = new Set([...numbers].filter(([, n]) => n.size > 1).sort((a, b) => b[1].size - a[1].size).slice(0, MOST_STACKS).map(([name]) => name));
  const cards: Card[] = [];
  const known = new Map<string, Card>();
  g.blocks.forEach(({ title, stack }, b) => {
    if (!stack || !stacks.has(stack[0])) return void cards.push({ title: title || "graph", stack: "", members: [{ label: "", blocks: [b] }] });
    const [name, label] = [stack[0], String(stack[1])];
    const { members } = ensure(known, name, () => cards[cards.push({ title: `${name} × ${numbers.get(name)!.size}`, stack: name, members: [] }) - 1]);
    const member = members.find((m) => m.label === label);
    if (member) member.blocks.push(b);
    else members.push({ label, blocks: [b] });
  });
  for (const { members } of known.values()) members.sort((a, b) => Number(a.label) - Number(b.label));
  for (let size = 2; cards.length > MOST_CARDS && size <= g.blocks.length; size++) {
    const joined = join(cards, size);
    if (joined.length <= MOST_CARDS || size === g.blocks.length) return joined;
  }
  return cards;
}

/** Join consecutive blocks into cards of at most `size`. */
function join(cards: Card[], size: number): Card[] {
  const joined: Card[] = [];
  let first = 0;
  for (const card of cards) {
    const last = joined[joined.length - 1];
    if (!card.stack && last && !last.stack && last.members.length < size) last.members.push({ ...card.members[0], label: String(last.members.length + 1) });
    else joined.push({ ...card, members: card.members.map((m) => (card.stack ? m : { ...m, label: "1" })) });
  }
  for (const card of joined) {
    if (!card.stack && card.members.length > 1) card.title = `blocks ${first + 1}–${first + card.members.length}`;
    for (const m of card.members) first += m.blocks.length;
  }
  return joined;
}

/** A head and its body, in px at a zoom. `block` -1: a card with members; `h` includes them. */
export interface Row { card: number; member: number; block: number; x: number; y: number; w: number; h: number; open: boolean; bx: number; by: number }
export interface Level { rows: Row[]; w: number; h: number }
/** `shown`: the member of a card that is shown, "all" side by side, or none. */
export interface Folds { open(block: number): boolean; shown(card: number): number | "all" | null }

export const HEAD = 28;
export const CARDS_ONLY = 0.2; // at this zoom and below there are no bodies
const GAP = 6, PAD = 8, NOTE = 10;

export function arrange(cards: Card[], g: Graph, drawings: Drawing[], folds: Folds, zoom: number, room: number): Level {
  const rows: Row[] = [];
  const body = (b: number) => (zoom > CARDS_ONLY && folds.open(b) ? drawings[g.blocks[b].drawing] : undefined);
  const widest = (blocks: number[]) => Math.max(0, ...blocks.map((b) => (body(b)?.w ?? 0) * zoom)) + 2;
  const lists = cards.map((c, i) => {
    const shown = folds.shown(i);
    return c.members.length === 1 || shown === "all" ? c.members : shown === null ? [] : [c.members[shown]];
  });
  const inner = (i: number) => cards[i].members.length > 1;
  const column = (i: number, m: Member) => Math.max(inner(i) && lists[i].length > 1 ? 250 : 0, widest(m.blocks));
  const sums = lists.map((list, i) => list.reduce((w, m) => w + column(i, m) + GAP, -GAP) + (inner(i) ? 2 * PAD : 0));
  const w = Math.max(room, ...sums);
  let y = 0;
  const block = (card: number, member: number, b: number, x: number, top: number, width: number): number => {
    const drawing = body(b);
    const h = HEAD + (drawing ? drawing.h * zoom : 0);
    rows.push({ card, member, block: b, x, y: top, w: width, h, open: !!drawing, bx: x + Math.max(0, (Math.min(width, cards[card].members.length > 1 ? width : room) - (drawing?.w ?? 0) * zoom) / 2), by: top + HEAD });
    return h;
  };
  cards.forEach((card, i) => {
    if (!inner(i)) {
      y += block(i, 0, card.members[0].blocks[0], 0, y, w) + GAP;
      return;
    }
    const head: Row = { card: i, member: -1, block: -1, x: 0, y, w, h: HEAD, open: lists[i].length > 0, bx: 0, by: 0 };
    rows.push(head);
    const spare = lists[i].length ? Math.max(0, w - sums[i]) / lists[i].length : 0;
    let x = PAD;
    let end = y + HEAD;
    for (const m of lists[i]) {
      const width = column(i, m) + spare;
      let top = y + HEAD;
      for (const b of m.blocks) top += block(i, card.members.indexOf(m), b, x, top, width) + GAP;
      end = Math.max(end, top);
      x += width + GAP;
    }
    head.h = end - y + (lists[i].length ? 2 : 0);
    y += head.h + GAP;
  });
  return { rows, w, h: Math.max(0, y - GAP) };
}

/** The top of a drawn head: it sticks to the top of the port while its row is visible; heads of cards scroll away. */
export function headAt(row: Row, top: number): number { return row.block < 0 ? row.y : Math.max(row.y, Math.min(top, row.y + row.h - HEAD)); }

/** The visible part of a head. */
export function headSpan(row: Row, port: { x: number; w: number }): [from: number, to: number] {
  return [Math.max(row.x, port.x), Math.min(row.x + row.w, port.x + port.w)];
}

/** The innermost row under a point. */
export function rowAt({ rows }: Level, x: number, y: number): Row | null {
  for (let i = rows.length - 1; i >= 0; i--) {
    const r = rows[i];
    if (x >= r.x && x <= r.x + r.w && y >= r.y && y <= r.y + r.h) return r;
  }
  return null;
}

/** Texts in heads. */
export interface BlockFacts { block(row: Row): { about: string; missed: string }; card(row: Row): string }
/** `alike`: the blocks of a stack with the same drawing, including this one. */
export function blockFacts(t: Trace, graph: number, block: number, alike: number[], stack: string): { about: string; missed: string } {
  const { blocks } = t.p.graphs[graph];
  const { nodes } = blocks[block];
  const all = alike.length > 1 ? alike : [block];
  const many = all.length > 1 ? `× ${all.length} ${stack.split(" ").pop()}s alike · ` : blocks[block].alike > 1 ? `${blocks[block].alike} alike · ` : "";
  const each = nodes.flatMap((node) => missedByNode(t).get(key({ graph, node })) ?? []);
  const kinds = each.length;
  const about = many + plural(nodes.length, "op");
  if (!kinds) return { about, missed: "" };
  const here = all.length > 1 ? `this ${stack.split(" ").pop()}: ` : ""; // what is summed
  const total = each.reduce((sum, m) => sum + m.times, 0);
  const sum = bytes(each.reduce((b, m) => b + m.bytes, 0));
  const often = each[0].times;
  // a product only if all nodes were missed equally often
  if (each.some((m) => m.times !== often)) return { about, missed: `${here}${count(kinds)} missed, ${count(total)} times = ${sum}` };
  const words = often > t.p.runs.length ? "times" : t.p.runs.some((r) => r.token !== null) ? "tokens" : "runs";
  return { about, missed: here + [`${count(kinds)} missed`, ...(often > 1 ? [`${count(often)} ${words}`] : [])].join(" × ") + ` = ${sum}` };
}

export interface Port { x: number; y: number; w: number; h: number } // left top corner in the level, and size
export interface Rect { x: number; y: number; w: number; h: number }
/** A place that keeps its screen position when the level is laid out again. */
export interface Anchor { row: Row; x: number; y: number; zoom: number; at: [number, number] }

export const ZOOMS = { least: CARDS_ONLY, most: 3, step: 1.25 };
const EDGE = 12;

/** Clamp the port; a smaller level is centred at the top. */
export function clampPort(port: Port, level: { w: number; h: number }): Port {
  const axis = (at: number, size: number, room: number, middle: boolean) =>
    size <= room ? (middle ? (size - room) / 2 : 0) : Math.max(0, Math.min(at, size - room));
  return { ...port, x: axis(port.x, level.w, port.w, true), y: axis(port.y, level.h, port.h, false) };
}

export function anchorAt(row: Row, port: Port, zoom: number, sx: number, sy: number): Anchor {
  return { row, x: (port.x + sx - row.bx) / zoom, y: port.y + sy - row.y, zoom, at: [sx, sy] };
}

/** The port that keeps an anchor on the screen; null if its row is gone. */
export function keep(anchor: Anchor, level: Level, zoom: number, port: Port): Port | null {
  const { row, at } = anchor;
  const now = level.rows.find((r) => r.block === row.block && r.card === row.card && r.member === row.member);
  if (!now) return null;
  const below = anchor.y - HEAD;
  const y = row.open && now.open && row.block >= 0 && below > 0 ? HEAD + (below / anchor.zoom) * zoom : Math.min(anchor.y, now.h);
  return { ...port, x: now.bx + anchor.x * zoom - at[0], y: now.y + y - at[1] };
}

/** The port moved just enough to show a rectangle. `above`: px at the top that hide it. */
export function show(port: Port, { x, y, w, h }: Rect, above = 0): Port {
  const axis = (at: number, room: number, from: number, size: number, share: number, hidden: number) => {
    if (from >= at + EDGE + hidden && from + size <= at + room - EDGE) return at;
    return from - hidden - Math.max(EDGE, (room - hidden - size) * share);
  };
  return { ...port, x: axis(port.x, port.w, x, w, 0.5, 0), y: axis(port.y, port.h, y, h, 0.38, above) };
}

/** The largest zoom, at most `most`, at which the layout fits the port. */
export function fit(lay: (zoom: number) => { w: number; h: number }, port: Port, most = 1): number {
  let low = ZOOMS.least + 0.02; // bodies are still drawn
  let high = most;
  for (let i = 0; i < 12; i++) {
    const middle = (low + high) / 2;
    const level = lay(middle);
    if (level.w <= port.w + 1 && level.h <= port.h) low = middle;
    else high = middle;
  }
  const whole = lay(most);
  return whole.w <= port.w + 1 && whole.h <= port.h ? most : low;
}

export function distance(points: number[], x: number, y: number): number {
  let best = Infinity;
  for (let i = 0; i + 3 < points.length; i += 2) {
    const [ax, ay, bx, by] = [points[i], points[i + 1], points[i + 2], points[i + 3]];
    const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
    const k = Math.max(0, Math.min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length));
    best = Math.min(best, Math.hypot(x - ax - k * (bx - ax), y - ay - k * (by - ay)));
  }
  return best;
}

/** The smallest rectangle around a line. */
export function bounds(points: number[]): { x0: number; y0: number; x1: number; y1: number } {
  const [xs, ys] = [points.filter((_, i) => i % 2 === 0), points.filter((_, i) => i % 2)];
  return { x0: Math.min(...xs), y0: Math.min(...ys), x1: Math.max(...xs), y1: Math.max(...ys) };
}

/** Where a line that leaves a rectangle leaves it last, and in which direction; null: it stays inside or outside. `swapped`: points are pairs of y and x. */
export function crossing(points: number[], { x, y, w, h }: Rect, swapped = false): { x: number; y: number; turn: number } | null {
  let found = null;
  for (let i = 0; i + 3 < points.length; i += 2) {
    const [ax, ay, bx, by] = swapped ? [points[i + 1], points[i], points[i + 3], points[i + 2]] : points.slice(i, i + 4);
    let [from, to] = [0, 1];
    for (const [at, go, least, most] of [[ax, bx - ax, x, x + w], [ay, by - ay, y, y + h]]) {
      if (go === 0) [from, to] = at < least || at > most ? [1, 0] : [from, to];
      else [from, to] = [Math.max(from, Math.min((least - at) / go, (most - at) / go)), Math.min(to, Math.max((least - at) / go, (most - at) / go))];
    }
    if (from <= to && to < 1) found = { x: ax + (bx - ax) * to, y: ay + (by - ay) * to, turn: Math.atan2(by - ay, bx - ax) };
  }
  return found;
}

/** One small drawing, centred in the port, under the head of its block. */
export function alone({ w, h }: { w: number; h: number }, block: number, [card, member]: [number, number], zoom: number, port: Port): Level {
  const height = HEAD + h * zoom + NOTE;
  const [wide, high] = [Math.max(port.w, w * zoom + 2), Math.max(port.h, height)];
  return { rows: [{ card, member, block, x: 0, y: 0, w: wide, h: high, open: true, bx: (wide - w * zoom) / 2, by: HEAD + (high - height) / 2 }], w: wide, h: height };
}

/** The state of the shown drawings; `steps`: by node of the frame. */
export interface Scene {
  states: State[]; steps: Int32Array; cursor: number; lit: Lit;
  captions?: string[]; // second lines of the boxes, in place of shapes
  words?: StateWords;
}
/** `text` and `look`: of a line whose drawing says them. */
export interface Line { from: number; to: number; points: number[]; value: number; x0: number; y0: number; x1: number; y1: number; text?: string; look?: LineLook }
export interface End { box: number; value: number; x: number; y: number; ix: number; iy: number; cache: number }
type Hit = { kind: "node"; node: number } | { kind: "value"; value: number } | null;

/** `pills`: the values of the first boxes; `names`, `under`, `note`: texts of boxes, and below them, that the drawing says. */
export interface Sketch { nodes: number[]; boxes: Drawing["boxes"]; pills: number[]; lines: Line[]; ends: End[]; names?: string[]; under?: string[]; note?: string; h?: number }

const known = new WeakMap<Block, Sketch>();
export function sketchOf(p: Payload, g: Graph, block: Block): Sketch { return ensure(known, block, () => make(p, g, block, p.drawings[block.drawing])); }

function make(p: Payload, g: Graph, { nodes }: Block, { boxes, edges, stubs, pills = [] }: Drawing): Sketch {
  const first = pills.length;
  const slots = (box: number) => {
    const [, , , inputs, , captures] = g.nodes[nodes[box - first]];
    return [...inputs, ...captures]; // captures stand behind the inputs
  };
  const values = pills.map(([box, slot]) => slots(box)[slot] ?? -1);
  const lines = edges.map(([from, to, points]) => {
    const made = from < first ? [values[from]] : g.nodes[nodes[from - first]][4];
    const reads = slots(to);
    return { from, to, points, value: made.find((v) => v >= 0 && reads.includes(v)) ?? -1, ...bounds(points) };
  });
  const ends = stubs.map(([box, side, x, y, slot]) => {
    const value = (side === "in" ? slots(box) : g.nodes[nodes[box - first]][4])[slot] ?? -1;
    const [bx, by, w, h] = boxes[box];
    return { box, value, x, y, ix: Math.max(bx + 4, Math.min(x, bx + w - 4)), iy: side === "in" ? by : by + h, cache: cacheOf(p, g.values[value]) };
  });
  return { nodes, boxes, pills: values, lines, ends };
}

export function boxOf(s: Sketch, node: number): Drawing["boxes"][number] | undefined {
  const at = s.nodes.indexOf(node);
  return at < 0 ? undefined : s.boxes[at + s.pills.length];
}

/** The node or value at a point; `reach`: tolerance of lines. */
export function hitIn(s: Sketch, x: number, y: number, reach: number): Hit {
  for (let i = s.boxes.length - 1; i >= 0; i--) {
    const [bx, by, w, h] = s.boxes[i];
    if (x < bx || x > bx + w || y < by || y > by + h) continue;
    return i < s.pills.length ? { kind: "value", value: s.pills[i] } : { kind: "node", node: s.nodes[i - s.pills.length] };
  }
  const end = s.ends.find((e) => Math.hypot(e.x - x, e.y - y) < 2 * reach);
  if (end) return { kind: "value", value: end.value };
  let best = reach;
  let value = -1;
  for (const line of s.lines) {
    if (x < line.x0 - reach || x > line.x1 + reach || y < line.y0 - reach || y > line.y1 + reach) continue;
    const d = distance(line.points, x, y);
    if (d < best) [best, value] = [d, line.value];
  }
  return value < 0 ? null : { kind: "value", value };
}

/** `way`: where a buffer goes. */
export type LineLook = "future" | "past" | "ready" | "own" | "copied" | "now" | "lit" | "way";

/** The look of a line; copied values come first, then values taken over in place. */
export function lineLook(p: Payload, g: Graph, s: Sketch, line: Line, { states, steps, cursor }: Scene, chosen: number): LineLook {
  if (line.value >= 0 && line.value === chosen) return "lit";
  if (line.look) return line.look;
  const first = s.pills.length;
  const from = s.nodes[line.from - first];
  const to = s.nodes[line.to - first];
  const ran = (n: number) => steps[n] >= 0 && steps[n] <= cursor;
  if (to === undefined) return "past";
  if (!ran(to)) return from === undefined || ran(from) ? "ready" : "future";
  const step = steps[to];
  const inputs = g.nodes[to][3];
  if (p.step.copied[step] > 0) {
    for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) if (inputs[p.block.input[k]] === line.value) return "copied";
  }
  const taken = p.step.taken[step] ?? 0;
  if (p.step.flags[step] & p.flag.inPlace && inputs.some((v, slot) => (taken >> slot) & 1 && v === line.value)) return "own";
  return states[to] === "running" ? "now" : "past";
}

/** The outcome of the op that just ran; "" for others, and in plans. */
export function ended(p: Payload, { states, steps }: Scene, node: number): State | "" {
  const flags = states[node] === "running" ? p.step.flags[steps[node]] : undefined;
  return flags === undefined ? "" : outcome(p, flags);
}

/** `node` -1: the head of a block, or of a card if `block` is -1, too. */
export interface Place { card: number; block: number; node: number }

export function step(rows: Row[], sketch: (row: Row) => Sketch, from: Place | null, key: string): Place | null {
  const at = from ? rows.findIndex((r) => r.block === from.block && r.card === from.card) : -1;
  const head = (i: number): Place | null => {
    const r = rows[Math.max(0, Math.min(i, rows.length - 1))];
    return r ? { card: r.card, block: r.block, node: -1 } : null;
  };
  if (!from || at < 0) return head(0);
  const row = rows[at];
  const inside = row.open && row.block >= 0 ? sketch(row) : null;
  const to = (node: number): Place => ({ ...from, node });
  const down = key === "ArrowDown";
  if (from.node < 0) {
    if (down && inside) {
      const place = (i: number) => inside.boxes[i + inside.pills.length];
      return to(inside.nodes[nearest(inside.nodes.map((_, i) => i), (i) => place(i)[1] * 1000 + place(i)[0])] ?? -1);
    }
    return key === "ArrowUp" ? head(at - 1) : down ? head(at + 1) : from;
  }
  if (!inside) return head(at);
  const first = inside.pills.length;
  const box = inside.nodes.indexOf(from.node) + first;
  const middle = (i: number) => inside.boxes[i][0] + inside.boxes[i][2] / 2;
  if (key === "ArrowUp" || down) {
    const ends = inside.lines.filter((l) => (down ? l.from : l.to) === box).map((l) => (down ? l.to : l.from)).filter((i) => i >= first);
    const next = nearest(ends, (i) => Math.abs(middle(i) - middle(box)));
    if (next >= 0) return to(inside.nodes[next - first]);
    return down ? head(at + 1) : to(-1);
  }
  const [x, y, , h] = inside.boxes[box];
  const sign = key === "ArrowRight" ? 1 : -1;
  const beside = inside.nodes.map((_, i) => i + first).filter((i) => sign * (inside.boxes[i][0] - x) > 0 && Math.abs(inside.boxes[i][1] - y) < 1.5 * h);
  const next = nearest(beside, (i) => Math.abs(inside.boxes[i][0] - x) + 3 * Math.abs(inside.boxes[i][1] - y));
  return next >= 0 ? to(inside.nodes[next - first]) : from;
}

function nearest(list: number[], far: (i: number) => number): number {
  return list.reduce((best, i) => (best < 0 || far(i) < far(best) ? i : best), -1);
}
