// The ranked findings of the recording, which lead the page, and the bar that walks through the steps of the one that is framed.
import type { Ask } from "./actions.js";
import { button, Delay, el, mark, onHit, say } from "./dom.js";
import { cost, pairsOf, series, stepsOfFinding } from "./evidence.js";
import { bytes, count, opName, plural, signed } from "./format.js";
import { changeTools, linked, nodeLink, valueLink } from "./inspectstep.js";
import { bare, numberOf, opAt } from "./replay.js";
import { named } from "./select.js";
import type { Change, Store, View } from "./store.js";
import type { Cure, Finding, Part, Report } from "./wire.js";

/** Asks the kernel for findings that the page came without: first the list, then the cures. */
export class Reports implements View {
  #asked = -1; // for so many steps
  constructor(private store: Store, private ask: Ask) {}

  want(): void {
    const { store, ask } = this;
    const { steps } = store.t.p;
    if (store.report?.steps !== steps && this.#asked !== steps && steps && ask.able() && ask({ do: "report", cures: false })) this.#asked = steps;
  }

  hear(report: Report): void {
    if (report.steps !== this.store.t.p.steps) return; // it has run on since
    this.store.setReport(report);
    if (report.cures === false && !this.store.t.p.live) this.ask({ do: "report" });
  }

  update(change: Change): void {
    // of a run that goes on cures are looked for when a finding is chosen
    const { report, evidence, t: { p } } = this.store;
    if (change.evidence && evidence && p.live && report?.cures === false && report.steps === p.steps) this.ask({ do: "report" });
  }
}

const REST = 1000; // ms without a step after which a run that goes on is diagnosed
const PAIRS = ["hidden", "broken"]; // kinds whose steps are pairs
const MOST = 24; // parts that are listed

export class FindingsPane implements View {
  #scope = el("span.kv-hint", { "data-kv": "findings-scope" });
  #list = el("ol.kv-found", { "data-kv": "findings" });
  #open = -1;
  #unfolded = false; // what the open one sums
  #rest: Delay;
  #begun: boolean;

  /** `placed`: the page opens at a place that somebody chose, not at the first finding. */
  constructor(host: HTMLElement, private store: Store, private ask: Ask, private reports: Reports, private openList: (id: string) => void, placed: boolean, private signal: AbortSignal) {
    this.#rest = new Delay(signal);
    this.#begun = placed || !!store.t.p.tour || !!store.t.p.live; // what one steps through does not jump when it ends
    host.append(el("header", {}, el("h3", {}, "Findings"), this.#scope), this.#list);
    onHit(this.#list, "finding", (row) => this.choose(Number(row.dataset.id)), signal);
    for (const hook of ["part", "layer"]) onHit(this.#list, hook, (place) => this.#go(place, Number(place.dataset.step)), signal);
  }

  /** Frame a finding, or close it if it is open. */
  choose(finding: number): void {
    const { store } = this;
    const pairs = PAIRS.includes(store.report!.findings[finding].kind);
    if (this.#open === finding && store.evidence && !pairs) {
      this.#open = -1;
      return this.#draw();
    }
    store.frame(finding);
    const { evidence, t: { p } } = store;
    if (!evidence || !pairs) return;
    const pair = pairsOf(p, evidence.steps[evidence.at] ?? -1)[0];
    if (pair === undefined) return;
    this.openList("hazards");
    store.choosePair(pair);
  }

  /** Walk to a step of the open finding, by its place. */
  #go(from: HTMLElement, step: number): void {
    const finding = Number(from.closest<HTMLElement>("li[data-id]")!.dataset.id);
    const at = stepsOfFinding(this.store.t, this.store.report!.findings[finding]).indexOf(step);
    if (at >= 0) this.store.frame(finding, at);
  }

  update(change: Change): void {
    const { store } = this;
    if (change.payload) {
      if (!store.t.p.live) this.reports.want();
      else if (store.report?.steps !== store.t.p.steps) this.#rest.start(REST, () => this.reports.want());
    }
    if (!this.#begun && store.report && !store.t.p.live) {
      this.#begun = true;
      store.open(false);
    }
    if (change.evidence && store.evidence) this.#open = store.evidence.finding;
    if (change.payload || change.report || change.evidence) this.#draw();
    else if (change.cursor) this.#mark();
  }

  #draw(): void {
    const { store } = this;
    const { p } = store.t;
    const all = store.report?.findings ?? [];
    const runs = p.runs.length === 1 ? "" : bare(p, 0) || p.runs.some((_, run) => bare(p, run)) ? `, ${plural(p.runs.length, "run")}` : `, all ${plural(p.runs.length, "run")}`;
    say(this.#scope, all.length ? `${count(all.length)} · of ${plural(p.total, "step")}${runs}` : "");
    const most = Math.max(1, ...all.map((one) => (one.kind === "peak" ? 0 : one.bytes)));
    this.#list.replaceChildren(...all.map((one, i) => this.#item(one, i, most)));
    if (!all.length) this.#list.append(el("li.kv-none", {}, p.live ? "Nothing was found yet." : !p.steps ? "Nothing has run." : this.ask.able() ? "Looking for findings …" : "This page came without findings."));
    this.#mark();
  }

  #mark(): void {
    const { evidence } = this.store;
    for (const item of this.#list.children) mark(item, "data-framed", evidence && String(evidence.finding) === (item as HTMLElement).dataset.id ? 1 : null);
  }

  #item(one: Finding, i: number, most: number): HTMLElement {
    const open = i === this.#open;
    const bar = el("i");
    if (one.kind !== "peak" && one.bytes) bar.style.width = `${(100 * one.bytes) / most}%`;
    const head = el("button", { class: "kv-finding", "data-kv": "finding", "data-id": i, "aria-expanded": String(open), title: one.where },
      el("span.kv-rank", {}, String(i + 1)), el("b", {}, one.title), el("span.kv-num", {}, one.bytes ? bytes(one.bytes) : ""),
      el("span.kv-soft.kv-at", {}, [one.where, one.scope === "all runs" ? "" : one.scope].filter(Boolean).join(" · ")), el("span.kv-share", { "aria-hidden": "true" }, bar));
    const item = el("li", { "data-id": i, "data-kind": one.kind, "data-calm": one.calm ? 1 : null }, head);
    if (open) item.append(...this.#detail(one, i));
    else if (one.cure) item.append(el("p.kv-cured", {}, this.#effect(one.cure)));
    return item;
  }

  #effect(cure: Cure): HTMLElement {
    const peak = cure.peak ? el("span.kv-soft", {}, ` peak ${signed(-cure.peak)}`) : "";
    return el("span", { "data-kv": "effect" }, cure.change, peak);
  }

  #detail(one: Finding, finding: number): HTMLElement[] {
    const { store, ask } = this;
    const { cure, parts = [] } = one;
    const found: HTMLElement[] = [];
    const cured = el("div.kv-cure", {});
    if (one.example) cured.append(el("p", { "data-kv": "example" }, ...this.#linked(one)));
    if (cure) {
      cured.append(el("p.kv-soft", {}, cure.about || cure.sentence));
      cured.append(el("span.kv-rowline", {}, ...changeTools(cure.code, ["Apply and compare", cure.sentence], ["Copy code", cure.code], { finding }, store, ask, () => store.tell(cure.code), this.signal)));
    } else if (store.report?.cures === false) cured.append(el("p.kv-soft", {}, "Looking for a change that removes it …"));
    else if (["miss", "copied"].includes(one.kind)) cured.append(el("p.kv-soft", {}, "No single change removes it."));
    if (cured.firstChild) found.push(cured);
    if (cure) found.push(el("p.kv-cured", {}, this.#effect(cure)));
    if (!parts.length) return found;
    const list = el("ul.kv-kinds", {}, ...parts.slice(0, MOST).map((part) => this.#part(part)), parts.length > MOST ? el("li.kv-soft", {}, `and ${count(parts.length - MOST)} more`) : "");
    const named = parts[0].op ? `${count(parts.length)} ${parts.length === 1 ? "kind" : "kinds"} of op` : plural(parts.length, "group");
    const box = el("details", { "data-kv": "parts" }, el("summary", {}, named), list);
    box.open = this.#unfolded;
    box.addEventListener("toggle", () => (this.#unfolded = box.open));
    found.push(box);
    return found;
  }

  /** The example with the names of values and ops as links. */
  #linked({ example, selection }: Finding): (Node | string)[] {
    const { t } = this.store;
    const graph = selection?.graph ?? 0;
    return linked(example, example.split(/\s/).flatMap((word): [string, HTMLElement][] => {
      const name = word.replace(/[,:;]$/, "");
      const found = name ? named(t, graph, name) : null;
      return found ? [[name, found.kind === "node" ? nodeLink(t, graph, found.id) : valueLink(t, graph, found.id)]] : [];
    }));
  }

  /** A kind of op leads to its widest step, and each of its layers to the widest step there. */
  #part({ name, bytes: size, where, op, at }: Part): HTMLElement {
    const { t } = this.store;
    const steps = series(at).sort((a, b) => cost(t, b) - cost(t, a));
    const kind = op ? opName(op) : "";
    const label = [el("b", {}, kind), ` ${name.replace(`/${kind}`, "")} `, el("span.kv-soft", {}, where)];
    const layers = new Map<number, number>();
    for (const step of steps) {
      const { g, node } = opAt(t, step);
      const layer = g.layer[node] ?? -1;
      if (layer >= 0 && !layers.has(layer)) layers.set(layer, step);
    }
    const cells = [...layers].sort(([a], [b]) => a - b).map(([layer, step]) => el("button", { "data-kv": "layer", "data-step": step, title: `layer ${layer}, step ${count(numberOf(t, step))}`, "aria-label": `layer ${layer}` }));
    return el("li", {}, steps.length ? el("button", { class: "kv-kind", "data-kv": "part", "data-step": steps[0], title: name }, ...label) : el("span.kv-kind", { title: where }, ...label),
      el("span.kv-num", {}, size ? bytes(size) : ""), cells.length > 1 ? el("span.kv-cells", {}, ...cells) : "");
  }
}

/** Over the graph: which finding is framed, which of its steps is shown, and how to walk to the others. */
export class EvidenceBar implements View {
  #what = el("b");
  #text = el("span");
  #place = el("span.kv-num", { "data-kv": "evidence-at" });
  #walk: HTMLElement;
  #back: HTMLButtonElement;
  #root: HTMLElement;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    const back = button("◂", "The step before, wider ([)", "evidence-previous", () => this.walk(-1), signal, "[");
    const on = button("▸", "The next step, narrower (])", "evidence-next", () => this.walk(1), signal, "]");
    back.ariaLabel = "Previous step of the finding";
    on.ariaLabel = "Next step of the finding";
    this.#walk = el("span.kv-walk", {}, back, this.#place, on, el("span.kv-soft", {}, "widest first"));
    this.#back = button("return", "Back to the finding", "evidence-return", () => this.back(), signal);
    this.#back.className = "kv-link";
    this.#root = el("div.kv-walkbar", { "data-kv": "evidence", "aria-live": "polite" }, this.#what, this.#text, this.#walk, this.#back);
    host.append(this.#root);
  }

  walk(by: 1 | -1): void {
    const { evidence } = this.store;
    if (evidence) this.store.frame(evidence.finding, evidence.at + by);
    else this.back();
  }

  back(): void {
    const { left } = this.store;
    if (left) this.store.frame(left.finding, left.at);
  }

  update(change: Change): void {
    if (!change.evidence && !change.report) return;
    const { evidence, left, report, t } = this.store;
    const shown = evidence ?? left;
    const one = shown && report?.findings[shown.finding];
    this.#root.hidden = !one;
    if (!one) return;
    const { steps, at, finding } = shown;
    const none = !steps.length && !one.times && one.run === undefined;
    say(this.#what, !evidence ? `Left finding ${finding + 1}` : none ? `Finding ${finding + 1}` : `Evidence for ${finding + 1}`);
    const rest = one.times - steps.length;
    const run = one.run === undefined ? null : t.p.runs[one.run];
    const where = none ? "has no steps: what is shown below plays no part in it"
      : run && !steps.length ? `the steps of ${run.label} were not kept: decode again with detail=[${one.run}] to record them`
      : !steps.length ? `its ${plural(one.times, "step")} ${one.times === 1 ? "was" : "were"} not kept here`
      : `step ${count(numberOf(t, steps[at]))}${one.times > 1 ? ` is one of ${count(one.times)}${one.scope === "all runs" ? "" : " kept"}` : ""}${rest > 0 ? `, ${count(rest)} not kept here` : ""}`;
    say(this.#text, evidence ? where : "");
    say(this.#place, `${count(at + 1)} of ${count(steps.length)}`);
    this.#walk.hidden = !evidence || steps.length < 2;
    this.#back.hidden = !!evidence;
  }
}
