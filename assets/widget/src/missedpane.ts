// The diagnosis: kinds of missed in-place ops, worst first, with reasons and fixes, and what else was held at the peak.
// A kind opens to its layers, a layer to its tokens.
import { button, el, mark, NUMBER, onHit, onKey, onResize, say, td, toggle } from "./dom.js";
import { fixBox } from "./inspectparts.js";
import { bytes, count, opName, plural, shortName, shortValue } from "./format.js";
import { kinds, lines, missed, small, type Kind, type Line } from "./missed.js";
import type { Context, MakePane } from "./lazypane.js";
import { Rows } from "./rows.js";
import type { Change, View } from "./store.js";
import type { Graph, Missed, Reason } from "./wire.js";

const NAMES = 3; // of a group at the peak

function findings({ store, ask }: Context, signal: AbortSignal): Node[] {
  const r = store.report;
  if (!r) return [];
  const parts: Node[] = [];
  if (r.total > r.missed.length) {
    parts.push(el("p.kv-soft", {}, `Fixes are shown for the worst op of each kind, and for the first ${count(r.missed.length)} of ${count(r.total)} nodes. `,
      button("More", "Diagnose more of them", "more-missed", () => void ask({ do: "report", from: r.missed.length }), signal)));
  }
  if (r.caches.length) parts.push(el("h4", {}, "Caches"));
  r.caches.forEach(({ text, fix }, cache) => {
    parts.push(el("p", { "data-kv": "cache-finding" }, text));
    if (fix) parts.push(fixBox(fix, { cache }, store, ask, signal));
  });
  if (r.held.length) {
    parts.push(el("h4", {}, "Held too long"), el("ul.kv-held", {}, ...r.held.map((h) => el("li", { "data-kv": "held-row", "data-id": h.storage, "data-step": h.last, title: `${h.last < 0 ? "Not used by any step" : `Last used by step ${h.last}`}, ${h.freed < 0 ? "never freed" : `freed by step ${h.freed}`}` },
      el("div", {}, el("code", {}, `B${h.storage}`), el("b", {}, h.name), (h.layers ?? 1) > 1 ? el("span.kv-soft", {}, ` × ${count(h.layers!)} layers`) : "", el("span.kv-num", { title: h.times > 1 ? `${bytes(h.bytes)} of it in this one` : "" }, bytes(h.all ?? h.bytes))), el("p.kv-soft", {}, h.reason + (h.times > 1 ? `, and ${count(h.times - 1)} more like it` : ""))))));
  }
  if (r.held_rest) parts.push(el("p.kv-soft", {}, `${r.held.length ? "And" : "Held too long:"} ${r.held_rest}.`));
  parts.push(el("h4", {}, `At the peak: ${bytes(r.peak.bytes)}${r.peak.step === null ? "" : `, step ${count(r.peak.step)}`}`), el("ul.kv-shares", {}, ...r.peak.groups.map((g) => {
    const share = el("i");
    share.style.width = `${(100 * g.bytes) / Math.max(1, r.peak.bytes)}%`;
    const more = g.count - Math.min(g.names.length, NAMES);
    return el("li", {}, el("b", {}, g.group), el("span.kv-num", {}, bytes(g.bytes)), el("span.kv-share", {}, share),
      el("span.kv-soft", { title: g.names.join(", ") }, `${g.names.slice(0, NAMES).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`));
  })));
  return parts;
}

const HEADS = ["bytes#", "op", "role", "layers#", "tokens#", "blocked by", "fix"];

class MissedPane implements View {
  readonly slow = true;
  #all: Kind[] = [];
  #list: Line[] = []; // those that are shown
  #open = new Set<string>();
  #only: HTMLButtonElement;
  #few: HTMLButtonElement;
  #chosen = 0;
  #rows: Rows;
  #detail = el("div.kv-detail", { "aria-live": "polite", "data-kv": "diagnosis" });
  #rest = el("div.kv-detail");

  constructor(host: HTMLElement, private context: Context, private signal: AbortSignal) {
    const { store } = context;
    const anew = () => {
      this.#chosen = 0;
      this.#fill();
    };
    this.#only = toggle("", "List only ops with a known fix", "only-fixes", anew, signal);
    this.#few = toggle("", "List kinds that spent few bytes too, such as ops that compute shapes", "all-kinds", anew, signal);
    this.#rows = new Rows("Missed in-place ops", "kv-missed", HEADS, store, (row) => this.#row(row), signal);
    mark(this.#rows.root.querySelector("table")!, "role", "treegrid"); // its rows unfold
    this.#rows.sortable((head, row) => sortKey(head, this.#list[row].kind, store.t.p.graphs));
    host.append(el("div.kv-searchline.kv-tools", {}, this.#only, this.#few), el("div.kv-diagnosis", {}, this.#rows.root, el("div.kv-findings", { tabindex: 0, role: "region", "aria-label": "Diagnosis" }, this.#detail, this.#rest)));
    onHit(this.#rows.root, "missed-row", (row) => this.#choose(Number(row.dataset.id), true), signal);
    onHit(this.#rows.root, "missed-row", (row) => store.go(this.#list[Number(row.dataset.id)].step), signal, "dblclick");
    onHit(this.#rows.root, "missed-open", (mark) => this.#toggle(Number(mark.dataset.id)), signal);
    onKey(this.#rows.root, (key) => this.#key(key), signal);
    onHit(this.#rest, "held-row", (row) => store.select({ kind: "storage", id: Number(row.dataset.id), step: Number(row.dataset.step) }), signal);
    onHit(this.#rest, "held-row", (row) => store.go(Number(row.dataset.step)), signal, "dblclick");
    onResize(host, () => { if (host.clientWidth) this.#want(); }, signal);
  }

  #want(): void { this.context.reports.want(); }

  update(change: Change): void {
    if (change.payload || change.report) this.#fill();
    if (change.cursor || change.payload || change.selection) this.#light(change.selection);
  }

  #fill(): void {
    const { store } = this.context;
    const all = kinds(store.t, missed(store.t, store.report));
    // fixes that save nothing come last
    const fixed = all.filter((kind) => fixOf(kind)).sort((a, b) => vain(a) - vain(b));
    const least = small(store.t, store.report, all);
    const few = all.filter((kind) => kind.bytes < least);
    const only = this.#only.ariaPressed === "true" && fixed.length > 0;
    this.#all = only ? fixed : this.#few.ariaPressed === "true" ? all : all.filter((kind) => !few.includes(kind));
    say(this.#only, `with a fix ${count(fixed.length)}`);
    say(this.#few, `${this.#few.ariaPressed === "true" ? "shown" : "hidden"}: ${count(few.length)}`);
    this.#few.title = `${plural(few.length, "kind")} that spent less than ${bytes(least)}, such as ops that compute shapes`;
    this.#only.hidden = !fixed.length;
    this.#few.hidden = !few.length || only;
    this.#draw();
    this.#choose(Math.min(this.#chosen, Math.max(0, this.#list.length - 1)));
    const parts = findings(this.context, this.signal);
    if (!store.report && this.#list.length && this.context.ask.able()) parts.push(button("Diagnose", "What would change these decisions, and what else was held: asks the kernel", "diagnose", () => this.#want(), this.signal));
    this.#rest.replaceChildren(...parts);
    this.#rest.hidden = !parts.length;
    this.#light(false);
  }

  #draw(): void {
    this.#list = lines(this.context.store.t, this.#all, this.#open);
    this.#rows.clear();
  }

  #toggle(i: number): void {
    const line = this.#list[i];
    if (!line || line.open === null) return;
    if (!this.#open.delete(line.key)) this.#open.add(line.key);
    this.#draw();
    this.#light(false);
  }

  #key(key: string): boolean | void {
    const line = this.#list[this.#chosen];
    const move = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (!line) return false;
    if (move) this.#choose(Math.max(0, Math.min(this.#list.length - 1, this.#chosen + move)), true);
    else if (key === "Enter") this.context.store.go(line.step);
    else if (key !== "ArrowRight" && key !== "ArrowLeft") return false;
    else if (line.open === (key === "ArrowLeft")) this.#toggle(this.#chosen);
  }

  #row(i: number): HTMLElement {
    const { p } = this.context.store.t;
    const line = this.#list[i];
    const { kind, entry } = line;
    const g = p.graphs[entry.graph];
    const codes = [...new Set(entry.reasons.map((r) => r.code))].join(", ");
    const layer = g.layer[entry.node] ?? -1;
    const caret = line.open === null ? "" : el("button", { class: "kv-caret-fold", "data-kv": "missed-open", "data-id": i, tabindex: -1, "aria-label": line.open ? "Fold" : "Open" }, line.open ? "▾" : "▸");
    const deep = line.depth > 0;
    const role = line.depth === 2 ? `step ${count(line.step)}` : deep ? shortName(g, entry.node) || g.nodes[entry.node][0] : kind.role;
    const fix = line.depth === 2 ? undefined : entry.fixes[0];
    return el("tr", { "data-kv": "missed-row", "data-id": i, "data-depth": line.depth, "data-node": entry.node, "data-step": line.step, "data-chosen": i === this.#chosen ? 1 : null, "aria-expanded": line.open === null ? null : String(line.open), title: `${g.nodes[entry.node][0]}${entry.frame ? ` in ${entry.frame}` : ""}` },
      td(el("b", {}, bytes(line.bytes)), NUMBER),
      el("td.kv-op", {}, caret, opName(g.nodes[entry.node][1])), td(el("bdi", {}, role), "kv-role", { title: role }),
      td(deep ? (layer < 0 ? "" : `layer ${layer}`) : kind.layers.length > 1 ? count(kind.layers.length) : layer < 0 ? "–" : `layer ${layer}`, NUMBER),
      td(line.depth === 2 ? p.runs[runOf(this.context, line)]?.label ?? "" : count(deep ? entry.times : kind.runs), NUMBER, { title: `${plural(deep ? entry.times : kind.times, "step")}` }),
      td(line.depth === 2 ? "" : el("code", {}, codes), "", { title: codes }), td(fix?.label ?? "", "", { title: fix?.sentence }));
  }

  #choose(i: number, person = false): void {
    this.#chosen = i;
    const line = this.#list[i];
    for (const row of this.#rows.root.querySelectorAll<HTMLElement>("[data-kv=missed-row]")) row.toggleAttribute("data-chosen", row.dataset.id === String(i));
    if (!line) return this.#detail.replaceChildren(el("p.kv-none", {}, "Nothing missed: every op that could run in place did."));
    if (person) {
      this.context.store.select({ kind: "node", id: line.entry.node, graph: line.entry.graph, step: line.step });
      this.#light(true);
    }
    this.#tell(line);
  }

  #tell({ kind, entry, depth }: Line): void {
    const { store, ask } = this.context;
    const g = store.t.p.graphs[entry.graph];
    const [times, spent] = depth ? [entry.times, entry.bytes] : [kind.times, kind.bytes];
    const parts: Node[] = [
      el("p.kv-big", {}, opName(g.nodes[entry.node][1]), el("span.kv-name", { title: g.nodes[entry.node][0] }, depth ? shortName(g, entry.node) || g.nodes[entry.node][0] : kind.role)),
      el("p.kv-soft", {}, `${often(kind, depth)}Not in place, ${times === 1 ? "it" : `its ${plural(times, "run")}`} spent ${bytes(spent)}.${entry.frame ? ` In ${entry.frame}.` : ""}`),
    ];
    // one fix removes all reasons of an input
    for (const value of new Set(entry.reasons.map((r) => r.value))) {
      const mine = entry.reasons.filter((r) => r.value === value);
      parts.push(el("ul.kv-blockers", { "data-missed": 1, "aria-label": value ? `Why ${value} was not overwritten` : "Why not in place" }, ...mine.map(reason)));
      const at = mine.find((r) => r.fix >= 0);
      if (at) parts.push(fixBox(entry.fixes[at.fix], { step: entry.step, blocker: entry.reasons.indexOf(at) }, store, ask, this.signal));
    }
    const diagnosed = store.report && [...store.report.missed, ...(store.report.worst ?? [])].includes(entry);
    if (diagnosed && !entry.fixes.length) parts.push(el("p.kv-soft", {}, "No single change removes all reasons of one input."));
    this.#detail.replaceChildren(...parts);
  }

  /** Mark the row of the cursor, and reveal that of the selection. */
  #light(selected: boolean): void {
    const { cursor, selection, t: { p } } = this.context.store;
    const graph = cursor < 0 ? -1 : p.frame.graph[p.step.frame[cursor]];
    const has = (m: Missed, node: number, g: number | undefined) => m.node === node && m.graph === g;
    const find = (test: (m: Missed) => boolean) => {
      const own = this.#list.findIndex((line) => line.depth > 0 && test(line.entry));
      return own >= 0 ? own : this.#list.findIndex((line) => line.depth === 0 && line.kind.entries.some(test));
    };
    const now = cursor < 0 ? -1 : find((m) => has(m, p.step.node[cursor], graph) && m.steps.includes(cursor));
    const chosen = this.#list[this.#chosen]?.entry;
    const stays = chosen && selection?.kind === "node" && has(chosen, selection.id, selection.graph);
    const lit = stays ? this.#chosen : selected && selection?.kind === "node" ? find((m) => has(m, selection.id, selection.graph)) : -1;
    if (selected && lit >= 0 && lit !== this.#chosen) this.#choose(lit);
    this.#rows.show(this.#list.length, now, selected && lit >= 0 ? lit : null);
  }
}

function often(kind: Kind, depth: number): string {
  if (depth) return "";
  const parts = [kind.layers.length > 1 ? plural(kind.layers.length, "layer") : "", kind.runs > 1 ? plural(kind.runs, "token") : ""].filter(Boolean);
  return parts.length ? `${parts.join(" × ")}. ` : "";
}

function reason(r: Reason): HTMLElement {
  const culprit = r.culprit && !r.message.includes(r.culprit) ? el("span.kv-soft", {}, ` Culprit: ${r.culprit}.`) : "";
  return el("li", { "data-kv": "reason", "data-id": r.code }, el("div", {}, el("code", {}, r.code), r.value ? el("code.kv-soft", { title: r.value }, shortValue(r.value)) : ""), el("p", {}, r.message, culprit));
}

function runOf({ store: { t } }: Context, line: Line): number {
  const at = line.entry.steps.find((s) => line.key.endsWith(`\n${s}`)) ?? -1;
  return at < 0 ? -1 : t.x.run[at];
}

/** The sort key of a kind; open lines below it stay with it. */
function sortKey(head: string, kind: Kind, graphs: Graph[]): number | string | null {
  const [worst] = kind.entries;
  switch (head) {
    case "bytes": return kind.bytes;
    case "op": return opName(graphs[worst.graph].nodes[worst.node][1]);
    case "role": return kind.role;
    case "layers": return kind.layers.length;
    case "tokens": return kind.runs;
    case "blocked by": return worst.reasons[0]?.code ?? null;
    default: return fixOf(kind)?.label ?? null;
  }
}

const fixOf = (kind: Kind) => kind.entries[0].fixes[0];
const vain = (kind: Kind) => Number((fixOf(kind)?.saves ?? 0) <= 0);

export default ((host, context, signal) => new MissedPane(host, context, signal)) satisfies MakePane;
