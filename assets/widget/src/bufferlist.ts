// The list of buffers at the cursor: one bar per storage, its length its bytes, coloured by owner; all weights are one bar.
import { el, hit, mark, on, onHit, place, say, set } from "./dom.js";
import { bytes, count, figure } from "./format.js";
import type { Context } from "./lazypane.js";
import { families, memory, scale, title, type Bar, type Family, type Memory } from "./bufferbars.js";
import type { Change, Store, View } from "./store.js";

interface Row { bar: Bar | null; root: HTMLElement; id: HTMLElement; fill: HTMLElement; label: HTMLElement; note: HTMLElement; size: HTMLElement; shown: string }
const SIGN = { "": "", in_place: "", missed: "⚠\uFE0E", new: "+", freed: "" };
const PARTS: [keyof Memory["held"], string][] = [["weights", "weights"], ["caches", "caches"], ["caller", "caller"], ["run", "run"]];

const idOf = (b: Bar) => (b.gen > 0 ? `B${b.id}.${b.gen}` : `B${b.id}`);

class MemoryPane implements View {
  readonly slow = true;
  #total = el("span.kv-hint");
  #stack = el("div.kv-stack", { "aria-hidden": "true" });
  #legend = el("div.kv-legend");
  #list = el("div.kv-mem", { role: "list", tabindex: 0, "aria-label": "Buffers" });
  #weights = this.#row();
  #small = el("button", { class: "kv-fold", "data-kv": "memory-fold" });
  #smallItem = el("div", { role: "listitem" }, this.#small);
  #more = el("p.kv-none", { role: "listitem" });
  #rows = new Map<number, Row>();
  #unfold = false;
  #open = new Set<string>(); // roles of caches whose layers are told one by one
  #families = new Map<string, HTMLElement>();

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    host.append(el("div.kv-searchline", {}, this.#total), this.#stack, this.#legend, this.#list);
    for (const [key, text] of PARTS) {
      this.#stack.append(el("i", { "data-part": key }));
      this.#legend.append(el("span", { "data-part": key }, el("i", {}), `${text} `, el("b", {})));
    }
    on(this.#small, "click", () => {
      this.#unfold = !this.#unfold;
      this.#draw();
    }, signal);
    onHit(this.#list, "cache-family", (row) => {
      if (!this.#open.delete(row.dataset.id!)) this.#open.add(row.dataset.id!);
      this.#draw();
    }, signal);
    on(this.#list, "pointerover", (event) => {
      const row = hit(event, "storage-bar");
      const bar = row && this.#rows.get(Number(row.dataset.id))?.bar;
      if (bar) row.title = title(store.t, bar, store.cursor);
    }, signal);
    on(this.#list, "click", (event) => {
      const row = hit(event, "storage-bar");
      const { selection } = store;
      if (!row || row === this.#weights.root) return;
      const id = Number(row.dataset.id);
      store.select(selection?.kind === "storage" && selection.id === id ? null : { kind: "storage", id });
    }, signal);
  }

  /** Buffer, bar, what lies in it, bytes. */
  #row(): Row {
    const id = el("span.kv-id");
    const fill = el("i.kv-fill");
    const label = el("span.kv-label");
    const note = el("span.kv-note");
    const size = el("span.kv-num");
    const root = el("div.kv-mem-row", { role: "listitem", "data-kv": "storage-bar" }, id, el("span.kv-track", {}, fill), el("span.kv-text", {}, label, note), size);
    return { bar: null, root, id, fill, label, note, size, shown: "" };
  }

  update(change: Change): void {
    if (change.payload) this.#rows.clear();
    if (change.cursor || change.payload || change.selection) this.#draw();
  }

  #draw(): void {
    const { store } = this;
    const { now, t, cursor } = store;
    const m = memory(t, now, cursor, this.#unfold, now.lit.storages);
    const full = scale(t, now.run);
    const total = m.held.weights + m.held.caches + m.held.caller + m.held.run;
    const { name, about } = figure(t.p, "held");
    say(this.#total, cursor < 0 ? `${bytes(total)} held before the first step` : `${bytes(total)} ${name} this step`);
    this.#total.title = about;
    PARTS.forEach(([key], i) => {
      (this.#stack.children[i] as HTMLElement).style.flexGrow = String(m.held[key]);
      say(this.#legend.children[i].lastElementChild!, bytes(m.held[key]));
      (this.#legend.children[i] as HTMLElement).hidden = m.held[key] === 0;
    });
    this.#weightsRow(t.x.weights, full);
    const nodes: HTMLElement[] = t.x.weights ? [this.#weights.root] : [];
    let active: HTMLElement | null = null;
    const seen = new Set<number>();
    for (const bar of families(t, m.bars, this.#open, now.lit.storages)) {
      if ("members" in bar) {
        nodes.push(this.#family(bar));
        continue;
      }
      let row = this.#rows.get(bar.id);
      if (!row) this.#rows.set(bar.id, (row = this.#row()));
      this.#show(row, bar, full, now.lit.storages.has(bar.id));
      if (bar.use === "written" && bar.state !== "freed") active = row.root;
      nodes.push(row.root);
      seen.add(bar.id);
    }
    for (const id of this.#rows.keys()) if (!seen.has(id)) this.#rows.delete(id);
    if (m.small.count || this.#unfold) {
      say(this.#small, this.#unfold ? "▾ fold small buffers" : `▸ ${count(m.small.count)} small buffers, ${bytes(m.small.bytes)}`);
      nodes.push(this.#smallItem);
    }
    if (m.more.count) {
      say(this.#more, `${count(m.more.count)} more, ${bytes(m.more.bytes)}`);
      nodes.push(this.#more);
    }
    place(this.#list, nodes);
    // what can be opened in it is a stop already
    this.#list.tabIndex = nodes.some((node) => node.firstElementChild instanceof HTMLButtonElement) ? -1 : 0;
    // as wide as the longest name, so that no bar moves while stepping
    const width = Math.max(3, ...m.bars.map((b) => idOf(b).length));
    set(this.#list, "--kv-digits", String(Math.max(width, 5)));
    if (active) store.reveal(this.#list, active);
  }

  /** Caches of one role: how many layers, rows and bytes. */
  #family({ role, members, bytes: sum, open }: Family): HTMLElement {
    let row = this.#families.get(role);
    if (!row) {
      this.#families.set(role, (row = el("button", { class: "kv-fold", "data-kv": "cache-family", "data-id": role })));
      el("div", { role: "listitem" }, row);
    }
    const notes = new Set(members.map((b) => b.note));
    mark(row, "aria-expanded", String(open));
    say(row, `${open ? "▾" : "▸"} ${role} × ${count(members.length)} layers${notes.size === 1 && members[0].note ? `, ${members[0].note} rows each` : ""}, ${bytes(sum)}`);
    return row.parentElement!;
  }

  #weightsRow(weights: number, full: number): void {
    const row = this.#weights;
    mark(row.root, "data-id", "W");
    mark(row.root, "data-origin", "weights");
    say(row.id, "W");
    say(row.label, "all weights");
    say(row.size, bytes(weights));
    row.fill.style.width = `${Math.min(100, (weights / full) * 100)}%`;
    // a bar that would not fit says so instead of shrinking all others
    mark(row.fill, "data-cut", weights > full ? "1" : null);
    row.root.title = `weights, ${bytes(weights)}${weights > full ? "; the bar is cut off" : ""}`;
  }

  #show(row: Row, b: Bar, full: number, lit: boolean): void {
    const key = JSON.stringify([b, full, lit]);
    if (key === row.shown) return;
    row.shown = key;
    row.bar = b;
    const { root, fill } = row;
    mark(root, "data-id", b.id);
    mark(root, "data-origin", b.cache >= 0 ? "cache" : b.origin);
    mark(root, "data-state", b.state || null);
    mark(root, "data-use", b.use || null);
    mark(root, "data-lit", lit ? "1" : null);
    say(row.id, idOf(b));
    say(row.label, b.label);
    say(row.note, `${SIGN[b.state]} ${b.note}`.trim());
    say(row.size, bytes(b.capacity));
    mark(fill, "data-cut", b.capacity > full ? "1" : null);
    fill.style.width = b.capacity > full ? "100%" : `max(3px, ${((b.capacity / full) * 100).toFixed(2)}%)`;
    const inner: HTMLElement[] = [];
    const part = (kind: string, from: number, length: number) => {
      const i = el("i", { "data-part": kind });
      i.style.left = `${from * 100}%`;
      i.style.width = `${length * 100}%`;
      inner.push(i);
    };
    if (b.valid) {
      part(b.again ? "again" : "valid", 0, b.valid[0]);
      part("fresh", b.valid[0], b.valid[1] - b.valid[0]);
    } else for (const [from, length] of b.parts.slice(0, 8)) part("view", from, length);
    fill.replaceChildren(...inner);
  }
}

export default function make(host: HTMLElement, { store }: Context, signal: AbortSignal): View {
  return new MemoryPane(host, store, signal);
}
