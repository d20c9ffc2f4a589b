// What takes part in a step, as a small drawing: its op, what made its inputs, what still reads them, where its outputs go, and
// of the peak the largest buffers. All other ops of the block are left out.
import { ensure, idsOf, within } from "./arrays.js";
import { buffer, bytes, count, opLabel, plural, shape, shortValue, valueName } from "./format.js";
import { pairsOf } from "./evidence.js";
import { bounds, type Line, type LineLook, type Sketch } from "./level.js";
import { alive, cacheOf, capacity, opAt, type Place, placeFrom, rowsBefore, stepsOf, type Trace, valuesIn } from "./replay.js";
import { named } from "./select.js";

/** `under`: second lines of all boxes; `names`: of the first ones, which are values; `hidden`: ops of the block that are left out. */
export interface Around extends Sketch { w: number; h: number; block: number; names: string[]; under: string[]; hidden: number; said: string[]; note: string }

const MOST_READERS = 5, MOST_BUFFERS = 5;
const HIGH = 38, GAP = 26, RANK = 50, PAD = 14, EMPTY = 44, LETTER = 7.2; // px

interface Box { node: number; value: number; name: string; under: string; beside: Box | null; rank: number; x: number; w: number }
interface Link { from: Box; to: Box; value: number; text: string; look?: LineLook }

/** `peak`: draw what is alive at the step, too; `up`, `down`: how often what comes before, or after, all that is drawn is added. Null if the op is in no block. */
export function around(t: Trace, step: number, peak: boolean, up = 0, down = 0): Around | null {
  const { p, x } = t;
  const { frame, graph, g, node, op } = opAt(t, step);
  const index = x.graphs[graph];
  const block = index.block[node] ?? -1;
  if (block < 0) return null;
  const steps = stepsOf(t, frame);
  const boxes = new Map<string, Box>();
  const links: Link[] = [];
  const link = (from: Box, to: Box, value: number, text = "", look?: LineLook) => {
    const known = links.find((l) => l.from === from && l.to === to && l.value === value);
    if (!known) links.push({ from, to, value, text, look });
    else if (!known.text) [known.text, known.look] = [text, look];
  };
  const box = (key: string, made: () => Partial<Box>): Box => ensure(boxes, key, () => ({ node: -1, value: -1, name: "", under: "", beside: null, rank: 0, x: 0, w: 0, ...made() }));

  const lies = (value: number, cursor: number) => placeFrom(t, frame, value, cursor);
  const opBox = (n: number): Box => box(`op ${n}`, () => ({ node: n, name: opLabel(g, n), under: under(t, steps[n], n === node ? step : -1) }));
  const pill = (value: number, place: Place | null, output: boolean): Box => box(`value ${value} ${output}`, () => {
    const [name, under] = pillText(t, frame, value, place);
    return { value, name, under };
  });
  /** The box of an input of the graph; an earlier run that made the buffer stands beside it. */
  const given = (value: number, place: Place): Box => {
    const to = pill(value, place, false);
    if (place.from !== "bind") return to;
    const how = p.codes.binding[p.bind.how[place.entry]] ?? "";
    const before = idsOf(x.outs, place.storage).filter((o) => x.run[x.outStep[o]] < p.frame.run[frame] && x.outStep[o] < x.first[frame]);
    const made = [...before].reverse().find((o) => x.graphs[opAt(t, x.outStep[o]).graph].output[p.out.value[o]]) ?? before.at(-1);
    if (made === undefined) to.under = to.under.endsWith(how) ? to.under : [to.under, how].filter(Boolean).join(" · ");
    else {
      const maker = opAt(t, x.outStep[made]);
      const name = maker.graph === graph ? pillText(t, maker.frame, p.out.value[made], null)[0] : maker.op[0];
      const from = box(`made ${made}`, () => ({ value: p.out.value[made], name, under: p.runs[x.run[x.outStep[made]]]?.label ?? "", beside: to }));
      link(from, to, value, ["same buffer", how].filter(Boolean).join(", "), "way");
    }
    return to;
  };
  /** What made a value; if that is a view, the owner of the buffer stands beside it. */
  const source = (value: number): Box => {
    const maker = index.producer[value] ?? -1;
    const place = lies(value, p.steps);
    if (maker < 0 || steps[maker] < 0) return place ? given(value, place) : pill(value, null, false);
    const made = opBox(maker);
    // back through views of views
    let [at, views] = [value, 0];
    for (;;) {
      const place = lies(at, p.steps);
      const by = index.producer[at] ?? -1;
      if (by < 0 || place?.from !== "out" || p.codes.how[p.out.how[place.entry]] !== "view") break;
      const below = g.nodes[by][3].find((input) => input >= 0 && lies(input, steps[by] - 1)?.storage === place.storage);
      if (below === undefined) break;
      [at, views] = [below, views + 1];
    }
    if (!views || made.beside) return made;
    const owner = source(at);
    owner.beside ??= made;
    link(owner, made, at, views > 1 ? `same buffer, ${plural(views - 1, "view")} between` : "same buffer", "way");
    return made;
  };

  const centre = opBox(node);
  const inputs = op[3];
  const writes = (at: number, storage: number) => at >= 0 && p.out.storage.subarray(p.step.out[at], p.step.out[at + 1]).includes(storage);
  const blocked = within(p.step.block, step);
  for (const [slot, value] of [...inputs, ...op[5]].entries()) {
    const place = value < 0 ? null : lies(value, step - 1);
    const refused = blocked.some((k) => inputs[p.block.input[k]] === value);
    if (value < 0 || (place && !refused && p.storage.origin[place.storage] === p.from.weights)) continue;
    const copied = p.step.copied[step] > 0 && refused;
    const cache = cacheOf(p, g.values[value]);
    const rows = copied && cache >= 0 ? rowsBefore(t, cache, p.frame.run[frame])[0] : 0;
    if (copied) link(source(value), centre, value, rows ? `all ${count(rows)} rows are copied here` : `${bytes(p.step.copied[step])} are copied here`, "copied");
    else if ((p.step.taken[step] >> slot) & 1 || (place && writes(step, place.storage))) link(source(value), centre, value, "same buffer", "way");
    else link(source(value), centre, value, refused && p.step.flags[step] & p.flag.missed ? "cannot be overwritten" : "", refused ? "now" : undefined);
  }
  const later = (value: number): number[] => index.readers[value].filter((n) => n !== node && (steps[n] < 0 || steps[n] > step));
  for (const k of blocked) {
    const value = inputs[p.block.input[k]] ?? -1;
    const other = named(t, graph, p.strings[p.block.culprit[k]]);
    if (!other || value < 0 || (other.kind === "value" && other.id === value)) continue;
    const reader = other.kind === "node" ? other.id : later(other.id)[0] ?? -1;
    const from = source(other.kind === "node" ? value : other.id);
    if (reader >= 0 && reader !== node) link(from, opBox(reader), other.kind === "node" ? value : other.id, other.kind === "node" ? "reads it later" : "same buffer, read later", "copied");
    else link(from, centre, other.kind === "node" ? value : other.id, "", "copied");
  }
  const outs = within(p.step.out, step).filter((o) => p.out.value[o] >= 0);
  const reading = [...new Set(outs.flatMap((o) => index.readers[p.out.value[o]]))].slice(0, MOST_READERS);
  for (const o of outs) {
    const value = p.out.value[o];
    for (const n of reading.filter((reader) => index.readers[value].includes(reader))) link(centre, opBox(n), value, "", writes(steps[n], p.out.storage[o]) ? "way" : undefined);
    if (index.output[value]) link(centre, pill(value, lies(value, p.steps), true), value, "", "way");
  }
  for (const k of pairsOf(p, step).slice(0, MOST_READERS)) for (const s of [p.pair.first[k], p.pair.second[k]]) if (p.step.frame[s] === frame) opBox(p.step.node[s]);
  let note = "";
  if (peak) {
    const room = (s: number) => capacity(t, s, step);
    const all = [...new Set(alive(t, step))].filter((s) => p.storage.origin[s] !== p.from.weights).sort((a, b) => room(b) - room(a));
    for (const s of all.slice(0, MOST_BUFFERS)) {
      const held = valuesIn(t, s, step, [frame]);
      const one = held.find((h) => h.readers > 0) ?? held.find((h) => h.output) ?? held[0];
      if (!one) continue;
      const next = later(one.value)[0];
      const text = `${bytes(room(s))} alive`;
      if (index.producer[one.value] === node && next !== undefined) link(centre, opBox(next), one.value, text, "way");
      else if (next !== undefined) link(source(one.value), opBox(next), one.value, text, "way");
      else if (one.output) link(source(one.value), pill(one.value, one.place, true), one.value, text, "way");
      else if (inputs.includes(one.value)) link(source(one.value), centre, one.value, text, "way");
    }
    const rest = all.slice(MOST_BUFFERS);
    if (rest.length) note = `${count(rest.length)} smaller buffers are alive, too: ${bytes(rest.reduce((sum, s) => sum + room(s), 0))}`;
  }
  for (let ring = 0; ring < Math.max(up, down); ring++) {
    for (const b of [...boxes.values()]) {
      if (b.node < 0 || b === centre) continue;
      const [, , , reads, writes] = g.nodes[b.node];
      for (const value of ring < up ? reads : []) {
        const place = value < 0 ? null : lies(value, p.steps);
        if (place && p.storage.origin[place.storage] !== p.from.weights) link(source(value), b, value);
      }
      for (const value of ring < down ? writes : []) {
        for (const n of value < 0 ? [] : index.readers[value].slice(0, MOST_READERS)) link(b, opBox(n), value);
        if (index.output[value]) link(b, pill(value, lies(value, p.steps), true), value);
      }
    }
  }
  const drawn = layered([...boxes.values()], links, centre);
  const hidden = g.blocks[block].nodes.filter((n) => !drawn.nodes.includes(n)).length;
  const name = (b: Box) => [b.name, b.under].filter(Boolean).join(" ");
  return { ...drawn, block, hidden, note, said: [...links.map((l) => `${name(l.from)} → ${name(l.to)}${l.text ? `: ${l.text}` : ""}`), ...(note ? [note] : [])] };
}

/** What a box says of an input or output of a graph: its name; and its buffer and rows, or its shape. */
export function pillText(t: Trace, frame: number, value: number, place: Place | null): [name: string, under: string] {
  const { p } = t;
  const g = p.graphs[p.frame.graph[frame]];
  const id = cacheOf(p, g.values[value]);
  const cache = p.caches[id];
  const lies = place ? buffer(p, place.storage, place.gen) : "";
  if (!cache) return [valueName(g, value) || shortValue(g.values[value]), lies || (place ? shape(p.strings[p[place.from].info[place.entry]]) : "")];
  const run = p.frame.run[frame];
  const past = cache.input === g.values[value];
  const [valid, room] = past ? rowsBefore(t, id, run) : [cache.valid[run], cache.capacity[run]];
  const rows = `${count(valid)} rows${room > valid ? `, room for ${count(room)}` : past ? ", full" : ""}`;
  return [`${past ? "past" : "present"}.${cache.name}`, [lies, rows].filter(Boolean).join(" · ")];
}

/** The second line of an op. */
function under(t: Trace, step: number, shown: number): string {
  const { p } = t;
  if (step < 0) return "";
  const out = p.step.out[step];
  if (out === p.step.out[step + 1]) return "";
  const lies = buffer(p, p.out.storage[out], p.out.gen[out]);
  if (step === shown && p.step.copied[step]) return `copied ${bytes(p.step.copied[step])} to ${lies}`;
  if (step === shown && p.step.alloc[step]) return `${bytes(p.step.alloc[step])}, new ${lies}`;
  if (p.codes.how[p.out.how[out]] === "view") return `view of ${lies}`;
  return `${shape(p.strings[p.out.info[out]])} ${lies}`;
}

/** Boxes in ranks from top to bottom; long links bend around the boxes between their ends. */
function layered(boxes: Box[], links: Link[], centre: Box): Omit<Around, "block" | "hidden" | "said" | "note"> {
  for (const b of boxes) b.w = Math.max(96, Math.min(220, Math.max(b.name.length * LETTER + 34, b.under.length * 6.3 + (b === centre ? 36 : 20))));
  const down = links.filter((l) => l.from.beside !== l.to);
  for (let round = 0, moved = true; moved && round < boxes.length; round++) {
    moved = false;
    for (const { from, to, look } of down) {
      // what reads later stands below the op
      const least = Math.max(from.rank + 1, look === "copied" && to !== centre && from !== centre ? centre.rank + 1 : 0);
      if (to.rank < least) [to.rank, moved] = [least, true];
    }
  }
  // sources stand close to what reads them
  for (const b of boxes) {
    const below = down.filter((l) => l.from === b).map((l) => l.to.rank);
    if (!links.some((l) => l.from === b || l.to === b)) b.rank = centre.rank;
    else if (below.length && !b.beside && !down.some((l) => l.to === b)) b.rank = Math.min(...below) - 1;
  }
  for (const b of boxes) for (let to = b.beside; to; to = to.beside) b.rank = to.rank;
  const least = Math.min(...boxes.map((b) => b.rank));
  const ranks: Box[][] = [];
  const put = (b: Box) => (ranks[b.rank] ??= []).push(b);
  for (const b of boxes) {
    b.rank -= least;
    put(b);
  }
  const chains = links.map(({ from, to, text }) => {
    const chain = [from];
    for (let rank = from.rank + 1; rank < to.rank; rank++) chain.push({ ...from, node: -1, value: -1, beside: null, rank, w: rank > from.rank + 1 ? 16 : 16 + text.length * 6.3, x: from.x });
    chain.slice(1).forEach(put);
    return [...chain, to];
  });
  // a link to the side needs room for its words
  const apart = (b: Box | undefined) => (b?.beside ? 24 + 6.3 * (links.find((l) => l.from === b && l.to === b.beside)?.text.length ?? 0) : GAP);
  const near = new Map<Box, Box[]>();
  for (const chain of chains) chain.slice(1).forEach((b, i) => [[b, chain[i]], [chain[i], b]].forEach(([a, c]) => ensure(near, a, () => []).push(c)));
  for (const rank of ranks) rank.forEach((b, i) => { b.x = i * 150; });
  for (let sweep = 0; sweep < 12; sweep++) {
    for (const rank of sweep % 2 ? ranks : [...ranks].reverse()) {
      const wish = new Map(rank.map((b) => {
        const ends = (near.get(b) ?? []).filter((e) => e.rank !== b.rank);
        return [b, ends.length ? ends.reduce((sum, e) => sum + e.x, 0) / ends.length : b.x];
      }));
      rank.sort((a, b) => wish.get(a)! - wish.get(b)!);
      for (const b of rank.filter((b) => b.beside)) {
        rank.splice(rank.indexOf(b), 1);
        rank.splice(rank.indexOf(b.beside!), 0, b);
        wish.set(b, wish.get(b.beside!)! - 1);
      }
      let edge = -Infinity;
      rank.forEach((b, i) => {
        b.x = Math.max(wish.get(b)!, edge + b.w / 2 + apart(rank[i - 1]));
        edge = b.x + b.w / 2;
      });
      // the pushes to the right are shared by all
      const shift = rank.reduce((sum, b) => sum + b.x - wish.get(b)!, 0) / rank.length;
      for (const b of rank) b.x -= shift;
    }
  }
  squeeze(ranks.flat(), apart);
  const real = [...boxes.filter((b) => b.node < 0), ...boxes.filter((b) => b.node >= 0)];
  const left = Math.min(...real.map((b) => b.x - b.w / 2)) - PAD;
  const top = (b: Box) => PAD + b.rank * (HIGH + RANK);
  const lines = chains.map((chain, i): Line => {
    const [from, to] = [chain[0], chain[chain.length - 1]];
    const { value, text, look } = links[i];
    const port = (b: Box, out: boolean) => {
      const all = links.map((l, k) => ({ k, far: out ? chains[k][1] : chains[k].at(-2)!, mine: out ? l.from === b : l.to === b })).filter((l) => l.mine && l.far.rank !== b.rank).sort((a, c) => a.far.x - c.far.x);
      const place = all.findIndex((l) => l.k === i);
      return b.x - left + (all.length > 1 ? (place / (all.length - 1) - 0.5) * Math.min(b.w - 40, 22 * (all.length - 1)) : 0);
    };
    const points = from.rank === to.rank ? [from.x + from.w / 2 - left, top(from) + HIGH / 2, to.x - to.w / 2 - left, top(to) + HIGH / 2] : chain.flatMap((b, k) => {
      if (k === 0) return [port(b, true), top(b) + HIGH, port(b, true), top(b) + HIGH + 12];
      if (k === chain.length - 1) return [port(b, false), top(b) - 12, port(b, false), top(b)];
      return [b.x - left, top(b) - 12, b.x - left, top(b) + HIGH + 12];
    });
    return { from: real.indexOf(from), to: real.indexOf(to), points, value, text, look, ...bounds(points) };
  });
  return {
    lines, ends: [], nodes: real.filter((b) => b.node >= 0).map((b) => b.node), pills: real.filter((b) => b.node < 0).map((b) => b.value),
    boxes: real.map((b) => [b.x - b.w / 2 - left, top(b), b.w, HIGH]), names: real.map((b) => b.name), under: real.map((b) => b.under),
    w: Math.max(...ranks.flat().map((b) => b.x + b.w / 2)) - left + PAD, h: 2 * PAD + ranks.length * (HIGH + RANK) - RANK,
  };
}

/** Close what is empty from top to bottom. */
function squeeze(boxes: Box[], apart: (b: Box) => number): void {
  const sorted = [...boxes].sort((a, b) => a.x - a.w / 2 - (b.x - b.w / 2));
  let [edge, shift] = [-Infinity, 0];
  for (const b of sorted) {
    const left = b.x - b.w / 2;
    if (edge > -Infinity && left - edge > EMPTY) shift += left - edge - EMPTY;
    edge = Math.max(edge, b.x + b.w / 2 + (b.beside ? apart(b) : 0));
    b.x -= shift;
  }
}
