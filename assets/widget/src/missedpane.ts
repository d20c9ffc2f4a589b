// The diagnosis: ops that could have run in place and did not, worst first; why, what would change it, and what else
// was held at the peak. A fix can be copied, and applied where a kernel is there.
import type { Ask } from "./commands.js";
import { button, el, NUMBER, onHit, onResize, say, td } from "./dom.js";
import { bytes, count, opName, plural, shortName, shortValue, signed } from "./format.js";
import { fixBox } from "./fixbox.js";
import { missed, occurrence } from "./missed.js";
import type { Reports } from "./reports.js";
import { Rows } from "./rows.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";
import type { Fix, Missed } from "./wire.js";

const NAMES = 3; // of a group at the peak

export class MissedPane implements View {
  readonly slow = true;
  #all: Missed[] = [];
  #list: Missed[] = []; // those that are shown
  #only: HTMLButtonElement;
  #chosen = 0;
  #shown = false;
  #rows: Rows;
  #detail = el("div.kv-detail", { "aria-live": "polite", "data-kv": "diagnosis" });
  #rest = el("div.kv-detail");

  /** `counted` is told how many entries the list has, whenever that may have changed. */
  constructor(host: HTMLElement, private store: Store, private ask: Ask, private reports: Reports, private counted: (entries: number) => void, private signal: AbortSignal) {
    this.#only = button("", "List only what a fix is known for", "only-fixes", () => {
      this.#only.ariaPressed = String(this.#only.ariaPressed !== "true");
      this.#chosen = 0;
      this.#fill();
    }, signal);
    this.#rows = new Rows("Missed in-place ops", "kv-missed", ["bytes#", "peak#", "op", "name", "block", "times#", "blocked by", "fix"], store, (row) => this.#row(row), signal);
    this.#rows.sortable((head, row) => this.#key(head, this.#list[row]));
    host.append(el("div.kv-searchline.kv-tools", {}, this.#only), el("div.kv-diagnosis", {}, this.#rows.root, el("div.kv-findings", { tabindex: 0, role: "region", "aria-label": "Diagnosis" }, this.#detail, this.#rest)));
    onHit(this.#rows.root, "missed-row", (row) => {
      const m = this.#list[Number(row.dataset.id)];
      const at = occurrence(m, store.cursor);
      if (at === null) store.go(m.step);
      else store.seek(at);
      store.select({ kind: "node", id: m.node, graph: m.graph });
      this.#choose(Number(row.dataset.id));
    }, signal);
    onHit(this.#rest, "held-row", (row) => {
      store.go(Number(row.dataset.step));
      store.select({ kind: "storage", id: Number(row.dataset.id) });
    }, signal);
    onResize(host, () => {
      this.#shown = host.clientWidth > 0;
      this.#want();
    }, signal);
  }

  /** Whoever looks at the list of a run that goes on gets its diagnosis. */
  #want(): void {
    if (this.#shown) this.reports.want();
  }

  update(change: Change): void {
    if (change.payload || change.report) this.#fill();
    if (change.cursor || change.payload || change.selection) this.#light(change.selection);
  }

  #fill(): void {
    this.#all = missed(this.store.t, this.store.report);
    this.counted(this.#all.length);
    // what saves nothing in sum comes last
    const fixed = this.#all.filter((m) => m.fixes.length).sort((a, b) => vain(a) - vain(b));
    this.#list = this.#only.ariaPressed === "true" && fixed.length ? fixed : this.#all;
    say(this.#only, `with a fix ${count(fixed.length)}`);
    this.#only.hidden = !fixed.length;
    this.#rows.clear();
    this.#choose(Math.min(this.#chosen, Math.max(0, this.#list.length - 1)));
    this.#others();
    this.#light(false);
  }

  #row(i: number): HTMLElement {
    const { p, x } = this.store.t;
    const m = this.#list[i];
    const g = p.graphs[m.graph];
    const codes = [...new Set(m.reasons.map((r) => r.code))].join(", ");
    return el("tr", { "data-kv": "missed-row", "data-id": i, "data-node": m.node, "data-step": m.step, title: `${g.nodes[m.node][0]}${m.frame ? ` in ${m.frame}` : ""}\nsteps ${m.steps.slice(0, 12).map((s) => numberOf(this.store.t, s)).join(", ")}${m.times > 12 ? " …" : ""}` },
      td(el("b", {}, bytes(m.bytes)), NUMBER), td(m.effect === null ? "" : drop(m.effect), NUMBER, { "data-zero": m.effect ? null : 1 }),
      td(opName(g.nodes[m.node][1]), "kv-op"), td(shortName(g, m.node)), td(g.blocks[x.graphs[m.graph].block[m.node]]?.title ?? "", "kv-soft"),
      td(`${count(m.times)}×`, NUMBER), td(el("code", {}, codes), "", { title: codes }), td(m.fixes[0]?.label ?? "", "", { title: m.fixes[0]?.sentence }));
  }

  /** What an entry is sorted by in a column. */
  #key(head: string, m: Missed): number | string | null {
    const g = this.store.t.p.graphs[m.graph];
    switch (head) {
      case "bytes": return m.bytes;
      case "peak": return m.effect;
      case "op": return opName(g.nodes[m.node][1]);
      case "name": return shortName(g, m.node);
      case "block": return g.blocks[this.store.t.x.graphs[m.graph].block[m.node]]?.title ?? null;
      case "times": return m.times;
      case "blocked by": return m.reasons[0]?.code ?? null;
      default: return m.fixes[0]?.label ?? null;
    }
  }

  #choose(i: number): void {
    this.#chosen = i;
    const m = this.#list[i];
    if (!m) return this.#detail.replaceChildren(el("p.kv-none", {}, "Nothing missed: every op that could run in place did."));
    const g = this.store.t.p.graphs[m.graph];
    const peak = m.effect === null ? "" : `; the peak would ${m.effect > 0 ? `drop by ${bytes(m.effect)}` : m.effect ? `rise by ${bytes(-m.effect)}` : "stay"}`;
    const parts: Node[] = [
      el("p.kv-big", {}, opName(g.nodes[m.node][1]), el("span.kv-name", { title: g.nodes[m.node][0] }, shortName(g, m.node) || g.nodes[m.node][0])),
      el("p.kv-soft", {}, `In place, ${m.times === 1 ? "it" : `its ${plural(m.times, "run")}`} would save ${bytes(m.bytes)}${peak}.${m.frame ? ` In ${m.frame}.` : ""}`),
    ];
    // reasons of one input belong together: one fix removes them all, or none does
    const inputs = [...new Set(m.reasons.map((r) => r.value))];
    for (const value of inputs) {
      const mine = m.reasons.filter((r) => r.value === value);
      parts.push(el("ul.kv-blockers", { "data-missed": 1, "aria-label": value ? `Why ${value} was not overwritten` : "Why not in place" },
        ...mine.map((r) => el("li", { "data-kv": "reason", "data-id": r.code }, el("div", {}, el("code", {}, r.code), r.value ? el("code.kv-soft", { title: r.value }, shortValue(r.value)) : ""),
          el("p", {}, r.message, r.culprit && !r.message.includes(r.culprit) ? el("span.kv-soft", {}, ` Culprit: ${r.culprit}.`) : "")))));
      const at = mine.find((r) => r.fix >= 0);
      if (at) parts.push(this.#fix(m.fixes[at.fix], { step: m.step, blocker: m.reasons.indexOf(at) }));
    }
    if (this.store.report && !m.fixes.length && i < this.store.report.missed.length) parts.push(el("p.kv-soft", {}, "No single change removes all reasons of one input."));
    this.#detail.replaceChildren(...parts);
  }

  #fix(fix: Fix, which: object): HTMLElement {
    return fixBox(fix, which, this.store, this.ask, this.signal);
  }

  /** What else the report found: caches, storages held too long, and whose bytes made the peak. */
  #others(): void {
    const r = this.store.report;
    const parts: Node[] = [];
    if (r && r.total > r.missed.length) {
      parts.push(el("p.kv-soft", {}, `Fixes are told of the first ${count(r.missed.length)} of ${count(r.total)}. `,
        button("More", "Diagnose more of them", "more-missed", () => void this.ask({ do: "report", from: r.missed.length }), this.signal)));
    }
    if (r?.caches.length) parts.push(el("h4", {}, "Caches"));
    r?.caches.forEach(({ text, fix }, cache) => {
      parts.push(el("p", { "data-kv": "cache-finding" }, text));
      if (fix) parts.push(this.#fix(fix, { cache }));
    });
    if (r?.held.length) {
      parts.push(el("h4", {}, "Held too long"), el("ul.kv-held", {}, ...r.held.map((h) => el("li", { "data-kv": "held-row", "data-id": h.storage, "data-step": h.last, title: `${h.last < 0 ? "Not used by any step" : `Last used by step ${h.last}`}, ${h.freed < 0 ? "never freed" : `freed by step ${h.freed}`}` },
        el("div", {}, el("code", {}, `B${h.storage}`), el("b", {}, h.name), el("span.kv-num", {}, bytes(h.bytes))), el("p.kv-soft", {}, h.reason + (h.times > 1 ? `, and ${count(h.times - 1)} more like it` : ""))))));
    }
    if (r?.held_rest) parts.push(el("p.kv-soft", {}, `${r.held.length ? "And" : "Held too long:"} ${r.held_rest}.`));
    if (r) {
      parts.push(el("h4", {}, `At the peak: ${bytes(r.peak.bytes)}${r.peak.step === null ? "" : `, step ${count(r.peak.step)}`}`), el("ul.kv-shares", {}, ...r.peak.groups.map((g) => {
        const share = el("i");
        share.style.width = `${(100 * g.bytes) / Math.max(1, r.peak.bytes)}%`;
        const more = g.count - Math.min(g.names.length, NAMES);
        return el("li", {}, el("b", {}, g.group), el("span.kv-num", {}, bytes(g.bytes)), el("span.kv-share", {}, share),
          el("span.kv-soft", { title: g.names.join(", ") }, `${g.names.slice(0, NAMES).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`));
      })));
    }
    if (!r && this.#list.length && this.ask.able()) parts.push(button("Diagnose", "What would change these decisions, and what else was held: asks the kernel", "diagnose", () => this.#want(), this.signal));
    this.#rest.replaceChildren(...parts);
    this.#rest.hidden = !parts.length;
  }

  #light(selected: boolean): void {
    const { cursor, selection, t: { p } } = this.store;
    const node = cursor < 0 ? -1 : p.step.node[cursor];
    const graph = cursor < 0 ? -1 : p.frame.graph[p.step.frame[cursor]];
    const now = this.#list.findIndex((m) => m.node === node && m.graph === graph && m.steps.includes(cursor));
    const lit = selection?.kind === "node" ? this.#list.findIndex((m) => m.node === selection.id && m.graph === selection.graph) : -1;
    if (selected && lit >= 0 && lit !== this.#chosen) this.#choose(lit);
    this.#rows.show(this.#list.length, now, lit >= 0 && selected ? lit : null);
  }
}

/** Whether what a fix saves is spent elsewhere. */
function vain(m: Missed): number {
  return Number(m.fixes.every((fix) => fix.saves <= 0));
}

/** What the peak would change by, were it to drop by this much. */
function drop(n: number): string {
  return n ? signed(-n) : "0";
}
