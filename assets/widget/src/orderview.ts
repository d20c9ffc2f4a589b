// The orders of two lanes side by side around one op: what moved, which hazards that breaks, where numbers part.
import { el, hit, on } from "./dom.js";
import { bytes, count, opName, plural, shortName } from "./format.js";
import type { Comparison, LaneState } from "./lanestate.js";
import type { Context } from "./lazypane.js";
import { partner, type OrderInfo } from "./pair.js";
import type { Trace } from "./replay.js";
import { findStep, numberOf } from "./steps.js";
import type { Change, View } from "./store.js";

const ROOM = 9; // ops of each side
const MOST = 6; // broken hazards that are listed

/** First and last step of a list to show around one of them; the last is not included. */
export function around(at: number, steps: number, room = ROOM): [number, number] {
  const first = Math.max(0, Math.min(Math.max(at, 0) - (room >> 1), steps - room));
  return [first, Math.min(steps, first + room)];
}

/** Broken hazards by step of the second lane: their kinds. */
export function breaks(order: OrderInfo): Map<number, string[]> {
  const found = new Map<number, string[]>();
  for (const [kind, first, second] of order.broken) {
    for (const step of [first, second]) {
      const kinds = found.get(step) ?? [];
      if (!kinds.includes(kind)) found.set(step, [...kinds, kind]);
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
    on(this.#root, "click", (event) => {
      const row = hit(event, "order-op");
      if (row) return void this.state.go(Number(row.dataset.a), Number(row.dataset.b));
      // where it goes wrong
      const said = hit(event, "order-broken") ?? hit(event, "order-value");
      if (said) void this.state.go(-1, Number(said.dataset.b));
    }, signal);
  }

  update(change: Change): void {
    if (change.payload || change.look) this.#drawn = "";
    if (change.payload || change.look || change.cursor) this.#draw();
  }

  #draw(): void {
    const c = this.state.comparison;
    const info = c?.infos[1];
    const told = c && info?.of === c.infos[0].id ? info : null;
    this.#root.hidden = !c || !told || (!told.order && !told.value);
    if (this.#root.hidden) return void (this.#drawn = "");
    const at = this.#at(c!);
    const key = `${c!.infos.map(({ id }) => id)} ${at} ${this.state.shown}`;
    if (key === this.#drawn) return;
    this.#drawn = key;
    const { order, value } = told!;
    const said: Node[] = order ? this.#broken(c!, order) : [];
    if (value) said.push(this.#link("order-value", findStep(c!.a, value.other).step, findStep(c!.b, value.step).step, `${this.state.letter(told!.id)} ${value.sentence}${value.why ? `, because ${value.why}` : ""}`));
    const parts = [el("div.kv-said", {}, ...said)];
    if (order) {
      const kinds = breaks(order);
      parts.push(el("div.kv-two", {}, ...([0, 1] as const).map((side) => this.#side(c!, side, at[side], c!.moved, kinds))));
    }
    this.#root.replaceChildren(...parts);
  }

  /** The same op in both. */
  #at({ a, to, back, infos }: Comparison): [number, number] {
    const { t, cursor } = this.context.store;
    if (this.state.shown === infos[1].id) return [partner(back, cursor).step, cursor];
    return t.p === a.p || this.state.shown === infos[0].id ? [cursor, partner(to, cursor).step] : [0, partner(to, 0).step];
  }

  #broken(c: Comparison, order: OrderInfo): Node[] {
    const told = `${plural(order.moved.length, "op")} moved past others; ${order.claim}`;
    const head = order.total ? `${told}this breaks ${plural(order.total, "pair")} that no edge joins` : `${told}no hidden pair is broken`;
    const list = order.broken.slice(0, MOST).map(([kind, , second, size, root, sentence]) => {
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
    const { p } = t;
    const graph = p.graphs[p.frame.graph[p.step.frame[step]]];
    const node = p.step.node[step];
    const by = other - step;
    const number = numberOf(t === c.a ? c.b : c.a, other);
    const where = other < 0 ? "not run there" : !moved || !by ? "" : t === c.a ? `→ ${count(number)}` : `was ${count(number)}`;
    return el("button", { "data-kv": "order-op", "data-a": a, "data-b": b, "data-step": step, "aria-current": here ? "step" : null, "data-moved": moved && by ? 1 : null, "data-broken": broken ? broken.join() : null, title: graph.nodes[node][0] },
      el("span.kv-num", {}, count(numberOf(t, step))), el("b", {}, opName(graph.nodes[node][1])), el("span.kv-soft", {}, shortName(graph, node)),
      el("span.kv-where", { title: where && other >= 0 ? `${plural(Math.abs(by), "place")} ${by > 0 ? "later" : "earlier"} in the other order` : null }, where),
      broken ? el("span.kv-broken", {}, `✕ ${broken.join(" ")}`) : "");
  }
}
