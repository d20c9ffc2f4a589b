// The module of the hazards: a list of the pairs that only the schedule keeps in order, and the card of one.
import { copy, toPng } from "./picture.js";
import type { Ask } from "./actions.js";
import { button, el, mark, onHit, onKey, svg, toggle } from "./dom.js";
import { bytes, count, opLabel, plural } from "./format.js";
import { pairGroups, pairState, pairText, pathOf, type PairGroup } from "./evidence.js";
import { stepLink } from "./inspectstep.js";
import type { MakePane } from "./lazypane.js";
import { numberOf, opAt } from "./replay.js";
import { executed } from "./select.js";
import type { Change, Store, View } from "./store.js";
import type { Payload } from "./wire.js";

function shapes(p: Payload, pair: number): SVGElement[] {
  const state = pairState(p, pair);
  return p.hazards!.picture.shapes.filter(([, , , when]) => !when || when === state).map(([tag, attributes, field]) => {
    const content = field.startsWith("=") ? field.slice(1) : field && pairText(p, pair, field);
    return tag === "path" && field ? svg("path", { ...attributes, d: content }) : svg(tag, attributes, ...(content ? [content] : []));
  });
}

/** The picture in the page, without headline and sentence. */
export function picture(p: Payload, pair: number): SVGElement {
  const { size: [w, h], head } = p.hazards!.picture;
  return svg("svg", { viewBox: `0 ${head} ${w} ${h - head}`, class: "kv-pair-picture", role: "img", "aria-label": pairText(p, pair, "headline") }, ...shapes(p, pair));
}

/** The picture as a document; `theme`: by default that of the reader. */
export function pictureText(p: Payload, pair: number, theme?: "light" | "dark"): string {
  const { size: [width, height], styles: [light, dark], font } = p.hazards!.picture;
  const style = theme ? (theme === "dark" ? dark : light) : `${light}@media (prefers-color-scheme:dark){${dark}}`;
  const out = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": font, role: "img" },
    svg("title", {}, pairText(p, pair, "headline")), svg("style", {}, style), ...shapes(p, pair));
  return new XMLSerializer().serializeToString(out);
}

const MOST = 200; // members of an open group that are listed

class HazardsPane implements View {
  readonly slow = true;
  #list = el("div.kv-pairs", { role: "group", "aria-label": "Hidden pairs", "data-kv": "pairs" });
  #card = el("section.kv-pair", { "aria-label": "The chosen pair", "data-kv": "pair-card" });
  #groups: PairGroup[] = [];
  #open = new Set<string>(); // unfolded groups, by their hook and number
  #shown = "";
  #chosen = -1; // stays here when another op is chosen
  #copies: HTMLElement;
  #look: HTMLElement;
  #also: HTMLButtonElement; // whether pairs that the graph keeps in order are listed
  #path = -1; // the chosen one of them

  constructor(host: HTMLElement, private store: Store, ask: Ask, signal: AbortSignal) {
    host.append(el("div.kv-hazards", {}, this.#list, this.#card));
    const said = (done: Promise<string>) => void done.then((text) => store.tell(`Picture ${text}`), (error) => store.tell(String(error)));
    this.#copies = el("span.kv-pair-copy", {},
      button("Copy SVG", "The picture as SVG, for light and dark grounds", "pair-svg", () => said(copy(new Blob([pictureText(store.t.p, this.#chosen)], { type: "text/plain" }), "text/plain", "hidden-pair.svg")), signal),
      button("Copy PNG", "The picture as PNG", "pair-png", () => {
        const dark = this.#card.closest(".kvviz")?.getAttribute("data-theme") === "dark";
        said(copy(toPng(pictureText(store.t.p, this.#chosen, dark ? "dark" : "light")), "image/png", "hidden-pair.png"));
      }, signal));
    this.#look = button("Look for hidden dependencies", "Compare what the steps read and write with the order that the graph guarantees", "pair-look", () => {
      if (ask({ do: "hazards" })) store.tell("asked the kernel to look for hidden dependencies …");
    }, signal);
    this.#also = toggle("Ordered too", "List also the pairs that a path of the graph keeps in order", "pairs-ordered", (on) => {
      if (!on) this.#path = -1;
      this.#fill();
      this.#draw();
    }, signal);
    for (const kv of ["pair-group", "ordered-group"] as const) onHit(this.#list, kv, (node) => this.#toggle(kv, Number(node.dataset.id)), signal);
    onHit(this.#list, "ordered", (node) => this.#follow(Number(node.dataset.id)), signal);
    onHit(this.#list, "pair", (node) => this.#choose(Number(node.dataset.id)), signal);
    onKey(this.#list, (key, event) => {
      const by = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
      if (!by) return false;
      const rows = [...this.#list.querySelectorAll<HTMLElement>("button")];
      rows[rows.indexOf(event.target as HTMLElement) + by]?.focus();
    }, signal);
  }

  /** Show a pair that the graph keeps in order. */
  #follow(pair: number): void {
    const { store } = this;
    const step = store.t.p.ordered.second[pair];
    store.seek(step);
    store.select(executed(store.t, step));
    this.#path = pair;
    this.#draw();
  }

  #choose(pair: number): void {
    const { store } = this;
    this.#chosen = pair;
    this.#path = -1;
    store.seek(store.t.p.pair.second[pair]);
    store.choosePair(pair);
  }

  /** Fold a group or unfold it; of hidden pairs the first is then chosen, and a single one always. */
  #toggle(kv: "pair-group" | "ordered-group", group: number): void {
    const key = `${kv} ${group}`;
    const pairs = kv === "pair-group" ? this.#groups.find((one) => one.group === group)!.pairs : [];
    if (pairs.length === 1) this.#choose(pairs[0]);
    else if (!this.#open.delete(key)) {
      this.#open.add(key);
      if (pairs.length) this.#choose(pairs[0]);
    }
    this.#fill();
    this.#list.querySelector<HTMLElement>(`[data-kv="${kv}"][data-id="${group}"]`)?.focus();
  }

  update(change: Change): void {
    const { store } = this;
    if (change.payload) {
      this.#groups = pairGroups(store.t.p, "pair");
      this.#chosen = this.#groups[0]?.pairs[0] ?? -1;
      this.#path = -1;
      this.#shown = "";
    }
    if (store.pair >= 0) {
      this.#chosen = store.pair;
      this.#path = -1;
    }
    if (change.payload) this.#fill();
    if (change.payload || change.selection) this.#draw();
  }

  #fill(): void {
    const { p } = this.store;
    const h = p.hazards;
    if (!h) return this.#list.replaceChildren(el("p.kv-soft", {}, "Steps that only the schedule keeps in order were not looked for in this recording."), this.#look);
    const ordered = this.#ordered();
    if (!h.total) {
      this.#list.replaceChildren(el("p.kv-none", {}, "Nothing is hidden: the graph itself keeps all steps in order."), ...ordered);
      return this.#mark();
    }
    const said = `${h.says}${h.total > p.pair.first.length ? `; the first ${count(p.pair.first.length)} are listed` : ""}`;
    this.#list.replaceChildren(el("p.kv-soft", { "data-kv": "pair-counts" }, said), ...this.#groups.flatMap((group) => this.#group("pair-group", group, (pair) =>
      this.#row("pair", pair, pairState(p, pair), el("b", {}, `${pairText(p, pair, "op1")} → ${pairText(p, pair, "op2")}`), p.pair.exact[pair]))), ...ordered);
    this.#mark();
  }

  /** The switch for pairs that the graph keeps in order, and their groups. */
  #ordered(): HTMLElement[] {
    const { p } = this.store;
    const known = p.hazards?.ordered;
    if (!known?.total) return [];
    const on = this.#also.ariaPressed === "true";
    const some = known.runs < known.of ? ` of the first ${plural(known.runs, "run")}` : "";
    const more = known.total > p.ordered.first.length ? `, the first ${count(p.ordered.first.length)} are listed` : "";
    const head = el("div.kv-pair-also", {}, this.#also, el("span.kv-soft", { "data-kv": "ordered-count" }, `${plural(known.total, "pair")}${some} that a path of the graph keeps in order${more}`));
    if (!on) return [head];
    return [head, ...pairGroups(p, "ordered").flatMap((group) => this.#group("ordered-group", group, (pair) => {
      const between = pathOf(p, pair).length - 2;
      return this.#row("ordered", pair, "ordered", el("span", {}, between > 0 ? `by way of ${plural(between, "op")}` : "an edge joins them"), p.ordered.bytes[pair]);
    }))];
  }

  #pathCard(pair: number): HTMLElement[] {
    const { t, p } = this.store;
    const name = (step: number) => opLabel(opAt(t, step).g, opAt(t, step).node);
    const view = (side: "first" | "second", of: "view1" | "view2") => el("p", {}, stepLink(t, p.ordered[side][pair]), ` ${p.strings[p.ordered[of][pair]]}`);
    const path = pathOf(p, pair).map((step, i) => el("li", {}, i ? "→ " : "", stepLink(t, step), ` ${name(step)}`));
    return [
      el("div.kv-pair-head", { "data-state": "ordered" }, el("h4", {}, "A path of the graph keeps these two in order"),
        el("p", { "data-kv": "pair-sentence" }, `${p.strings[p.ordered.kind[pair]]}, ${bytes(p.ordered.bytes[pair])} of ${p.strings[p.ordered.root[pair]]}`)),
      el("div.kv-pair-views", {}, view("first", "view1"), view("second", "view2")),
      el("h4", {}, "The path"), el("ol.kv-pair-path", { "data-kv": "pair-path", "aria-label": "The path that orders them" }, ...path)];
  }

  /** A group, and its pairs if it is open; a single hidden pair needs no unfolding. */
  #group(kv: "pair-group" | "ordered-group", { group, title, state, pairs }: PairGroup, row: (pair: number) => HTMLElement): HTMLElement[] {
    const open = this.#open.has(`${kv} ${group}`);
    const alone = kv === "pair-group" && pairs.length === 1;
    const head = el("button.kv-pair-group", { "data-kv": kv, "data-id": group, "data-state": state, "aria-expanded": alone ? null : String(open), "data-pair": alone ? pairs[0] : null }, title);
    const rest = pairs.length > MOST ? [el("p.kv-soft", {}, `and ${count(pairs.length - MOST)} more`)] : [];
    return open ? [head, ...pairs.slice(0, MOST).map(row), ...rest] : [head];
  }

  #row(kv: "pair" | "ordered", pair: number, state: string, what: Node, shared: number): HTMLElement {
    const { t } = this.store;
    const { first, second, root } = t.p[kv];
    return el("button.kv-pair-row", { "data-kv": kv, "data-id": pair, [`data-${kv}`]: pair, "data-state": state },
      el("span.kv-num", {}, `${count(numberOf(t, first[pair]))} → ${count(numberOf(t, second[pair]))}`), what, el("span", {}, t.p.strings[root[pair]]), el("span.kv-num", {}, bytes(shared)));
  }

  #mark(): void {
    for (const row of this.#list.querySelectorAll<HTMLElement>("[data-pair]")) mark(row, "aria-current", this.#path < 0 && Number(row.dataset.pair) === this.#chosen ? "true" : null);
    for (const row of this.#list.querySelectorAll<HTMLElement>("[data-ordered]")) mark(row, "aria-current", Number(row.dataset.ordered) === this.#path ? "true" : null);
  }

  #draw(): void {
    this.#mark();
    const { t, p } = this.store;
    const [pair, path] = [this.#chosen, this.#path];
    if (this.#shown === `${pair} ${path}`) return;
    this.#shown = `${pair} ${path}`;
    this.#card.hidden = pair < 0 && path < 0;
    if (path >= 0) return this.#card.replaceChildren(...this.#pathCard(path));
    if (pair < 0) return;
    const text = (name: string) => pairText(p, pair, name);
    const step = (side: "first" | "second", n: number) => el("p", {}, stepLink(t, p.pair[side][pair]), ` ${text(`op${n}`)} `, el("span.kv-soft", {}, text(`name${n}`)));
    this.#card.replaceChildren(
      el("div.kv-pair-head", { "data-state": pairState(p, pair) }, el("h4", {}, text("headline")), el("p", { "data-kv": "pair-sentence" }, p.strings[p.pair.sentence[pair]])),
      el("div.kv-pair-steps", {}, step("first", 1), step("second", 2), this.#copies),
      this.#bars(pair),
      picture(p, pair));
  }

  /** The bytes of both sides and the shared ones, and what each precision says. */
  #bars(pair: number): HTMLElement {
    const { p } = this.store;
    const text = (name: string) => pairText(p, pair, name);
    const rows = ([["view1", "span1", "path1", "p-one"], ["view2", "span2", "path2", "p-two"], ["shared", "span3", "path3", "p-red"]] as const).map(([view, span, path, look]) =>
      el("div.kv-pair-bar", { "data-kv": "pair-bar" }, el("span", { title: `${text(view)}, ${text(span)}` }, text(view)), el("span.kv-soft", {}, text(span)),
        svg("svg", { viewBox: `0 0 ${p.hazards!.picture.bar} 14`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { d: text(path), class: look }))));
    const says = ([["whole root", "says_root"], ["first to last byte", "says_range"], ["exact bytes", "says_exact"]] as const).map(([name, field]) => el("li", { "data-kv": "pair-says" }, el("span.kv-soft", {}, `${name}: `), text(field)));
    return el("div.kv-pair-bars", { "data-kv": "pair-bars" }, el("ul.kv-pair-says", {}, ...says), ...rows, el("p.kv-soft", {}, text("root")));
  }
}

export default ((host, { store, ask }, signal) => new HazardsPane(host, store, ask, signal)) satisfies MakePane;
