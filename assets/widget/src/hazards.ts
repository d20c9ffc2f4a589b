// The module of the hazards: a list of the pairs that only the order of the steps keeps right, and the card of one.
import { copy } from "./clipboard.js";
import type { Ask } from "./commands.js";
import { button, el, mark, on, onHit } from "./dom.js";
import { bytes, count } from "./format.js";
import { pairGroups, pairState, pairText, type PairGroup } from "./hiddenpairs.js";
import { stepLink } from "./inspectparts.js";
import type { Context } from "./lazypane.js";
import { picture, pictureText } from "./pairpicture.js";
import { toPng } from "./picture.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";

const MOST = 200; // members of an open group that are listed

class HazardsPane implements View {
  readonly slow = true;
  #list = el("div.kv-pairs", { role: "group", "aria-label": "Hidden pairs", "data-kv": "pairs" });
  #card = el("section.kv-pair", { "aria-label": "The chosen pair", "data-kv": "pair-card" });
  #groups: PairGroup[] = [];
  #open = new Set<number>();
  #shown = -2;
  #chosen = -1; // stays here when another op is chosen
  #copies: HTMLElement;
  #look: HTMLElement;

  constructor(host: HTMLElement, private store: Store, ask: Ask, signal: AbortSignal) {
    host.append(el("div.kv-hazards", {}, this.#list, this.#card));
    const said = (done: Promise<string>) => void done.then((text) => store.tell(`Picture ${text}`), (error) => store.tell(String(error)));
    this.#copies = el("span.kv-pair-copy", {},
      button("Copy SVG", "The picture as SVG, for light and dark grounds", "pair-svg", () => said(this.#copySvg()), signal),
      button("Copy PNG", "The picture as PNG", "pair-png", () => said(this.#copyPng()), signal));
    this.#look = button("Look for hidden dependencies", "Compare all that the steps read and write, and what the graph keeps in order", "pair-look", () => {
      if (ask({ do: "hazards" })) store.tell("asked the kernel to look for hidden dependencies …");
    }, signal);
    onHit(this.#list, "pair", (node) => this.#choose(Number(node.dataset.id)), signal);
    onHit(this.#list, "pair-group", (node) => this.#toggle(Number(node.dataset.id)), signal);
    onHit(this.#card, "step-link", (node) => store.go(Number(node.dataset.step)), signal);
    on(this.#list, "keydown", (event) => this.#key(event), signal);
  }

  #choose(pair: number): void {
    const { store } = this;
    this.#chosen = pair;
    store.seek(store.t.p.pair.second[pair]);
    store.choosePair(pair);
  }

  #toggle(group: number): void {
    const { pairs } = this.#groups.find((one) => one.group === group)!;
    if (pairs.length > 1 && !this.#open.delete(group)) this.#open.add(group);
    if (this.#open.has(group) || pairs.length === 1) this.#choose(pairs[0]);
    this.#fill();
  }

  #key(event: KeyboardEvent): void {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    const rows = [...this.#list.querySelectorAll<HTMLElement>("button")];
    rows[rows.indexOf(event.target as HTMLElement) + by]?.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  update(change: Change): void {
    const { store } = this;
    if (change.payload) {
      this.#groups = pairGroups(store.t.p);
      this.#chosen = this.#groups[0]?.pairs[0] ?? -1;
      this.#shown = -2;
    }
    if (store.pair >= 0) this.#chosen = store.pair;
    if (change.payload) this.#fill();
    if (change.payload || change.selection) this.#draw();
  }

  #fill(): void {
    const { p } = this.store.t;
    const h = p.hazards;
    if (!h) return this.#list.replaceChildren(el("p.kv-soft", {}, "Steps that only the schedule keeps in order were not looked for in this recording."), this.#look);
    if (!h.total) return this.#list.replaceChildren(el("p.kv-none", {}, "Nothing is hidden: the graph itself keeps all steps in order."));
    const [exact, range, root] = h.counts;
    const told = `${count(exact)} in exact bytes; ranges would say ${count(range)}, whole roots ${count(root)}${h.total > p.pair.first.length ? `; the first ${count(p.pair.first.length)} are listed` : ""}`;
    this.#list.replaceChildren(el("p.kv-soft", { "data-kv": "pair-counts" }, told), ...this.#groups.flatMap((group) => this.#group(group)));
    this.#mark();
  }

  #group({ group, title, state, pairs }: PairGroup): HTMLElement[] {
    const open = this.#open.has(group);
    const head = el("button.kv-pair-group", { "data-kv": "pair-group", "data-id": group, "data-state": state, "aria-expanded": pairs.length > 1 ? String(open) : null, "data-pair": pairs.length === 1 ? pairs[0] : null }, title);
    if (!open) return [head];
    return [head, ...pairs.slice(0, MOST).map((pair) => this.#row(pair)), ...(pairs.length > MOST ? [el("p.kv-soft", {}, `and ${count(pairs.length - MOST)} more`)] : [])];
  }

  #row(pair: number): HTMLElement {
    const { t } = this.store;
    const { p } = t;
    const text = (name: string) => pairText(p, pair, name);
    const steps = `${count(numberOf(t, p.pair.first[pair]))} → ${count(numberOf(t, p.pair.second[pair]))}`;
    return el("button.kv-pair-row", { "data-kv": "pair", "data-id": pair, "data-pair": pair, "data-state": pairState(p, pair) },
      el("span.kv-num", {}, steps), el("b", {}, `${text("op1")} → ${text("op2")}`), el("span", {}, p.strings[p.pair.root[pair]]), el("span.kv-num", {}, bytes(p.pair.exact[pair])));
  }

  #mark(): void {
    for (const row of this.#list.querySelectorAll<HTMLElement>("[data-pair]")) mark(row, "aria-current", Number(row.dataset.pair) === this.#chosen ? "true" : null);
  }

  #draw(): void {
    this.#mark();
    const { t } = this.store;
    const { p } = t;
    if (this.#chosen === this.#shown) return;
    const pair = (this.#shown = this.#chosen);
    this.#card.hidden = pair < 0;
    if (pair < 0) return;
    const text = (name: string) => pairText(p, pair, name);
    const step = (side: "first" | "second", n: number) => el("p", {}, stepLink(t, p.pair[side][pair]), ` ${text(`op${n}`)} `, el("span.kv-soft", {}, text(`name${n}`)));
    this.#card.replaceChildren(
      el("div.kv-pair-head", { "data-state": pairState(p, pair) }, el("h4", {}, text("headline")), el("p", { "data-kv": "pair-sentence" }, p.strings[p.pair.sentence[pair]])),
      el("div.kv-pair-steps", {}, step("first", 1), step("second", 2), this.#copies),
      picture(p, pair));
  }

  #copySvg(): Promise<string> {
    return copy(new Blob([pictureText(this.store.t.p, this.#chosen)], { type: "text/plain" }), "text/plain", "hidden-pair.svg");
  }

  #copyPng(): Promise<string> {
    const dark = this.#card.closest(".kvviz")?.getAttribute("data-theme") === "dark";
    return copy(toPng(pictureText(this.store.t.p, this.#chosen, dark ? "dark" : "light")), "image/png", "hidden-pair.png");
  }
}

export default function make(host: HTMLElement, context: Context, signal: AbortSignal): View {
  return new HazardsPane(host, context.store, context.ask, signal);
}
