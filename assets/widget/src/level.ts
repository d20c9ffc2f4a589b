// A graph as a column of at most ten cards: blocks, layers that repeat as one card, and, where there are no modules, blocks
// that follow each other. Where the cards lie depends on the zoom, as heads keep their size; both are pure.
import type { Drawing, Graph } from "./wire.js";

/** One block, several layers of a stack, or several blocks in a row; members are looked at one at a time. */
export interface Card { title: string; stack: string; members: Member[] }
export interface Member { label: string; blocks: number[] }

export const MOST_CARDS = 10;
const MOST_STACKS = 6;

export function cardsOf(g: Graph): Card[] {
  const numbers = new Map<string, Set<number>>();
  for (const { stack } of g.blocks) {
    if (!stack) continue;
    const known = numbers.get(stack[0]);
    if (known) known.add(stack[1]);
    else numbers.set(stack[0], new Set([stack[1]]));
  }
  // the largest stacks, where there are so many that each as a card would be too much
  const stacks = new Set([...numbers].filter(([, n]) => n.size > 1).sort((a, b) => b[1].size - a[1].size).slice(0, MOST_STACKS).map(([name]) => name));
  const cards: Card[] = [];
  const known = new Map<string, Card>();
  g.blocks.forEach(({ title, stack }, b) => {
    if (!stack || !stacks.has(stack[0])) return void cards.push({ title: title || "graph", stack: "", members: [{ label: "", blocks: [b] }] });
    let card = known.get(stack[0]);
    if (!card) {
      known.set(stack[0], (card = { title: `${stack[0]} × ${numbers.get(stack[0])!.size}`, stack: stack[0], members: [] }));
      cards.push(card);
    }
    const member = card.members.find((m) => m.label === String(stack[1]));
    if (member) member.blocks.push(b);
    else card.members.push({ label: String(stack[1]), blocks: [b] });
  });
  for (const { members } of known.values()) members.sort((a, b) => Number(a.label) - Number(b.label));
  for (let size = 2; cards.length > MOST_CARDS && size <= g.blocks.length; size++) {
    const joined = join(cards, size);
    if (joined.length <= MOST_CARDS || size === g.blocks.length) return joined;
  }
  return cards;
}

/** Blocks that follow each other as one card, at most `size` of them. */
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

/** A head with what lies under it, in px at a zoom. `block` -1: of a card with members; `h` is that of all of it then. */
export interface Row { card: number; member: number; block: number; x: number; y: number; w: number; h: number; open: boolean; bx: number; by: number }
export interface Level { rows: Row[]; w: number; h: number }
/** `shown`: which member of a card, "all" side by side, or none. */
export interface Folds { open(block: number): boolean; shown(card: number): number | "all" | null }

export const HEAD = 28;
export const CARDS_ONLY = 0.2; // at this zoom and below there are no bodies
const GAP = 6, PAD = 8;

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
    // members side by side share the room that is left
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

/** Where the head of a row is drawn: at the top of the port as long as the row is there. Those of cards scroll away. */
export function headAt(row: Row, top: number): number {
  return row.block < 0 ? row.y : Math.max(row.y, Math.min(top, row.y + row.h - HEAD));
}

/** From where to where a head is drawn: the part of its row that the port shows. */
export function headSpan(row: Row, port: { x: number; w: number }): [from: number, to: number] {
  return [Math.max(row.x, port.x), Math.min(row.x + row.w, port.x + port.w)];
}

/** The row that is found under a point: the innermost. */
export function rowAt({ rows }: Level, x: number, y: number): Row | null {
  for (let i = rows.length - 1; i >= 0; i--) {
    const r = rows[i];
    if (x >= r.x && x <= r.x + r.w && y >= r.y && y <= r.y + r.h) return r;
  }
  return null;
}
