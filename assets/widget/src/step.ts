// This step: the op, how it was decided and why, what it read and wrote, in which buffers.
import { el, hit, mark, on, td } from "./dom.js";
import { letter } from "./drawing.js";
import { buffer, bytes, count, opName, shape, shortName, shortValue } from "./format.js";
import { capacity, outcome, placeOf, stack, type Place } from "./replay.js";
import type { Change, Store, View } from "./store.js";

const BADGES: Record<string, string> = {
  in_place: "in place", missed: "missed: not in place", view: "a view: no bytes moved", foreign: "foreign kernel: never in place", done: "new buffer",
};

/** How an output lies, where its buffer and the badge say so already. */
const SEEN = new Set(["new", "in place"]);

export class StepPane implements View {
  readonly slow = true;
  #body = el("div.kv-step");

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    host.append(this.#body);
    on(this.#body, "click", (event) => {
      const chip = hit(event, "buffer");
      if (chip) return store.select({ kind: "storage", id: Number(chip.dataset.id) });
      const value = hit(event, "value");
      if (value) store.select({ kind: "value", id: Number(value.dataset.id), graph: Number(value.dataset.graph) });
    }, signal);
  }

  update(change: Change): void {
    if (change.cursor || change.payload) this.#body.replaceChildren(...(this.store.cursor < 0 ? this.#before() : this.#step(this.store.cursor)));
    if (change.cursor || change.payload || change.selection) {
      const { storages } = this.store.now.lit;
      for (const chip of this.#body.querySelectorAll<HTMLElement>('[data-kv="buffer"]')) {
        mark(chip, "data-lit", storages.has(Number(chip.dataset.id)) ? "1" : null);
      }
    }
  }

  #before(): Node[] {
    const { p, x } = this.store.t;
    return [
      el("h3", {}, "This step"), el("p.kv-big", {}, "Before the first step"),
      el("p.kv-soft", {}, `${p.title || "graph"}: ${count(p.steps)} steps recorded${p.runs.length > 1 ? ` in ${p.runs.length} runs` : ""}, weights ${bytes(x.weights)}.`),
      el("p.kv-soft", {}, "Press Next, or → on the keyboard. ? lists all keys."),
    ];
  }

  #chip(storage: number, gen: number): HTMLElement {
    const { p } = this.store.t;
    return el("button", { class: "kv-chip", "data-kv": "buffer", "data-id": storage, "data-origin": p.codes.origin[p.storage.origin[storage]], title: `${bytes(capacity(this.store.t, storage, this.store.cursor))}, ${p.codes.owner[p.storage.origin[storage]]}; choose it to light it everywhere` }, buffer(p, storage, gen));
  }

  #value(graph: number, value: number): HTMLElement {
    const name = this.store.t.p.graphs[graph].values[value];
    return el("button", { class: "kv-value", "data-kv": "value", "data-id": value, "data-graph": graph, title: name }, shortValue(name));
  }

  #step(step: number): Node[] {
    const { t } = this.store;
    const { p } = t;
    const frame = p.step.frame[step];
    const graph = p.frame.graph[frame];
    const g = p.graphs[graph];
    const node = p.step.node[step];
    const [name, op, , inputs] = g.nodes[node];
    const flags = p.step.flags[step];
    const kind = outcome(p, flags);
    const first = p.step.out[step];
    const how = p.codes.how[p.out.how[first]] ?? "";
    const said = kind === "in_place" && how === "append" ? "in place: appended" : kind === "done" && how === "pool" ? "buffer from the pool" : kind === "done" && flags & p.flag.control ? "body done" : BADGES[kind];
    const parts: Node[] = [
      el("h3", {}, "This step", frame >= 0 && p.frame.parent[frame] >= 0 ? el("span.kv-hint", {}, stack(t, frame).slice(1).map((f) => p.strings[p.frame.label[f]]).join(" › ")) : ""),
      el("p.kv-big", { title: name }, opName(op), el("span.kv-name", {}, shortName(g, node))),
      el("p.kv-badge", { "data-state": kind, "data-kv": "decision" }, el("b", { "aria-hidden": "true" }, letter(p.codes, kind)), said,
        flags & p.flag.foreign && kind !== "foreign" ? el("span.kv-soft", {}, " · foreign kernel") : ""),
      el("p.kv-sentence", {}, p.strings[p.step.sentence[step]]),
    ];
    const note = p.strings[p.step.note[step]];
    if (note) parts.push(el("p.kv-rule", { "data-kv": "plan-note" }, el("b", {}, "Plan "), note));
    const facts = [["alloc", "allocated"], ["written", "written"], ["copied", "copied"]] as const;
    parts.push(el("dl.kv-facts", {}, ...facts.map(([column, text]) => el("div", { "data-zero": p.step[column][step] === 0 ? 1 : null }, el("dt", {}, text), el("dd", {}, bytes(p.step[column][step]))))));
    parts.push(this.#places(step, frame, graph, inputs), this.#blockers(step, graph, inputs));
    const fixes = p.report?.missed.find((m) => m.steps.includes(step))?.fixes ?? [];
    if (fixes.length) parts.push(el("p.kv-rule", { "data-kv": "step-fix", title: "Told in full, with the change of code, under Missed" }, el("b", {}, "Fix "), fixes.map((f) => f.label).join(", or ")));
    const rule = p.strings[p.step.rule[step]];
    if (rule) parts.push(el("p.kv-rule", {}, el("b", {}, "Rule "), rule));
    return parts;
  }

  #blockers(step: number, graph: number, inputs: number[]): HTMLElement {
    const { p } = this.store.t;
    // an op that cannot run in place at all has a reason too, but it is no loss
    const lost = p.step.flags[step] & p.flag.missed;
    const list = el("ul.kv-blockers", { "data-missed": lost ? 1 : null, "aria-label": "Why not in place" });
    for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
      const value = inputs[p.block.input[k]] ?? -1;
      const message = p.strings[p.block.message[k]];
      const culprit = p.strings[p.block.culprit[k]];
      const about: (Node | string)[] = [];
      if (value >= 0) about.push("input ", this.#value(graph, value));
      if (culprit && !message.includes(culprit)) about.push(`${about.length ? " · " : ""}culprit ${culprit}`);
      list.append(el("li", { "data-kv": "blocker", "data-id": p.strings[p.block.code[k]] },
        el("div", {}, el("code", {}, p.strings[p.block.code[k]]), el("span.kv-num", {}, lost && p.block.bytes[k] ? bytes(p.block.bytes[k]) : "")),
        el("p", {}, message), about.length ? el("p.kv-soft", {}, ...about) : ""));
    }
    list.hidden = !list.firstChild;
    return list;
  }

  #places(step: number, frame: number, graph: number, inputs: number[]): HTMLElement {
    const { t } = this.store;
    const { p } = t;
    const table = el("table.kv-places");
    const row = (side: string, sign: string, title: string, value: number, chip: Node | string, info: string, how: string) => table.append(el("tr", { "data-side": side, title: how },
      el("th", { scope: "row", title }, sign), td(this.#value(graph, value)), td(chip), td(shape(info), "kv-shape", { title: info }), td(how, "kv-soft", { title: how })));
    inputs.forEach((value, slot) => {
      if (value < 0) return;
      const place = placeOf(t, frame, value, step - 1);
      const taken = (p.step.taken[step] >> slot) & 1;
      row("in", taken ? "↺" : "in", taken ? "taken: its buffer was handed over" : "read", value, place ? this.#chip(place.storage, place.gen) : "–", place ? this.#info(place) : "", place ? this.#owner(place) : "");
    });
    for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) {
      if (p.out.value[o] < 0) continue;
      row("out", "out", "written", p.out.value[o], this.#chip(p.out.storage[o], p.out.gen[o]), p.strings[p.out.info[o]], SEEN.has(p.codes.how[p.out.how[o]]) ? "" : p.codes.how[p.out.how[o]]);
    }
    return table;
  }

  #info(place: Place): string {
    const { p } = this.store.t;
    return p.strings[place.from === "bind" ? p.bind.info[place.entry] : p.out.info[place.entry]];
  }

  #owner(place: Place): string {
    const { p } = this.store.t;
    if (place.from === "bind") return p.codes.binding[p.bind.how[place.entry]] ?? "";
    return p.codes.how[p.out.how[place.entry]] === "view" ? "view" : "";
  }
}
