// Values that exist in the shown frame at the cursor, and a look into one of them, which only the kernel can give.
import { NEEDS_KERNEL, type Ask } from "./commands.js";
import { el, mark, NUMBER, onHit, onResize, say, table, td } from "./dom.js";
import { buffer, bytes, opName, shape } from "./format.js";
import { bornAt, generation, placeOf } from "./replay.js";
import { numberOf } from "./steps.js";
import type { Change, Store, View } from "./store.js";

export interface Peek { id: number; info?: string; stats?: Record<string, number>; rows?: (number | string | null)[][]; error?: string }
const MOST = 400;

export class ValuesPane implements View {
  readonly slow = true;
  #body = el("tbody");
  #note = el("p.kv-none");
  #peek = el("div.kv-peek", { "aria-live": "polite" });
  #stale = true;
  #asked = 0;
  #shown = false;

  constructor(host: HTMLElement, private store: Store, private ask: Ask, signal: AbortSignal) {
    host.append(el("div.kv-split", {},
      el("div.kv-scroll", {}, table("Values alive at the cursor", "kv-values", ["value", "buffer", "shape", "bytes#", "how it came", "still read by"], this.#body), this.#note),
      this.#peek));
    onHit(this.#body, "value-row", (row) => this.#look(Number(row.dataset.id)), signal);
    onResize(host, () => {
      this.#shown = host.clientWidth > 0;
      this.#fill();
    }, signal);
    say(this.#peek, "Choose a value to look into it.");
  }

  update(change: Change): void {
    if (change.cursor || change.payload) this.#stale = true;
    this.#fill();
    if (change.selection) this.#light();
  }

  #fill(): void {
    if (!this.#stale || !this.#shown) return; // its tab is hidden
    this.#stale = false;
    const { t, now, cursor } = this.store;
    const { p, x } = t;
    const g = p.graphs[now.graph];
    const rows: HTMLElement[] = [];
    let hidden = 0;
    g.values.forEach((name, value) => {
      const place = placeOf(t, now.frame, value, cursor);
      if (!place || p.storage.origin[place.storage] === p.from.weights) return;
      // gone: its bytes were freed, or overwritten by a later generation
      if (bornAt(t, place.storage, cursor) === null || place.gen !== generation(t, place.storage, cursor)) return;
      if (rows.length >= MOST) return void hidden++;
      const bind = place.from === "bind";
      const info = p.strings[bind ? p.bind.info[place.entry] : p.out.info[place.entry]];
      const size = bind ? p.bind.bytes[place.entry] : p.out.bytes[place.entry];
      const how = bind ? p.codes.binding[p.bind.how[place.entry]] : p.codes.how[p.out.how[place.entry]];
      const readers = x.graphs[now.graph].readers[value].filter((n) => now.states[n] === "waiting" || now.states[n] === "frontier");
      const still = readers.slice(0, 3).map((n) => opName(g.nodes[n][1])).join(", ") + (readers.length > 3 ? ` +${readers.length - 3}` : "");
      rows.push(el("tr", { "data-kv": "value-row", "data-id": value, title: name },
        td(name), td(buffer(p, place.storage, place.gen), "kv-id"), td(shape(info), "kv-shape", { title: info }), td(bytes(size), NUMBER), td(how ?? "", "kv-soft"),
        td(still || (x.graphs[now.graph].output[value] ? "an output" : "nobody"), readers.length ? "" : "kv-soft")));
    });
    this.#body.replaceChildren(...rows);
    say(this.#note, hidden ? `${hidden} more` : rows.length ? "" : "No value here yet, but for weights.");
    this.#note.hidden = !this.#note.textContent;
    this.#light();
  }

  #light(): void {
    const { values } = this.store.now.lit;
    for (const row of this.#body.children) mark(row, "data-lit", values.has(Number((row as HTMLElement).dataset.id)) ? 1 : null);
  }

  #look(value: number): void {
    const { now, cursor, t } = this.store;
    this.store.select({ kind: "value", id: value, graph: now.graph });
    const name = t.p.graphs[now.graph].values[value];
    const asked = this.ask({ do: "value", id: ++this.#asked, step: numberOf(t, cursor), value: name, frame: now.frame });
    this.#peek.replaceChildren(el("b", {}, name), el("p.kv-soft", {}, asked ? "asking the kernel …" : `not ${NEEDS_KERNEL}`));
    if (asked) return;
    say(this.#peek.lastElementChild!, `Numbers are not in the recording; looking at them ${NEEDS_KERNEL.replace("recorded: ", "")}.`);
  }

  /** An answer of the kernel to `value`. */
  show(peek: Peek): void {
    if (peek.id !== this.#asked) return; // an older question
    const name = this.#peek.firstElementChild ?? el("b");
    if (peek.error) return this.#peek.replaceChildren(name, el("p.kv-error", {}, peek.error));
    const stats = Object.entries(peek.stats ?? {}).map(([k, v]) => `${k} ${number(v)}`).join(" · ");
    this.#peek.replaceChildren(name, el("p.kv-soft", {}, peek.info ?? ""), el("p", {}, stats), this.#picture(peek.rows ?? []));
  }

  #picture(rows: (number | string | null)[][]): HTMLElement {
    const grid = el("table.kv-numbers");
    const most = Math.max(1e-30, ...rows.flat().map((v) => Math.abs(Number(v))).filter(Number.isFinite));
    for (const row of rows) {
      grid.append(el("tr", {}, ...row.map((v) => {
        const cell = td(number(v), "", { title: String(v) });
        const share = Math.abs(Number(v)) / most;
        cell.style.setProperty("--kv-heat", String(Number.isFinite(share) ? Math.round(share * 60) : 0));
        if (Number(v) < 0) cell.dataset.sign = "-";
        return cell;
      })));
    }
    return el("div.kv-numbers-box", {}, grid);
  }
}

function number(v: unknown): string {
  if (typeof v !== "number") return v === null ? "nan" : String(v);
  return Number.isInteger(v) && Math.abs(v) < 1e6 ? String(v) : v.toPrecision(3);
}
