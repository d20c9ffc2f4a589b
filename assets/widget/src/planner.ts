// The planner: how a runtime plans its order of ops, event by event, on the drawings of the debugger. A plan is a payload with
// events instead of steps.
import { el, mark, NUMBER, on, onHit, say, set, td } from "./dom.js";
import { count, opLabel, opName, plural, shortName, shortValue } from "./format.js";
import { FrontierPane } from "./frontier.js";
import { GraphPane } from "./graph.js";
import { action, movesOf, panel, Player } from "./actions.js";
import { keys } from "./keys.js";
import { entry, listen, Writer, type Model } from "./mount.js";
import type { State, StateWords } from "./replay.js";
import { Rows } from "./rows.js";
import { light } from "./select.js";
import { Bar, Shell, tools } from "./shell.js";
import { firstStep, Store, type Change, type Now } from "./store.js";
import { open, payloadOf, type Header, type Ints, type Payload } from "./wire.js";
import { explain } from "./popover.js";

const COLUMNS = ["phase", "node", "value", "action", "reason", "planned", "depth", "ready"] as const;

export type Plan = ReturnType<typeof unpackPlan>;
export function unpackPlan(raw: ArrayBuffer) {
  const opened = open<Header>(raw);
  const { column } = opened;
  // by event; `ready`: offsets into the list of nodes that can run because of a pick
  const e = Object.fromEntries(COLUMNS.map((name) => [name, column(`event.${name}`)])) as Record<(typeof COLUMNS)[number], Ints>;
  const p: Payload = { ...payloadOf(opened, true), steps: e.node.length, total: e.node.length };
  const events = Array.from(e.action, (_, i) => i);
  const [picks, appends] = ["pick", "append"].map((action) => events.filter((i) => p.strings[e.action[i]] === action));
  const picked = new Int32Array(p.graphs[0].nodes.length).fill(-1); // by node: the event that picked it, -1 = none
  for (const i of picks) picked[e.node[i]] = i;
  const walk = events.filter((i) => p.strings[e.phase[i]] === "walk").length; // they come first
  return { p, e, ready: column("ready.node") as Ints, first: column("first.node") as Ints, picked, picks, appends, walk }; // first: the frontier before the first pick
}

/** The ops that could run before the pick of event `i`, oldest first; none for other events. */
export function frontierAt(plan: Plan, i: number): number[] {
  const { e, first, picks, picked } = plan;
  if (i < 0 || picked[e.node[i]] !== i) return [];
  const nodes = Array.from(first);
  for (const pick of picks.slice(0, picks.indexOf(i))) {
    nodes.splice(nodes.indexOf(e.node[pick]), 1);
    nodes.push(...readyAt(plan, pick));
  }
  return nodes;
}

export function readyAt({ e, ready }: Plan, i: number): number[] { return i < 0 ? [] : Array.from(ready.subarray(e.ready[i], e.ready[i + 1])); }

const PLAN_WORDS: StateWords = {
  waiting: "not visited", path: "on the walk's path: something it needs is not resolved yet", listed: "in the walk's list: all that it needs is resolved",
  frontier: "in the frontier: can run", running: "this event", done: "picked: in the plan",
};

/** The ops on the path of the walk after event `at`, from the output on; empty once ops are picked. */
export function pathAt({ p, e, walk }: Plan, at: number): number[] {
  const path: number[] = [];
  if (at >= walk) return path;
  for (let i = 0; i <= at; i++) {
    path.length = Math.min(path.length, e.depth[i]);
    if (p.strings[e.action[i]] === "visit") path.push(e.node[i]);
  }
  return path;
}

export function planStates(plan: Plan, at: number): { states: State[]; captions: string[] } {
  const { p, e, picks, appends } = plan;
  const states: State[] = p.graphs[0].nodes.map(() => "waiting");
  const captions = states.map(() => "");
  const put = (nodes: number[], state: State, what: string) => nodes.forEach((node, i) => [states[node], captions[node]] = [state, `${what} ${i}`]);
  const done = (events: number[]) => events.filter((event) => event <= at).map((event) => e.node[event]);
  put(done(appends), "listed", "list");
  put(pathAt(plan, at), "path", "depth");
  for (const node of [...frontierAt(plan, at), ...readyAt(plan, at)]) states[node] = "frontier";
  put(done(picks), "done", "step");
  const node = at < 0 ? -1 : e.node[at];
  if (node >= 0) states[node] = "running";
  return { states, captions };
}

export function planNow(plan: Plan, { t, cursor, selection }: Store): Now {
  const { states, captions } = planStates(plan, cursor);
  const choices = frontierAt(plan, cursor).map((node) => ({ node, step: plan.picked[node], alloc: null, frees: null }));
  const hint = choices.length ? "before this pick, oldest first" : cursor < plan.walk ? "filled when the walk is over" : "empty";
  return { run: 0, frame: 0, graph: 0, states, steps: plan.picked, next: 0, choices, ran: firstStep(choices), lit: light(t, selection, 0, cursor), captions, words: PLAN_WORDS, hint };
}

const NOTES = ["A plan is made before anything runs: sizes, owners and values play no part in it unless the policy says so.", "Step numbers in the plan are those at which the ops run."];

class Planner {
  #store: Store;
  #life = new AbortController();
  #player: Player;
  #list: number[] = []; // events of the list beside the graph
  #body = el("div.kv-step", { "data-kv": "event" });
  #range = el("input", { type: "range", min: -1, step: 1, "data-kv": "event-slider", "aria-label": "Event" });
  #phases = el("div.kv-phases", { "aria-hidden": "true" });

  constructor(model: Model, root: HTMLElement, private plan: Plan) {
    const { signal } = this.#life;
    const { p, picks } = plan;
    const store = (this.#store = new Store(p, model.get("cursor") ?? -1, undefined, (s) => planNow(plan, s)));
    store.selection = model.get("selection") ?? null;
    const writer = new Writer(model, { cursor: () => store.cursor, selection: () => store.selection }, signal);
    store.onPerson = (what) => writer.touch(what);
    for (const name of ["cursor", "selection"] as const) {
      listen(model, `change:${name}`, () => {
        if (writer.has(name)) return;
        if (name === "cursor") store.seek(model.get(name), "model");
        else store.select(model.get(name) ?? null, "model");
      }, signal);
    }

    const shell = new Shell(root);
    const by = (n: number) => () => store.seek(store.cursor + n);
    this.#player = new Player(store, () => {
      by(1)();
      return store.cursor < p.steps - 1;
    });
    explain(shell.app, signal);
    const list = [
      action("next", "Next event", "ArrowRight n F10", by(1)), action("back", "Previous event", "ArrowLeft p Shift+F10", by(-1)),
      action("next-pick", "Next pick", ".", () => store.seek(picks.find((e) => e > store.cursor) ?? p.steps - 1)),
      action("previous-pick", "Previous pick", ",", () => store.seek([...picks].reverse().find((e) => e < store.cursor) ?? -1)),
      action("first", "Before the first event", "Home", () => store.seek(-1)), action("last", "Last event", "End", () => store.seek(p.steps - 1)),
      action("go", "Go to an event by its number", "g", () => bar.focusGoto()), action("play", "Play, pause", "Space", () => this.#player.toggle()),
      action("fit", "Fit the graph, or true size", "f", () => shell.fit()), action("help", "Keys and signs", "?", () => shell.help(() => panel(store.t.p.codes, list, Object.entries(PLAN_WORDS), [], NOTES))),
      action("close", "Clear, close", "Escape", () => shell.clear(store)),
    ];
    const make = tools(list, signal);
    const bar: Bar = new Bar(shell.app, store, "event", [
      [make("◀\uFE0E", "back", "Back"), make("Next ▶\uFE0E", "next", "Next")], [make("◂◂", "previous-pick", "Previous pick"), make("Next pick ▸▸", "next-pick")],
    ], [make("?", "help", "Help")], () => {
      const done = picks.filter((e) => e <= store.cursor).length;
      return store.cursor < plan.walk ? "walk back from the outputs" : `${count(done)} of ${count(picks.length)} picked`;
    }, signal);
    const main = el("div.kv-main");
    shell.app.append(main);
    const nothing = () => store.tell("a plan is only looked at: kvviz.debug runs ops in an order of your own");
    const graph = new GraphPane(shell.pane("graph", "Graph", main), store, nothing, signal);
    const side = el("div.kv-side");
    main.append(side);
    shell.pane("this", "This event", side).append(this.#body);
    const frontier = new FrontierPane(shell.pane("frontier", "Frontier", side), store, nothing, signal);
    const made = shell.pane("memory", "Plan so far", main);
    const title = el("h3");
    const head = el("span.kv-hint");
    made.append(el("header", {}, title, head));
    const order = new Rows("Plan so far", "kv-order", ["place#", "op", "name"], store, (row) => this.#planned(row), signal);
    made.append(order.root);
    const timeline = shell.pane("timeline", "Events");
    timeline.append(this.#phases, this.#range);
    on(this.#range, "input", () => store.seek(this.#range.valueAsNumber, "person", true), signal);
    const lists = shell.pane("lists", "Lists");
    const events = new Rows("Events", "kv-events", ["event#", "phase", "action", "op", "name", "value", "planned#", "reason"], store, (row) => this.#event(row), signal);
    lists.append(el("div.kv-panels", {}, el("div.kv-panel", {}, events.root)));
    shell.addStatus();
    for (const rows of [order, events]) onHit(rows.root, "event-row", (row) => store.seek(Number(row.dataset.step)), signal);

    const rest = {
      slow: true,
      update: (change: Change) => {
        const { cursor } = store;
        if (change.note || change.cursor) shell.note(store.note);
        if (!change.cursor && !change.payload) return;
        mark(root, "data-step", cursor);
        const list = cursor < plan.walk ? plan.appends : picks;
        const done = list.filter((e) => e <= cursor).length;
        say(title, list === picks ? "Plan so far" : "The walk's list so far");
        say(head, `${count(done)} of ${plural(picks.length, "op")}`);
        if (list !== this.#list) order.clear();
        this.#list = list;
        order.show(done, done - 1, Math.max(0, done - 1));
        events.show(p.steps, cursor, Math.max(0, cursor));
        this.#range.max = String(p.steps - 1);
        this.#range.value = String(cursor);
        shell.sentence(cursor < 0 ? "Before the first event." : `Event ${cursor}: ${this.#reason(cursor)}`);
        this.#range.setAttribute("aria-valuetext", `event ${cursor} of ${p.steps}`);
        this.#body.replaceChildren(...this.#about(cursor));
      },
    };
    for (const view of [bar, frontier, graph, rest]) store.add(view);
    const phases: [string, number][] = [["walk", plan.walk], ["picks", picks.length], ["buffers", p.steps - plan.walk - picks.length]];
    this.#phases.append(...phases.filter(([, n]) => n).map(([text, n]) => {
      const part = el("i", { "data-part": text }, `${text} ${count(n)}`);
      set(part, "flex-grow", String(n));
      return part;
    }));
    keys(root, { moves: movesOf(list), pause: () => this.#player.pause() }, signal);
  }

  #reason(i: number): string {
    return `${this.plan.p.strings[this.plan.e.reason[i]]}.`; // may begin with a name, which has its own case
  }

  #name(node: number): [string, string] {
    const g = this.plan.p.graphs[0];
    return node < 0 ? ["–", ""] : [opName(g.nodes[node][1]), shortName(g, node)];
  }

  #about(i: number): Node[] {
    const { plan } = this;
    const { p, e } = plan;
    const parts: Node[] = [el("h3", {}, "This event")];
    if (i < 0) {
      return [...parts, el("p.kv-big", {}, "Before the first event"),
        el("p.kv-soft", {}, `${p.title}: ${plural(plan.picks.length, "op")} to plan under policy ${p.policy.name}; ${plural(p.steps, "event")}.`),
        el("p.kv-soft", {}, "Press Next, or → on the keyboard. ? lists all keys.")];
    }
    const [op, name] = this.#name(e.node[i]);
    const ready = readyAt(plan, i);
    const frontier = frontierAt(plan, i).length;
    const facts: [string, number][] = [["planned", e.planned[i]]];
    if (i < plan.walk) facts.push(["depth", e.depth[i]]);
    else if (frontier) facts.push(["frontier", frontier]);
    parts.push(
      el("p.kv-big", {}, op, el("span.kv-name", {}, name)),
      el("p.kv-badge", { "data-state": p.strings[e.action[i]] === "pick" ? "in_place" : "view" }, p.strings[e.phase[i]] === p.strings[e.action[i]] ? "picked" : `${p.strings[e.phase[i]]}: ${p.strings[e.action[i]]}`),
      el("p.kv-sentence", {}, this.#reason(i)),
      el("dl.kv-facts", {}, ...facts.map(([text, n]) => el("div", {}, el("dt", {}, text), el("dd", {}, count(n))))));
    if (e.value[i] >= 0) parts.push(el("p.kv-soft", {}, "value ", el("code", { title: p.graphs[0].values[e.value[i]] }, p.graphs[0].values[e.value[i]])));
    const path = pathAt(plan, i).filter((n) => n !== e.node[i]).reverse();
    if (path.length) parts.push(el("p", {}, el("b", {}, "Needed by: "), path.slice(0, 6).map((n) => opLabel(p.graphs[0], n)).join(" ‹ "), path.length > 6 ? ` and ${count(path.length - 6)} more` : ""));
    if (ready.length) parts.push(el("p", {}, el("b", {}, "Can run from now on: "), ready.slice(0, 8).map((n) => opLabel(p.graphs[0], n)).join(", "), ready.length > 8 ? ` and ${count(ready.length - 8)} more` : ""));
    return parts;
  }

  #planned(row: number): HTMLElement {
    const event = this.#list[row];
    const [op, name] = this.#name(this.plan.e.node[event]);
    return el("tr", { "data-kv": "event-row", "data-step": event, title: this.#reason(event) }, td(count(row), NUMBER), td(op, "kv-op"), td(name));
  }

  #event(i: number): HTMLElement {
    const { p, e } = this.plan;
    const [op, name] = this.#name(e.node[i]);
    const value = p.graphs[0].values[e.value[i]] ?? "";
    const deep = td(op, "kv-op");
    set(deep, "--kv-depth", String(Math.min(e.depth[i], 10)));
    return el("tr", { "data-kv": "event-row", "data-step": i, "data-action": p.strings[e.action[i]] },
      td(count(i), NUMBER), td(p.strings[e.phase[i]], "kv-soft"), td(p.strings[e.action[i]]), deep, td(name),
      td(shortValue(value), "kv-shape", { title: value }), td(count(e.planned[i]), NUMBER), td(this.#reason(i), "", { title: this.#reason(i) }));
  }

  change(): boolean { return false; }
  relook(): void { this.#store.relook(); }
  tell(note: string): void { this.#store.tell(note); }
  destroy(): void {
    this.#player.pause();
    this.#life.abort();
    this.#store.destroy();
  }
}

/** anywidget's entry, a bundle of its own. */
export default entry({
  mode: "planner",
  traits: ["payload"],
  show: (model, root, [payload]) => payload && new Planner(model, root, unpackPlan(payload)),
});
