// The inspector: shows what was chosen last (an execution, a buffer, a value, a cache) or the step at the cursor; one thing can
// be pinned beside it.
import { idsOf } from "./arrays.js";
import type { Ask } from "./actions.js";
import { button, el, mark, onHit, say, td } from "./dom.js";
import { buffer, bytes, count, plural, shape, shortValue, valueName } from "./format.js";
import { bufferChip, facts, infoOf, listed, nodeBody, nodeLink, occurrenceOf, stepBody, stepLink, stepTitle, valueLink } from "./inspectstep.js";
import { age, heldFrom, lifeOf, lives } from "./mapdata.js";
import { bare, capacity, generation, numberOf, placeOf, stack, stepsOf, valuesIn, type Trace } from "./replay.js";
import { ofCursor, ofSelection, same, type Selection, type Subject } from "./select.js";
import { copyButton, type ShareContext } from "./lazypane.js";
import type { Change, Evidence, Store, View } from "./store.js";
import { stepsOfFinding } from "./evidence.js";
import type { Reports } from "./findings.js";
import { word } from "./popover.js";

interface Page { title: { op: string; name: string; full: string }; where: string; body: Node[] }

export class Inspector implements View {
  readonly slow = true;
  #subject: Subject = { kind: "start" };
  #shown: Subject = this.#subject;
  #pinned: Subject | null = null;
  #chosen = false; // the subject is the selection, not the cursor's step
  #kind = el("h3");
  #where = el("span.kv-hint");
  #pin: HTMLButtonElement;
  #back: HTMLButtonElement;
  #forward: HTMLButtonElement;
  #body = el("div.kv-step", { "data-kv": "inspector" });
  #other = el("div.kv-step.kv-pinned", { "data-kv": "pinned" });

  constructor(host: HTMLElement, private store: Store, private ask: Ask, private reports: Reports, private history: History, share: ShareContext, private signal: AbortSignal, openList: (id: string) => void) {
    this.#back = button("◂", "Back to what was looked at before (u)", "history-back", () => void history.back(), signal, "u");
    this.#forward = button("▸", "Forward again (U)", "history-forward", () => void history.forward(), signal, "Shift+U");
    this.#pin = button("pin", "Keep this beside what is chosen next", "pin", () => {
      this.#pinned = this.#pinned ? null : this.#subject;
      this.#draw();
    }, signal);
    this.#back.ariaLabel = "Back";
    this.#forward.ariaLabel = "Forward";
    host.append(el("header", {}, this.#kind, this.#where, el("span.kv-tools", {}, this.#back, this.#forward, this.#pin, copyButton(host, "inspector", share, signal))), el("div.kv-inspect", {}, this.#body, this.#other));
    this.#other.hidden = true;
    onHit(host, "finding-link", ({ dataset: { id, step } }) => store.frame(Number(id), stepsOfFinding(store.t, store.report!.findings[Number(id)]).indexOf(Number(step))), signal);
    onHit(host, "attention-link", ({ dataset: { id } }) => {
      store.weigh = Number(id);
      store.select({ kind: "cache", id: store.weigh });
      openList("caches");
    }, signal);
  }

  update(change: Change): void {
    const { store } = this;
    if (this.#pinned?.kind === "step" && this.#pinned.step >= store.t.p.steps) this.#pinned = null;
    if (!(change.cursor || change.selection || change.payload || change.report)) return;
    if (change.selection) this.#chosen = store.selection !== null;
    else if (change.cursor) this.#chosen = false;
    const chosen = this.#chosen ? store.selection : null;
    this.#subject = chosen ? ofSelection(store.t, chosen, store.now, store.cursor) : ofCursor(store.cursor);
    const { p } = store;
    const s = this.#subject;
    if (s.kind === "step" && !p.live && p.step.flags[s.step] & p.flag.missed) this.reports.want();
    this.#draw();
  }

  #draw(): void {
    const { store, history } = this;
    const subject = this.#subject;
    const page = this.#page(subject);
    const here = subject.kind === "step" && subject.step === store.cursor;
    say(this.#kind, subject.kind === "start" || here ? "This step" : "Selected");
    say(this.#where, page.where, page.where);
    this.#show(this.#body, page, false);
    if (JSON.stringify(subject) !== JSON.stringify(this.#shown)) {
      this.#shown = subject;
      store.scroll(() => (this.#body.parentElement!.scrollTop = 0));
    }
    this.#other.hidden = !this.#pinned;
    if (this.#pinned) this.#show(this.#other, this.#page(this.#pinned), true);
    mark(this.#pin, "aria-pressed", String(this.#pinned !== null));
    say(this.#pin, this.#pinned ? "unpin" : "pin");
    mark(this.#back, "aria-disabled", history.from ? null : "true");
    mark(this.#forward, "aria-disabled", history.next ? null : "true");
    for (const chip of this.#body.querySelectorAll<HTMLElement>('[data-kv="buffer"]')) mark(chip, "data-lit", store.now.lit.storages.has(Number(chip.dataset.id)) ? "1" : null);
  }

  #show(box: HTMLElement, { title, where, body }: Page, pinned: boolean): void {
    const focused = box.contains(document.activeElement);
    box.replaceChildren(el("p.kv-big", { title: title.full }, title.op, el("span.kv-name", {}, title.name), pinned ? el("span.kv-hint", {}, ` pinned · ${where}`) : ""), ...body);
    if (focused) this.#back.closest<HTMLElement>(".kvviz")?.focus({ preventScroll: true }); // what had it is gone
  }

  #page(s: Subject): Page {
    const { store } = this;
    const { t, p, x } = store;
    switch (s.kind) {
      case "start": return {
        title: { op: "Before the first step", name: "", full: "" }, where: "",
        body: [el("p.kv-soft", {}, `${p.title || "graph"}: ${count(p.steps)} steps recorded${p.runs.length > 1 ? ` in ${p.runs.length} runs` : ""}, weights ${x.weights ? "" : "none"}${x.weights ? `${(x.weights / 1e6).toPrecision(3)} MB` : ""}.`), el("p.kv-soft", {}, "Press Next, or → on the keyboard. ? lists all keys.")],
      };
      case "step": return { title: stepTitle(t, s.step), where: occurrenceOf(t, s.step), body: stepBody(store, this.ask, s.step, this.signal) };
      case "node": {
        const g = p.graphs[s.graph];
        return { title: { op: g.nodes[s.id][1], name: "", full: g.nodes[s.id][0] }, where: g.nodes[s.id][0], body: nodeBody(store, s.graph, s.id) };
      }
      case "storage": return { title: { op: buffer(p, s.id, generation(t, s.id, store.cursor)), name: shortValue(p.strings[p.storage.name[s.id]]), full: p.strings[p.storage.name[s.id]] }, where: `at step ${count(numberOf(t, store.cursor))}`, body: storageBody(store, s.id) };
      case "value": return { title: { op: valueName(p.graphs[s.graph], s.id) || shortValue(p.graphs[s.graph].values[s.id]), name: "", full: p.graphs[s.graph].values[s.id] }, where: p.graphs[s.graph].values[s.id], body: valueBody(store, s.graph, s.id, s.frame) };
      case "cache": return { title: { op: p.caches[s.id].name, name: "cache", full: p.caches[s.id].input }, where: plural(p.caches.length, "cache"), body: cacheBody(store, s.id) };
    }
  }
}

const MOST = 60; // entries of a list

function storageBody(store: Store, s: number): Node[] {
  const { t, p, cursor, now } = store;
  if (p.storage.origin[s] === p.from.weights) return [facts(["bytes", [bytes(capacity(t, s, cursor))]], [word("owner"), ["the model: a weight, never overwritten"]])];
  const l = lives(t);
  const k = lifeOf(t, s, cursor);
  const gen = generation(t, s, cursor);
  const reason = store.report?.findings.find(({ kind, selection }) => kind === "held" && selection?.id === s)?.example;
  const held = k < 0 ? -1 : heldFrom(t, l, k);
  const inside = valuesIn(t, s, cursor, stack(t, now.frame));
  const maker = k >= 0 && !l.given[k] ? [stepLink(t, l.from[k]), " by ", nodeLink(t, p.frame.graph[p.step.frame[l.from[k]]], p.step.node[l.from[k]])] : ["given to the run"];
  return [
    facts(
      ["bytes", [bytes(capacity(t, s, cursor))]],
      [word("owner"), [p.codes.owner[p.storage.origin[s]]]],
      ["born", maker],
      ["last used", k < 0 || l.used[k] < 0 ? ["by no step"] : [stepLink(t, l.used[k])]],
      ["freed", k >= 0 && l.freed[k] ? [stepLink(t, l.to[k] - 1)] : ["not in this recording"]],
      ["lives", k < 0 ? [] : [plural(age(l, k), "step")]],
      ["held", held >= 0 && l.freed[k] && l.to[k] - 1 > held ? [`${plural(l.to[k] - 1 - held, "step")} past its last use`, reason ? `: ${reason}` : ""] : []],
      ["holds now", listed(inside.map((h) => valueLink(t, p.frame.graph[h.frame], h.value)), 4)],
      ["overwritten", gen ? [plural(gen, "time")] : []],
    ),
    contents(t, s, cursor),
  ];
}

/** What was written into a storage, in order. */
function contents(t: Trace, s: number, cursor: number): HTMLElement {
  const { p, x } = t;
  const all = Array.from(idsOf(x.outs, s));
  const near = Math.max(0, Math.min(all.length - MOST, all.findIndex((o) => x.outStep[o] >= cursor) - MOST / 2));
  const rows = all.slice(near, near + MOST).map((o) => {
    const step = x.outStep[o];
    const graph = p.frame.graph[p.step.frame[step]];
    return el("tr", { "data-now": step === cursor ? 1 : null }, el("th", { scope: "row" }, buffer(p, s, p.out.gen[o])), td(stepLink(t, step)), td(nodeLink(t, graph, p.step.node[step])),
      td(p.out.value[o] < 0 ? "" : valueLink(t, graph, p.out.value[o])), td(shape(p.strings[p.out.info[o]]), "kv-shape"), td(p.codes.how[p.out.how[o]], "kv-soft"));
  });
  const caption = all.length > rows.length ? `${count(rows.length)} of ${plural(all.length, "write")}` : all.length ? "What was written into it" : "No step writes into it";
  return el("table.kv-contents", {}, el("caption", {}, caption), ...rows);
}

function valueBody(store: Store, graph: number, id: number, frame: number): Node[] {
  const { t, p, x } = store;
  const { producer, readers, output } = x.graphs[graph];
  const place = frame < 0 ? null : placeOf(t, frame, id, p.steps);
  const steps = frame < 0 ? null : stepsOf(t, frame);
  const at = (node: number) => {
    const step = steps?.[node] ?? -1;
    return el("span", {}, nodeLink(t, graph, node), ...(step < 0 ? [] : [" ", stepLink(t, step)]));
  };
  const made = producer[id] >= 0 ? [at(producer[id])] : [p.graphs[graph].weights.includes(id) ? "a weight of the model" : "there when the graph starts"];
  return [facts(
    ["is", place ? [infoOf(p, place)] : []],
    ["made by", made],
    ["read by", readers[id].length ? listed(readers[id].map(at), 12) : [output[id] ? "an output of the graph" : "no op"]],
    ["lies in", place ? [bufferChip(t, store.cursor, place.storage, place.gen)] : []],
    ["output", output[id] && readers[id].length ? ["also an output of the graph: held until its frame ends"] : []],
  )];
}

function cacheBody(store: Store, id: number): Node[] {
  const { t, p, now } = store;
  const c = p.caches[id];
  const last = c.capacity[now.run] || bare(p, now.run) ? now.run : now.run - 1;
  const storage = c.storage[last] ?? -1;
  const sum = (column: number[]) => column.reduce((a, b) => a + b, 0);
  return [facts(
    ["kept by", [c.protocol]],
    ["value", [`${c.input} → ${c.output}, axis ${c.axis}`]],
    [word("rows"), [`${count(c.valid[last] ?? 0)} valid of ${count(c.capacity[last] ?? 0)} reserved`]],
    ["this run", [`${bytes(c.written[now.run] ?? 0)} written, ${bytes(c.copied[now.run] ?? 0)} copied`]],
    ["all runs", [`${bytes(sum(c.written))} written, ${bytes(sum(c.copied))} copied`]],
    ["lies in", storage < 0 ? [] : [bufferChip(t, store.cursor, storage, 0)]],
  )];
}

export interface Place { number: number; selection: Selection | null; evidence?: Evidence | null }
const PLACES = 200;
const ONE_MOVE = 350; // ms: positions of one drag, or a jump and the selection that comes with it

export class History implements View {
  #places: Place[];
  #at = 0;
  #last = -ONE_MOVE;
  #moving = false;
  jumped = false; // whether the last change was a jump, which can be undone

  constructor(private store: Store, private clock = () => performance.now()) { this.#places = [this.#now()]; }

  #now(): Place { return { number: this.store.number, selection: this.store.selection, evidence: this.store.evidence }; }
  get from(): Place | null { return this.#places[this.#at - 1] ?? null; }
  get next(): Place | null { return this.#places[this.#at + 1] ?? null; }

  back(): boolean { return this.#go(this.#at - 1); }
  forward(): boolean { return this.#go(this.#at + 1); }

  #go(at: number): boolean {
    const place = this.#places[at];
    if (!place) return false;
    this.#at = at;
    const { number, selection } = this.#now();
    this.#moving = number !== place.number || !same(selection, place.selection);
    if (place.evidence) this.store.frame(place.evidence.finding, place.evidence.at);
    this.store.go(place.number);
    this.store.select(place.selection);
    return true;
  }

  update(change: Change): void {
    if (change.payload || !(change.cursor || change.selection)) return;
    const here = this.#places[this.#at];
    const now = this.#now();
    const moved = Math.abs(now.number - here.number);
    const chosen = now.selection !== null && !same(now.selection, here.selection);
    this.jumped = false;
    if (this.#moving) {
      this.#moving = moved > 0 || !same(now.selection, here.selection); // the place may be reached in two changes
      return;
    }
    const time = this.clock();
    const go = moved > 1 || chosen;
    // single steps and drags move the present place
    if (!go || time - this.#last < ONE_MOVE) this.#places[this.#at] = now;
    else {
      this.#places.splice(this.#at + 1);
      this.#places.push(now);
      if (this.#places.length > PLACES) this.#places.shift();
      this.#at = this.#places.length - 1;
    }
    if (go) this.#last = time;
    this.jumped = moved > 1;
  }
}
