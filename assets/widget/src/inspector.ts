// The inspector: shows what was chosen last, or the step that the cursor moved to; one thing can be pinned beside it.
import type { Ask } from "./commands.js";
import { button, el, hit, mark, on, say } from "./dom.js";
import { count, plural } from "./format.js";
import type { History } from "./history.js";
import { cacheBody, storageBody, storageTitle, valueBody, valueTitle } from "./inspectmemory.js";
import { nodeBody, occurrenceOf, stepBody, stepTitle } from "./inspectstep.js";
import type { Reports } from "./reports.js";
import { generation } from "./replay.js";
import { copyButton, type ShareContext } from "./sharing.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";
import { ofCursor, ofSelection, sameSubject, type Subject } from "./subject.js";

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

  constructor(host: HTMLElement, private store: Store, private ask: Ask, private reports: Reports, private history: History, share: ShareContext, private signal: AbortSignal, private openList: (id: string) => void = () => {}) {
    this.#back = button("◂", "Back to what was looked at before (u)", "history-back", () => void history.back(), signal, "u");
    this.#forward = button("▸", "Forward again (U)", "history-forward", () => void history.forward(), signal, "Shift+U");
    this.#pin = button("pin", "Keep this beside what is chosen next", "pin", () => this.#toggle(), signal);
    this.#back.ariaLabel = "Back";
    this.#forward.ariaLabel = "Forward";
    host.append(el("header", {}, this.#kind, this.#where, el("span.kv-tools", {}, this.#back, this.#forward, this.#pin, copyButton(host, "inspector", share, signal))), el("div.kv-inspect", {}, this.#body, this.#other));
    this.#other.hidden = true;
    on(host, "click", (event) => this.#click(event), signal);
  }

  #click(event: MouseEvent): void {
    const { store } = this;
    const find = (kv: string) => hit(event, kv)?.dataset;
    const step = find("step-link");
    if (step) return store.go(Number(step.step));
    const chip = find("buffer");
    if (chip) return store.select({ kind: "storage", id: Number(chip.id) });
    const value = find("value");
    if (value) return store.select({ kind: "value", id: Number(value.id), graph: Number(value.graph) });
    const weighed = find("attention-link");
    if (weighed) {
      store.weigh = Number(weighed.id);
      store.select({ kind: "cache", id: store.weigh });
      return this.openList("caches");
    }
    const node = find("node-link");
    if (node) store.select({ kind: "node", id: Number(node.id), graph: Number(node.graph), ...(node.step ? { step: Number(node.step) } : {}) });
  }

  #toggle(): void {
    this.#pinned = this.#pinned ? null : this.#subject;
    this.#draw();
  }

  update(change: Change): void {
    const { store } = this;
    if (this.#pinned?.kind === "step" && this.#pinned.step >= store.t.p.steps) this.#pinned = null;
    if (!(change.cursor || change.selection || change.payload || change.report)) return;
    if (change.selection) this.#chosen = store.selection !== null;
    else if (change.cursor) this.#chosen = false;
    const s = store.selection;
    this.#subject = this.#chosen && s ? ofSelection(store.t, s, store.now, store.cursor) : ofCursor(store.cursor);
    if (this.#missed(this.#subject)) this.reports.want();
    this.#draw();
  }

  #missed(s: Subject): boolean {
    const { p } = this.store.t;
    return s.kind === "step" && !p.live && (p.step.flags[s.step] & p.flag.missed) !== 0;
  }

  #draw(): void {
    const { store, history } = this;
    const subject = this.#subject;
    const page = this.#page(subject);
    const here = subject.kind === "step" && subject.step === store.cursor;
    say(this.#kind, subject.kind === "start" || here ? "This step" : "Selected");
    say(this.#where, page.where);
    this.#where.title = page.where;
    this.#show(this.#body, page, false);
    if (!sameSubject(subject, this.#shown)) {
      this.#shown = subject;
      store.scroll(() => (this.#body.parentElement!.scrollTop = 0));
    }
    this.#other.hidden = !this.#pinned;
    if (this.#pinned) this.#show(this.#other, this.#page(this.#pinned), true);
    mark(this.#pin, "aria-pressed", String(this.#pinned !== null));
    say(this.#pin, this.#pinned ? "unpin" : "pin");
    mark(this.#back, "aria-disabled", history.from ? null : "true");
    mark(this.#forward, "aria-disabled", history.next ? null : "true");
    const { storages } = store.now.lit;
    for (const chip of this.#body.querySelectorAll<HTMLElement>('[data-kv="buffer"]')) mark(chip, "data-lit", storages.has(Number(chip.dataset.id)) ? "1" : null);
  }

  #show(box: HTMLElement, { title, where, body }: Page, pinned: boolean): void {
    const focused = box.contains(document.activeElement);
    box.replaceChildren(el("p.kv-big", { title: title.full }, title.op, el("span.kv-name", {}, title.name), pinned ? el("span.kv-hint", {}, ` pinned · ${where}`) : ""), ...body);
    if (focused) this.#back.closest<HTMLElement>(".kv-root, .kvviz")?.focus({ preventScroll: true }); // what had it is gone
  }

  #page(s: Subject): Page {
    const { store } = this;
    const { t } = store;
    const { p, x } = t;
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
      case "storage": return { title: storageTitle(t, s.id, generation(t, s.id, store.cursor)), where: `at step ${count(numberOf(t, store.cursor))}`, body: storageBody(store, s.id) };
      case "value": return { title: valueTitle(t, s.graph, s.id), where: p.graphs[s.graph].values[s.id], body: valueBody(store, s.graph, s.id, s.frame) };
      case "cache": return { title: { op: p.caches[s.id].name, name: "cache", full: p.caches[s.id].input }, where: plural(p.caches.length, "cache"), body: cacheBody(store, s.id) };
    }
  }
}

