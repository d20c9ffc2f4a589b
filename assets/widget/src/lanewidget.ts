// The module of the lanes: the strip below the words; two lanes compared, with the ops that differ, the most bytes first, and their orders
// around one op; and the menu that makes lanes.
import { ensure } from "./arrays.js";
import { button, el, hit, NUMBER, on, onHit, table, td } from "./dom.js";
import { bytes, count, opLabel, opName, plural, shortName, signed } from "./format.js";
import { ours } from "./keys.js";
import { stateOf, type Comparison, type LaneState } from "./lanestate.js";
import type { Context, MakePane } from "./lazypane.js";
import { most, partner, type Gap, type Group, type LaneInfo, type Offers, type OrderInfo, type Totals } from "./pair.js";
import { Popover } from "./popover.js";
import type { Change, View } from "./store.js";
import { bareRuns, findStep, numberOf, opAt, type Trace } from "./replay.js";

export interface LaneModule { strip: MakePane; compare: MakePane; menu(app: HTMLElement, context: Context, button: HTMLElement, signal: AbortSignal): void }

const menus = new WeakMap<HTMLElement, ForkMenu>();
const module: LaneModule = {
  strip: (host, context, signal) => new LaneStrip(host, context, stateOf(context), signal),
  compare: (host, context, signal) => new CompareList(host, context, stateOf(context), signal),
  menu: (app, context, button, signal) => {
    ensure(menus, app, () => {
      const menu = new ForkMenu(app, context, stateOf(context), signal);
      context.store.add(menu);
      return menu;
    }).toggle(button);
  },
};
export default module;

class LaneStrip implements View {
  #rows = el("div.kv-lanerows", { role: "list" });

  constructor(host: HTMLElement, private context: Context, private state: LaneState, signal: AbortSignal) {
    host.append(this.#rows);
    on(this.#rows, "click", (event) => {
      const row = hit(event, "lane");
      if (!row) return;
      const id = Number(row.dataset.id);
      const info = state.info(id);
      if (hit(event, "lane-close")) return context.commands.send({ do: "close_lane", lane: id }, "asked the kernel to close the lane …");
      if (hit(event, "lane-compare")) return void state.compare(info?.of ?? 0, id).then(() => context.openList?.("compare"));
      if (hit(event, "lane-first") && info?.first) {
        const { step, other, sentence } = info.first;
        return void state.show(...(state.shown === info.of ? [info.of, step] : [id, other]) as [number, number]).then(() => context.store.tell(sentence));
      }
      if (id !== state.shown) void state.show(id);
    }, signal);
    state.listen(() => this.#draw());
  }

  update(change: Change): void {
    if (change.payload) this.state.redrawn();
    if (change.payload || change.cursor) this.#draw();
  }

  #draw(): void {
    const { state } = this;
    this.#rows.replaceChildren(...(state.list.length > 1 ? state.list.map((lane) => this.#row(lane)) : []));
  }

  #row(lane: LaneInfo): HTMLElement {
    const { state, context: { ask } } = this;
    const shown = lane.id === state.shown;
    const { p } = this.context.store.t;
    const run = p.runs.findIndex((r) => lane.step >= r.from && lane.step < r.from + r.steps);
    const said = p.runs.length > 1 && p.runs[run]?.text !== p.runs[run]?.label ? p.runs[run].text : "";
    const word = said ? ` “${said.trim()}”` : "";
    const from = lane.of === null ? "recorded first" : lane.step ? `left ${state.letter(lane.of)} at step ${count(lane.step)}${word}` : `whole run, beside ${state.letter(lane.of)}`;
    const row = el("div.kv-lane", { role: "listitem", "data-kv": "lane", "data-id": lane.id, "data-shown": shown ? 1 : null },
      el("button", { class: "kv-lanename", "data-kv": "lane-name", "aria-pressed": String(shown), title: shown ? "This lane is shown" : "Show this lane at the same op" },
        el("b", {}, state.letter(lane.id)), ` ${lane.label}`),
      el("span.kv-soft.kv-from", { title: lane.holds || null, "data-kv": "lane-from" }, from, lane.step && lane.throughout ? "; its change holds for the whole run" : "", lane.live ? ", goes on" : ""));
    if (!lane.figures || lane.of === null) return row;
    const [a, b] = lane.figures;
    const changes = (["copied", "peak", "allocated"] as const).filter((what) => a[what] !== b[what]).map((what) => [what, `${signed(b[what] - a[what])} ${what}`]);
    const figures = el("span.kv-deltas", { "data-kv": "lane-figures", title: lane.note || "Of all runs" }, ...(changes.length ? changes : [["", "the same bytes"]]).map(([what, text]) => el("span", { "data-what": what, "data-by": text[0] === "+" ? "more" : text[0] === "−" ? "less" : null }, text)));
    const first = lane.first ? el("button", { class: "kv-link", "data-kv": "lane-first", title: lane.first.sentence }, `first difference at step ${count(lane.first.step)}`) : el("span.kv-soft", {}, "decided alike");
    const broken = lane.order?.total ? el("span.kv-broken", { "data-kv": "lane-broken", title: lane.order.broken[0][5] }, `✕ ${count(lane.order.total)} broken`) : "";
    const compared = state.comparison?.infos[1].id === lane.id;
    const tools = el("span.kv-tools", {}, el("button", { "data-kv": "lane-compare", "aria-pressed": String(compared), title: "Mark in the graph where decisions differ, and list the differences" }, `Compare ${state.letter(lane.of)} | ${state.letter(lane.id)}`));
    if (ask.able()) tools.append(el("button", { "data-kv": "lane-close", "aria-label": `Close lane ${lane.label}`, title: "Undo: close this lane" }, "✕"));
    row.append(figures, first, broken, tools);
    return row;
  }
}

const READY = 12;

class ForkMenu implements View {
  #body = el("div.kv-forkbody");
  #popover: Popover;

  constructor(app: HTMLElement, private context: Context, private state: LaneState, private signal: AbortSignal) {
    const root = el("div.kv-pop.kv-menu.kv-forks", { role: "dialog", "aria-label": "Fork", "data-kv": "fork-menu" }, el("h4", {}, "Fork: the same inputs, with a change"), this.#body);
    this.#popover = new Popover(app, root);
    on(root, "click", (event) => {
      const item = hit(event, "fork-item");
      if (!item) return;
      this.#popover.close();
      context.commands.fork(JSON.parse(item.dataset.change!) as Record<string, unknown>);
    }, signal);
    // typing here does not move the cursor
    on(root, "keydown", (event) => { if (ours(event)) event.stopPropagation(); }, signal);
    state.listen(() => this.#draw());
  }

  toggle(button: HTMLElement): void {
    this.context.reports.want();
    this.#draw();
    this.#popover.toggle(button);
  }

  update(change: Change): void { if (this.#popover.open && (change.payload || change.cursor || change.report)) this.#draw(); }

  #item(text: string, change: object, title: string): HTMLElement {
    return el("button", { "data-kv": "fork-item", "data-change": JSON.stringify(change), title }, text);
  }

  #draw(): void {
    const { store } = this.context;
    const { p } = store.t;
    const offers = (this.state.source.get("offers") ?? {}) as Offers;
    const parts: HTMLElement[] = [];
    const part = (title: string, items: HTMLElement[]) => items.length && parts.push(el("section", {}, el("h5", {}, title), el("div.kv-rowline", {}, ...items)));
    part("The whole run under policy", (offers.policies ?? []).map((name) => this.#item(name, { policy: name }, `Run again by the rules of ${name}, from the first step on; the steps before this one keep their order`)));
    const { now } = store;
    const graph = p.graphs[p.frame.graph[now.next] ?? 0];
    const others = now.choices.filter((c) => c.step < 0 || c.step !== now.ran).slice(0, READY);
    part(`Run another ready op as step ${count(store.number + 1)}`, others.map((c) => this.#item(opLabel(graph, c.node), { run: { node: c.node } }, graph.nodes[c.node][0])));
    part("The whole list in the order of a back end's rule", (offers.orders ?? []).map((name) => this.#item(name, { order: name }, `Run all nodes again in the order that the rule "${name}" gives`)));
    const rows = offers.kv_capacity;
    if (rows) {
      const input = el("input", { type: "number", min: 1, value: rows, "aria-label": "Rows", "data-kv": "fork-rows" });
      const go = this.#item("Reserve", {}, "Reserve rows in the growing caches of the decode");
      const write = () => { go.dataset.change = JSON.stringify({ kv_capacity: Math.max(1, Math.round(input.valueAsNumber || rows)) }); };
      on(input, "input", write, this.signal);
      write();
      part("Reserve rows in the caches", [input, go]);
    }
    part("Let the run overwrite an input", (offers.donate ?? []).map((name) => this.#item(`donate ${name}`, { donate: name }, name)));
    part("Apply the cure of a finding", (store.report?.findings ?? []).flatMap(({ cure }, finding) => (cure ? [this.#item(cure.change, { fix: { finding } }, cure.sentence)] : [])));
    if (!this.context.ask.able()) parts.unshift(el("p.kv-soft", {}, "A fork runs the model again: it needs a running kernel."));
    this.#body.replaceChildren(...(parts.length ? parts : [el("p.kv-none", {}, "Nothing can be changed here.")]));
  }
}

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

export class CompareList implements View {
  #head = el("header.kv-versus");
  #scroll = el("div.kv-scroll", { "data-kv": "differences" });
  #box = el("div");
  #orders = el("div.kv-orders", { "data-kv": "orders" });
  #open = new Set<string>();
  #drawn: Comparison | null | undefined;
  #ordered = ""; // what the orders were drawn for

  constructor(host: HTMLElement, private context: Context, private state: LaneState, private signal: AbortSignal) {
    this.#scroll.append(this.#orders, this.#box);
    host.append(this.#head, this.#scroll);
    state.listen(() => this.#both());
    for (const hook of ["order-op", "order-broken", "order-value"]) {
      onHit(this.#orders, hook, ({ dataset: { a, b } }) => void state.go(hook === "order-op" ? Number(a) : -1, Number(b)), signal);
    }
    onHit(this.#box, "gap", (gap) => void state.go(Number(gap.dataset.a), Number(gap.dataset.b)), signal);
    onHit(this.#box, "difference", (row) => this.#toggle(row.dataset.key!), signal);
  }

  update(change: Change): void {
    if (change.payload || change.look) this.#ordered = "";
    if (change.payload || change.look || change.cursor) this.#both();
  }

  #both(): void {
    this.#draw();
    this.#order();
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

  #names(c: Comparison): [string, string] { return c.infos.map((info) => `${this.state.letter(info.id)} ${info.label}`) as [string, string]; }

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

  /** The orders of both around one op. */
  #order(): void {
    const c = this.state.comparison;
    const info = c?.infos[1];
    const direct = c && info?.of === c.infos[0].id ? info : null;
    this.#orders.hidden = !c || !direct || (!direct.order && !direct.value);
    if (this.#orders.hidden) return void (this.#ordered = "");
    const at = this.#at(c!);
    const key = `${c!.infos.map(({ id }) => id)} ${at} ${this.state.shown}`;
    if (key === this.#ordered) return;
    this.#ordered = key;
    const { order, value } = direct!;
    const said: Node[] = order ? this.#broken(c!, order) : [];
    if (value) said.push(this.#link("order-value", findStep(c!.a, value.other).step, findStep(c!.b, value.step).step, `${this.state.letter(direct!.id)} ${value.sentence}${value.why ? `, because ${value.why}` : ""}`));
    const parts = [el("div.kv-said", {}, ...said)];
    if (order) {
      const kinds = breaks(order);
      parts.push(el("div.kv-two", {}, ...([0, 1] as const).map((side) => this.#side(c!, side, at[side], c!.moved, kinds))));
    }
    this.#orders.replaceChildren(...parts);
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
