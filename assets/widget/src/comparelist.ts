// Two lanes compared: the figures of both, the ops that differ, the most bytes first, and their orders around one op.
import { ensure } from "./arrays.js";
import { button, el, NUMBER, onHit, table, td } from "./dom.js";
import { bytes, count, opName, plural, shortName, signed } from "./format.js";
import type { Comparison, LaneState } from "./lanestate.js";
import type { Context } from "./lazypane.js";
import { most, partner, type Gap, type Group, type OrderInfo, type Totals } from "./pair.js";
import { bareRuns, findStep, numberOf, opAt, type Trace } from "./replay.js";
import type { Change, View } from "./store.js";

const FIGURES: [keyof Totals, string, (n: number) => string][] = [
  ["peak", "peak", bytes], ["copied", "copied", bytes], ["allocated", "allocated", bytes], ["in_place", "steps in place", count], ["missed", "steps missed", count], ["steps", "steps", count],
];
const MOST = 60; // steps of an opened group
const digits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

/** `−4,096 B (−2.9 %)`, or `no change`. */
export function change(before: number, after: number, write: (n: number) => string): string {
  const by = after - before;
  if (!by) return "no change";
  const share = before ? (100 * by) / before : 0;
  return signed(by, write) + (Math.abs(share) < 0.1 ? "" : ` (${signed(share, digits.format)} %)`);
}

const delta = (n: number) => (n ? signed(n) : "0");

export class CompareList implements View {
  #head = el("header.kv-versus");
  #scroll = el("div.kv-scroll", { "data-kv": "differences" });
  #box = el("div");
  #open = new Set<string>();
  #drawn: Comparison | null | undefined;

  constructor(host: HTMLElement, private context: Context, private state: LaneState, private signal: AbortSignal) {
    this.#scroll.append(this.#box);
    host.append(this.#head, this.#scroll);
    state.listen(() => this.#draw());
    onHit(this.#box, "gap", (gap) => void state.go(Number(gap.dataset.a), Number(gap.dataset.b)), signal);
    onHit(this.#box, "difference", (row) => this.#toggle(row.dataset.key!), signal);
  }

  update(change: Change): void {
    if (change.payload || change.look) this.#draw();
  }

  #toggle(key: string): void {
    const group = this.state.comparison?.groups.find((g) => keyOf(g) === key);
    if (!this.#open.delete(key)) {
      this.#open.add(key);
      if (group) void this.state.go(group.gaps[0].a, group.gaps[0].b);
    }
    this.#drawn = undefined;
    this.#draw();
  }

  #draw(): void {
    const c = this.state.comparison;
    if (c === this.#drawn) return;
    this.#drawn = c;
    if (!c) {
      this.#head.replaceChildren();
      return this.#box.replaceChildren(el("p.kv-none", {}, "Choose “Compare” at a lane above."));
    }
    this.#head.replaceChildren(...this.#title(c));
    const body = el("tbody");
    const costly = c.groups.filter((g) => most(g) > 0 || g.gaps.some((gap) => most(gap) > 0));
    const rest = c.groups.filter((g) => !costly.includes(g));
    for (const group of costly) body.append(...this.#group(c, group));
    if (rest.length) {
      const n = rest.reduce((sum, g) => sum + g.gaps.length, 0);
      body.append(el("tr.kv-rest", {}, td(`Decided differently, with the same bytes: ${plural(n, "op")}`, "kv-soft", { colspan: 6 })));
      for (const group of rest) body.append(...this.#group(c, group));
    }
    const sum = (key: "copied" | "allocated") => c.groups.reduce((n, g) => n + g[key], 0);
    const foot = el("tfoot", {}, el("tr", { "data-kv": "difference-sum", "data-copied": sum("copied"), "data-allocated": sum("allocated") },
      td("all of it"), td(count(c.groups.reduce((n, g) => n + g.gaps.length, 0)), NUMBER), td(""), td(""), td(delta(sum("copied")), NUMBER), td(delta(sum("allocated")), NUMBER)));
    const [a, b] = this.#names(c);
    const list = table("Differences", "kv-differences", ["op", "times#", a, b, "copied#", "allocated#"], body);
    list.append(foot);
    this.#box.replaceChildren(c.groups.length ? list : el("p.kv-none", {}, "Both made the same decision at every step about where outputs lie."));
  }

  #names(c: Comparison): [string, string] {
    return c.infos.map((info) => `${this.state.letter(info.id)} ${info.label}`) as [string, string];
  }

  #title(c: Comparison): Node[] {
    const { store } = this.context;
    const [a, b] = this.#names(c);
    const info = c.infos[1];
    const figures = info.of === c.infos[0].id ? info.figures : null;
    const shown = (figures ? FIGURES : []).filter(([key]) => key !== "steps" || figures![0].steps !== figures![1].steps).map(([key, text, write]) => {
      const [x, y] = [figures![0][key], figures![1][key]];
      const better = key === "steps" ? null : key === "in_place" ? y > x : y < x;
      return el("div", { "data-kv": "pair-figure", "data-id": key, "data-change": x === y || better === null ? null : better ? "better" : "worse", title: `${write(x)} → ${write(y)}` },
        el("dt", {}, text), el("dd", {}, el("b", {}, change(x, y, write))));
    });
    const places = [...c.groups.flatMap((g) => g.gaps), ...[...c.moved].map((b) => ({ a: c.back[b], b }))];
    const steps = places.filter((place) => place.a >= 0).sort((x, y) => x.a - y.a);
    const here = () => (this.state.shown === c.infos[0].id ? store.cursor : c.back[Math.max(0, store.cursor)] ?? -1);
    const go = (gap: { a: number; b: number } | undefined) => void (gap && this.state.go(gap.a, gap.b));
    const stop = button("✕", "End the comparison", "compare-close", () => this.state.stop(), this.signal);
    stop.ariaLabel = "End the comparison";
    const note = [info.note, bareRuns(c.a.p) ? "only ops of the runs whose steps are loaded are listed" : ""].filter(Boolean).join("; ");
    return [
      el("b", {}, a, el("span.kv-soft", {}, " against "), b),
      el("dl.kv-figures", {}, ...shown),
      el("span.kv-tools", {},
        button("◂", "The difference before", "previous-difference", () => go(steps.filter((gap) => gap.a < here()).pop()), this.signal),
        button("▸", "The next difference", "next-difference", () => go(steps.find((gap) => gap.a > here())), this.signal), stop),
      note ? el("span.kv-soft", {}, note) : "",
      info.holds && info.of === c.infos[0].id ? el("p.kv-soft.kv-first", { "data-kv": "pair-holds" }, info.holds) : "",
      info.first ? el("p.kv-first", { "data-kv": "pair-first" }, el("b", {}, "First difference "), info.first.sentence) : "",
    ].filter((part) => part !== "") as Node[];
  }

  #group(c: Comparison, group: Group): HTMLElement[] {
    const key = keyOf(group);
    const open = this.#open.has(key);
    const one = group.gaps.length === 1 ? ` ${this.#name(c, group.gaps[0])}` : "";
    const row = el("tr", { "data-kv": "difference", "data-key": key, "data-copied": group.copied, "data-allocated": group.allocated },
      td(el("button", { "aria-expanded": String(open), class: "kv-fold" }, `${open ? "▾" : "▸"} ${opName(group.op)}${one}`)),
      td(count(group.gaps.length), NUMBER), td(group.decided[0]), td(group.decided[1]), cost(group.copied), cost(group.allocated));
    if (!open) return [row];
    const gaps = group.gaps.slice(0, MOST).map((gap) => {
      const at = gap.a >= 0 ? numberOf(c.a, gap.a) : numberOf(c.b, gap.b);
      return el("tr.kv-one", { "data-kv": "gap", "data-a": gap.a, "data-b": gap.b },
        td(el("button", { class: "kv-link", title: "Go there" }, `step ${count(at)} · ${this.#name(c, gap)}`), "", { colspan: 4 }), cost(gap.copied), cost(gap.allocated));
    });
    if (group.gaps.length > MOST) gaps.push(el("tr.kv-one", {}, td(`${count(group.gaps.length - MOST)} more`, "kv-soft", { colspan: 6 })));
    return [row, ...gaps];
  }

  #name(c: Comparison, gap: Gap): string {
    const [{ p }, step] = gap.a >= 0 ? [c.a, gap.a] : [c.b, gap.b];
    const { g, node } = opAt({ p }, step);
    const block = g.blocks.find((b) => b.nodes.includes(node));
    return [shortName(g, node), block?.title].filter(Boolean).join(" · ");
  }
}

function keyOf(group: Group): string { return [group.op, ...group.decided].join("|"); }
function cost(n: number): HTMLElement { return td(delta(n), NUMBER, { "data-by": n > 0 ? "more" : n < 0 ? "less" : null }); }

const ROOM = 9; // ops of each side
const BROKEN = 6; // broken hazards that are listed

/** A range of steps around one; the last is not included. */
export function around(at: number, steps: number, room = ROOM): [number, number] {
  const first = Math.max(0, Math.min(Math.max(at, 0) - (room >> 1), steps - room));
  return [first, Math.min(steps, first + room)];
}

/** Kinds of broken hazards by step of the second lane. */
export function breaks(order: OrderInfo): Map<number, string[]> {
  const found = new Map<number, string[]>();
  for (const [kind, first, second] of order.broken) {
    for (const step of [first, second]) {
      const kinds = ensure(found, step, () => []);
      if (!kinds.includes(kind)) kinds.push(kind);
    }
  }
  return found;
}

export class OrderView implements View {
  #root = el("div.kv-orders", { "data-kv": "orders" });
  #drawn = "";

  constructor(host: HTMLElement, private context: Context, private state: LaneState, signal: AbortSignal) {
    host.prepend(this.#root);
    state.listen(() => this.#draw());
    onHit(this.#root, "order-op", (row) => void state.go(Number(row.dataset.a), Number(row.dataset.b)), signal);
    for (const kv of ["order-broken", "order-value"]) onHit(this.#root, kv, (said) => void state.go(-1, Number(said.dataset.b)), signal);
  }

  update(change: Change): void {
    if (change.payload || change.look) this.#drawn = "";
    if (change.payload || change.look || change.cursor) this.#draw();
  }

  #draw(): void {
    const c = this.state.comparison;
    const info = c?.infos[1];
    const direct = c && info?.of === c.infos[0].id ? info : null;
    this.#root.hidden = !c || !direct || (!direct.order && !direct.value);
    if (this.#root.hidden) return void (this.#drawn = "");
    const at = this.#at(c!);
    const key = `${c!.infos.map(({ id }) => id)} ${at} ${this.state.shown}`;
    if (key === this.#drawn) return;
    this.#drawn = key;
    const { order, value } = direct!;
    const said: Node[] = order ? this.#broken(c!, order) : [];
    if (value) said.push(this.#link("order-value", findStep(c!.a, value.other).step, findStep(c!.b, value.step).step, `${this.state.letter(direct!.id)} ${value.sentence}${value.why ? `, because ${value.why}` : ""}`));
    const parts = [el("div.kv-said", {}, ...said)];
    if (order) {
      const kinds = breaks(order);
      parts.push(el("div.kv-two", {}, ...([0, 1] as const).map((side) => this.#side(c!, side, at[side], c!.moved, kinds))));
    }
    this.#root.replaceChildren(...parts);
  }

  /** The steps of the same op in both lanes. */
  #at({ a, to, back, infos }: Comparison): [number, number] {
    const { t, cursor } = this.context.store;
    if (this.state.shown === infos[1].id) return [partner(back, cursor).step, cursor];
    return t.p === a.p || this.state.shown === infos[0].id ? [cursor, partner(to, cursor).step] : [0, partner(to, 0).step];
  }

  #broken(c: Comparison, order: OrderInfo): Node[] {
    const moves = `${plural(order.moved.length, "op")} moved past others; ${order.claim}`;
    const head = order.total ? `${moves}this breaks ${plural(order.total, "pair")} that no edge joins` : `${moves}no hidden pair is broken`;
    const list = order.broken.slice(0, BROKEN).map(([kind, , second, size, root, sentence]) => {
      const step = findStep(c.b, second).step;
      return el("li", {}, this.#link("order-broken", c.back[step] ?? -1, step, `✕ ${kind}, ${bytes(size)} of ${root}: ${sentence}`));
    });
    if (order.total > list.length) list.push(el("li.kv-soft", {}, `${count(order.total - list.length)} more`));
    const said = el("p", { "data-kv": "order-moved", "data-broken": order.total }, head);
    return list.length ? [said, el("ul", {}, ...list)] : [said];
  }

  #link(kv: string, a: number, b: number, text: string): HTMLElement {
    return el("button.kv-link", { "data-kv": kv, "data-a": a, "data-b": b, title: text }, text);
  }

  #side(c: Comparison, side: 0 | 1, at: number, moved: Set<number>, kinds: Map<number, string[]>): HTMLElement {
    const t = side ? c.b : c.a;
    const info = c.infos[side];
    const [first, end] = around(at, t.p.steps);
    const rows = [];
    for (let step = first; step < end; step++) {
      const other = (side ? c.back : c.to)[step] ?? -1;
      const [a, b] = side ? [other, step] : [step, other];
      rows.push(el("li", {}, this.#op(c, t, step, a, b, step === at, b < 0 || moved.has(b), side ? kinds.get(numberOf(c.b, b)) : undefined, other)));
    }
    const name = `${this.state.letter(info.id)} ${info.label}`;
    return el("section", { "data-side": side }, el("h5", {}, name), el("ol", { "aria-label": `Order of ${name}` }, ...rows));
  }

  #op(c: Comparison, t: Trace, step: number, a: number, b: number, here: boolean, moved: boolean, broken: string[] | undefined, other: number): HTMLElement {
    const { g, node, op } = opAt(t, step);
    const by = other - step;
    const number = numberOf(t === c.a ? c.b : c.a, other);
    const where = other < 0 ? "not run there" : !moved || !by ? "" : t === c.a ? `→ ${count(number)}` : `was ${count(number)}`;
    return el("button", { "data-kv": "order-op", "data-a": a, "data-b": b, "data-step": step, "aria-current": here ? "step" : null, "data-moved": moved && by ? 1 : null, "data-broken": broken ? broken.join() : null, title: op[0] },
      el("span.kv-num", {}, count(numberOf(t, step))), el("b", {}, opName(op[1])), el("span.kv-soft", {}, shortName(g, node)),
      el("span.kv-where", { title: where && other >= 0 ? `${plural(Math.abs(by), "place")} ${by > 0 ? "later" : "earlier"} in the other order` : null }, where),
      broken ? el("span.kv-broken", {}, `✕ ${broken.join(" ")}`) : "");
  }
}
