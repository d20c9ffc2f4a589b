// The module of the lanes: the strip below the words, the comparison of two lanes, the menu that makes them.
import { ensure } from "./arrays.js";
import { CompareList, OrderView } from "./comparelist.js";
import { el, hit, on } from "./dom.js";
import { count, opLabel, signed } from "./format.js";
import { ours } from "./keys.js";
import { stateOf, type LaneState } from "./lanestate.js";
import type { Context, MakePane } from "./lazypane.js";
import type { LaneInfo, Offers } from "./pair.js";
import { Popover } from "./popover.js";
import type { Change, View } from "./store.js";

export interface LaneModule { strip: MakePane; compare: MakePane; menu(app: HTMLElement, context: Context, button: HTMLElement, signal: AbortSignal): void }

const menus = new WeakMap<HTMLElement, ForkMenu>();
const module: LaneModule = {
  strip: (host, context, signal) => new LaneStrip(host, context, stateOf(context), signal),
  compare: (host, context, signal) => {
    const state = stateOf(context);
    const list = new CompareList(host, context, state, signal);
    const orders = new OrderView(host.querySelector("[data-kv=\"differences\"]")!, context, state, signal);
    return { update: (change) => { list.update(change); orders.update(change); } };
  },
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

  update(change: Change): void {
    if (this.#popover.open && (change.payload || change.cursor || change.report)) this.#draw();
  }

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
