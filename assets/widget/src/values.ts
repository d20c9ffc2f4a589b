// Values that exist in the shown frame at the cursor, and a card for one of them: its recorded summary and, with
// a kernel, its first numbers.
import { filled, Inks, sized, traced } from "./canvas.js";
import { DRY, NEEDS_KERNEL } from "./actions.js";
import { button, el, mark, NUMBER, on, onHit, say, table, td } from "./dom.js";
import { buffer, bytes, count, opName, shape, shortValue } from "./format.js";
import { ours } from "./keys.js";
import type { Answered, Context, MakePane } from "./lazypane.js";
import { bornAt, generation, numberOf, placeOf, type Place } from "./replay.js";
import type { Change } from "./store.js";
import { bars, before, entryOf, numeral, oddities, smallOf } from "./valuecard.js";
import type { Found, Picture, ValueCodes, ValueData } from "./valuedata.js";

const LARGE = 168; // px of the longer side of a picture, at most
const CELL = 14; // px of a cell, at most

/** The axes of a picture, and how many numbers a cell averages. */
export function pictureText({ down, across, axis, heads, each, rows, columns }: Picture, head: number): string {
  const cell = each[0] * each[1];
  const mean = cell > 1 ? `, a cell is the mean of ${down < 0 ? count(cell) : `${each[0]} × ${each[1]}`}` : "";
  if (down < 0) return `axis ${across}, read row by row${mean}`;
  return `${heads > 1 ? `entry ${head} of ${heads} on axis ${axis}; ` : ""}axis ${down} down, axis ${across} across: ${rows} × ${columns} cells${mean}`;
}

/** The number of a cell, or its meaning. */
export function cellText(p: Picture, codes: ValueCodes, at: number): string {
  const shade = p.cells[at];
  const words: Record<number, string> = { [codes.empty]: "", [codes.below]: "−∞", [codes.above]: "+∞", [codes.nan]: "NaN" };
  if (shade in words) return words[shade];
  return `about ${numeral(p.low + (shade / codes.shades) * (p.high - p.low))}`;
}

/** Colours of shades: one hue below zero, one above, the background at zero. */
function inkOf(p: Picture, codes: ValueCodes, inks: Inks): (shade: number) => string {
  const far = Math.max(Math.abs(p.low), Math.abs(p.high), 1e-300);
  const signed = p.low < 0 && p.high > 0;
  return (shade) => {
    if (shade === codes.nan) return inks.colour("view");
    if (shade === codes.above || shade === codes.below) return inks.colour("edge");
    const v = p.low + (shade / codes.shades) * (p.high - p.low);
    const share = signed ? Math.abs(v) / far : p.high > p.low ? shade / codes.shades : 0.5;
    const full = signed && v < 0 ? "missed" : "accent";
    return inks.mixed(full, 0.08 + 0.92 * share);
  };
}

function drawPicture(canvas: HTMLCanvasElement, p: Picture, codes: ValueCodes): void {
  const one = Math.max(3, Math.min(CELL, Math.floor(LARGE / Math.max(p.rows, p.columns))));
  const inks = new Inks(canvas);
  const context = sized(canvas, p.columns * one, p.rows * one);
  canvas.style.width = `${p.columns * one}px`;
  canvas.style.height = "auto"; // narrower where there is no room
  if (!context) return;
  const known = new Map<number, string>();
  const ink = inkOf(p, codes, inks);
  p.cells.forEach((shade, at) => {
    if (shade === codes.empty) return;
    if (!known.has(shade)) known.set(shade, ink(shade));
    const [x, y] = [(at % p.columns) * one, Math.floor(at / p.columns) * one];
    filled(context, known.get(shade)!, x, y, one, one);
    if (shade < codes.below) return;
    // a stroke, since colour alone carries no meaning
    traced(context, inks.colour("pane"), 1, [[x + 1, y + one - 1], [x + one - 1, y + 1]]);
  });
}

function fullCard(v: ValueData, entry: number, title: (Node | string)[], head: number, choose: (head: number) => void, signal: AbortSignal): HTMLElement {
  const [low, high, mean] = v.numbers.subarray(3 * entry, 3 * entry + 3);
  const odd = oddities(v, entry);
  const root = el("div.kv-value-card", {}, el("p.kv-value-title", {}, ...title));
  const line = (name: string, text: string) => [el("dt", {}, name), el("dd", {}, text)];
  const facts = el("div.kv-value-facts");
  root.append(facts);
  facts.append(el("dl.kv-value-numbers", { "data-kv": "value-numbers" },
    ...(Number.isNaN(low) ? [] : [...line("min", numeral(low)), ...line("max", numeral(high)), ...line("mean", numeral(mean))]),
    ...line("not finite", odd || "none")));
  const histogram = v.histogram.get(entry);
  if (histogram && !Number.isNaN(low)) {
    const counts = Array.from(histogram);
    facts.append(el("figure.kv-value-histogram", { role: "img", "aria-label": `Histogram from ${numeral(low)} to ${numeral(high)}: ${counts.join(", ")}`, title: `how many numbers in ${counts.length} equal parts: ${counts.map(count).join(" ")}` },
      bars(histogram, 208, 44), el("figcaption", {}, el("span", {}, low === high ? "" : numeral(low)), el("span", {}, low === high ? `all ${numeral(low)}` : ""), el("span", {}, low === high ? "" : numeral(high)))));
  } else if (!histogram) facts.append(el("p.kv-hint", {}, "Its histogram is beyond the budget."));
  const pictures = v.pictures.get(entry) ?? [];
  const chosen = Math.min(head, pictures.length - 1);
  const shown = pictures[chosen];
  if (!shown) return root;
  const canvas = el("canvas", { "data-kv": "value-picture", role: "img", "aria-label": pictureText(shown, chosen) });
  const tip = el("p.kv-hint", {}, pictureText(shown, chosen));
  const tools = el("span.kv-tools");
  if (pictures.length > 1) {
    const select = el("select", { "aria-label": "Head", "data-kv": "value-head" }, ...pictures.map((_, i) => el("option", { value: i, selected: i === chosen }, `head ${i}`)));
    on(select, "change", () => choose(Number(select.value)), signal);
    tools.append(select, ` of ${shown.heads}`);
  }
  root.append(el("figure.kv-value-picture", {}, canvas, el("figcaption", {}, tools, tip)));
  on(canvas, "pointermove", (event) => {
    const one = canvas.clientWidth / shown.columns;
    const [x, y] = [Math.floor(event.offsetX / one), Math.floor(event.offsetY / one)];
    if (x < 0 || y < 0 || x >= shown.columns || y >= shown.rows) return;
    tip.textContent = `row ${y}, column ${x}: ${cellText(shown, v.codes, y * shown.columns + x) || "nothing"}`;
  }, signal);
  on(canvas, "pointerleave", () => (tip.textContent = pictureText(shown, chosen)), signal);
  queueMicrotask(() => drawPicture(canvas, shown, v.codes)); // once it is in the page
  return root;
}

interface Peek { id?: number; info?: string; stats?: Record<string, number>; rows?: (number | string | null)[][]; error?: string }
interface Shown { value: number; place: Place }
const MOST = 400;

class ValuesPane implements Answered {
  readonly slow = true;
  #about = el("div.kv-value-about", { "data-kv": "value-about" });
  #body = el("tbody");
  #note = el("p.kv-none");
  #card = el("div.kv-peek", { "aria-live": "polite" });
  #kept = el("div.kv-value-kept");
  #peek = el("div.kv-value-peek");
  #asked = 0;
  #head = 0;

  constructor(host: HTMLElement, private context: Context, private signal: AbortSignal) {
    const { store } = context;
    this.#card.append(this.#kept, this.#peek);
    host.append(this.#about, el("div.kv-split", {},
      el("div.kv-scroll", { tabindex: 0, role: "region", "aria-label": "Values" }, table("Values alive at the cursor", "kv-values", ["value", "buffer", "shape", "bytes#", "numbers", "how it came", "still read by"], this.#body), this.#note),
      this.#card));
    onHit(this.#body, "value-row", (row) => store.select({ kind: "value", id: Number(row.dataset.id), graph: store.now.graph }), signal);
    on(host, "keydown", (event) => { if (event.target instanceof HTMLSelectElement && ours(event)) event.stopPropagation(); }, signal);
  }

  update(change: Change): void {
    if (change.payload || change.report) this.#tell();
    if (change.cursor || change.payload || change.report) this.#fill();
    if (change.cursor || change.payload || change.report || change.selection || change.look) {
      this.#light();
      this.#show(change.selection && !change.cursor);
    }
  }

  /** What is recorded, the first numbers that are not finite, and how to record more. */
  #tell(): void {
    const { store: { t }, ask } = this.context;
    if (t.p.policy.dry) return this.#about.replaceChildren(el("span", {}, `Values were ${DRY}.`));
    const v = t.values;
    const parts: (Node | string)[] = [];
    if (v) parts.push(el("span", {}, `Recorded: ${v.about}.`), this.#first("NaN", v.first.nan), this.#first("infinite number", v.first.inf));
    else parts.push(el("span", {}, "Values are not in this recording."));
    const behind = v && v.steps < t.p.total;
    if ((!v || behind) && ask.able()) {
      parts.push(button(v ? "Record again, to the end" : "Record their numbers", "Repeat the runs once and record minimum, maximum, mean, histograms and pictures, at most 2 MB", "summarise", () => void ask({ do: "summarise" }), this.signal));
    } else if (!v) parts.push(el("span.kv-hint", {}, "trace.summarise() puts them there."));
    this.#about.replaceChildren(...parts);
  }

  #first(what: string, found: Found | null): HTMLElement {
    if (!found) return el("span", { "data-kv": "first", "data-id": what }, `No ${what}.`);
    const where = found.step < 0 ? found.text : el("button", { class: "kv-link", "data-kv": "step-link", "data-step": found.step, title: `Go to step ${count(found.step)}: ${found.text}` }, `step ${count(found.step)}`);
    return el("span", { "data-kv": "first", "data-id": what, "data-bad": what === "NaN" ? 1 : null, title: found.text }, `First ${what}: `, where, ` ${found.text.split(" ")[0]}, in ${shortValue(found.value)}`);
  }

  #fill(): void {
    const { t, p, x, now, cursor } = this.context.store;
    const g = p.graphs[now.graph];
    const rows: HTMLElement[] = [];
    let hidden = 0;
    g?.values.forEach((name, value) => {
      const place = placeOf(t, now.frame, value, cursor);
      if (!place || p.storage.origin[place.storage] === p.from.weights) return;
      // freed or overwritten
      if (bornAt(t, place.storage, cursor) === null || place.gen !== generation(t, place.storage, cursor)) return;
      if (rows.length >= MOST) return void hidden++;
      const { info, bytes: sizes, how } = p[place.from];
      const came = p.codes[place.from === "bind" ? "binding" : "how"][how[place.entry]];
      const readers = x.graphs[now.graph].readers[value].filter((n) => now.states[n] === "waiting" || now.states[n] === "frontier");
      const still = readers.slice(0, 3).map((n) => opName(g.nodes[n][1])).join(", ") + (readers.length > 3 ? ` +${readers.length - 3}` : "");
      rows.push(el("tr", { "data-kv": "value-row", "data-id": value, title: name },
        td(name), td(buffer(p, place.storage, place.gen), "kv-id"), td(shape(p.strings[info[place.entry]]), "kv-shape", { title: p.strings[info[place.entry]] }), td(bytes(sizes[place.entry]), NUMBER), this.#small(place), td(came ?? "", "kv-soft"),
        td(still || (x.graphs[now.graph].output[value] ? "an output" : "nobody"), readers.length ? "" : "kv-soft")));
    });
    this.#body.replaceChildren(...rows);
    say(this.#note, hidden ? `${hidden} more` : rows.length ? "" : "No value here yet, but for weights.");
    this.#note.hidden = !this.#note.textContent;
  }

  #small(place: Place): HTMLElement {
    const small = smallOf(this.context.store.t, place);
    if (!small) return td("–", "kv-soft");
    const cell = td(small.histogram.length ? bars(small.histogram) : "", "kv-small", { title: small.text });
    cell.append(small.text.replace(/min | max/g, ""));
    return cell;
  }

  #light(): void {
    for (const row of this.#body.children) mark(row, "data-lit", this.context.store.now.lit.values.has(Number((row as HTMLElement).dataset.id)) ? 1 : null);
  }

  /** The selected value, else the first output of the cursor's step. */
  #subject(): Shown | null {
    const { t, p, now, cursor, selection } = this.context.store;
    if (selection?.kind === "value" && (selection.graph ?? 0) === now.graph) {
      const place = placeOf(t, now.frame, selection.id, cursor);
      return place && { value: selection.id, place };
    }
    if (cursor < 0 || p.step.out[cursor] === p.step.out[cursor + 1]) return null;
    const o = p.step.out[cursor];
    return { value: p.out.value[o], place: { from: "out", entry: o, storage: p.out.storage[o], gen: p.out.gen[o] } };
  }

  /** `chosen`: a person has just chosen it; only then is the kernel asked. */
  #show(chosen = false): void {
    const { store } = this.context;
    const { t } = store;
    const shown = this.#subject();
    this.#asked++;
    this.#peek.replaceChildren();
    if (!shown) return this.#kept.replaceChildren(el("p", {}, "Choose a value to look into it."));
    const name = t.p.graphs[store.now.graph].values[shown.value] ?? "";
    const v = t.values;
    const old = v && shown.place.from === "out" ? before(t, shown.place.entry) : null;
    const cards: HTMLElement[] = [];
    if (v) {
      if (old) cards.push(this.#one(v, old.place, ["before ", el("b", {}, shortValue(t.p.graphs[store.now.graph].values[old.value]))]));
      cards.push(this.#one(v, shown.place, [...(old ? ["after "] : []), el("b", { title: name }, shortValue(name))]));
    }
    this.#kept.replaceChildren(...(cards.length ? cards : [el("b", {}, name)]));
    mark(this.#kept, "data-two", old ? 1 : null);
    if (old) this.#kept.prepend(el("p.kv-hint", { "data-kv": "value-over" }, `Written into ${buffer(t.p, shown.place.storage)}: what lay there before, and after.`));
    this.#more(shown.value, !v, chosen);
  }

  #one(v: ValueData, place: Place, title: (Node | string)[]): HTMLElement {
    const { t, p } = this.context.store;
    const entry = entryOf(t, place);
    const all = [...title, el("span.kv-hint", {}, ` ${p.strings[p[place.from].info[place.entry]]}`)];
    if (entry < 0) return el("div.kv-value-card", {}, el("p.kv-value-title", {}, ...all), el("p.kv-hint", {}, "Its numbers are not recorded: it has none, or they are beyond the budget."));
    return fullCard(v, entry, all, this.#head, (head) => {
      this.#head = head;
      this.#show();
    }, this.signal);
  }

  /** The first numbers, from the kernel; asked for at once if nothing is recorded of a chosen value. */
  #more(value: number, at: boolean, chosen: boolean): void {
    const { store, ask } = this.context;
    if (store.t.p.policy.dry) return this.#peek.replaceChildren(el("p", {}, `Its numbers were ${DRY}.`));
    if (!ask.able()) {
      if (at) this.#peek.replaceChildren(el("p", {}, `Numbers are not in the recording; looking at them ${NEEDS_KERNEL.replace("recorded: ", "")}.`));
      return;
    }
    const { t, now, cursor } = store;
    const look = () => {
      this.#peek.replaceChildren(el("p.kv-soft", {}, "asking the kernel …"));
      ask({ do: "value", id: this.#asked, step: numberOf(t, cursor), value: t.p.graphs[now.graph].values[value], frame: now.frame });
    };
    if (at && chosen && store.selection?.kind === "value") look();
    else this.#peek.replaceChildren(button("Show its first numbers", "Compute it again, and show up to 64 × 64 of its numbers", "peek", look, this.signal));
  }

  hear(answer: unknown): void {
    const peek = answer as Peek;
    if (peek.id !== this.#asked) return; // an older question
    if (peek.error) return this.#peek.replaceChildren(el("p.kv-error", {}, peek.error));
    const stats = Object.entries(peek.stats ?? {}).map(([k, v]) => `${k} ${number(v)}`).join(" · ");
    this.#peek.replaceChildren(el("p.kv-soft", {}, peek.info ?? ""), el("p", {}, stats), this.#picture(peek.rows ?? []));
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

const number = (v: unknown) => (typeof v === "number" ? numeral(v) : v === null ? "nan" : String(v));

export default ((host, context, signal) => new ValuesPane(host, context, signal)) satisfies MakePane;
