// Cards beside the lanes: warnings, the story of the chosen tensor, and the memories of a device by address.
import { kept } from "./arrays.js";
import { filled, Inks, sized } from "./canvas.js";
import { clock, type Clock } from "./clockdata.js";
import { el, mark, on, onHit, say } from "./dom.js";
import { buffer, bytes, capital, count, plural } from "./format.js";
import { lives } from "./mapdata.js";
import type { Trace } from "./replay.js";
import type { Store } from "./store.js";

/** `step`: place of the preceding step; `code`: of a warning, else empty. */
export interface Mark { step: number; time: number; kind: string; code: string; value: string; storage: number; bytes: number; text: string; line: string }

const WARNING = "warning ";
export const marks = kept(({ p: { mark: m, strings } }: Trace): Mark[] => Array.from(m.step, (step, k) => {
  const kind = strings[m.kind[k]];
  const code = kind.startsWith(WARNING) ? kind.slice(WARNING.length) : "";
  return { step, time: m.time[k], kind, code, value: strings[m.value[k]], storage: m.storage[k], bytes: m.bytes[k], text: strings[m.text[k]], line: strings[m.line[k]] };
}));

/** `USE_AFTER_FREE` as `Use after free`. */
const words = (code: string) => capital(code.toLowerCase().replace(/_/g, " "));

export class MarksCard {
  readonly root = el("aside.kv-clock-marks", { "aria-label": "Warnings, and the story of a tensor", "data-kv": "marks" });
  #shown = "";

  constructor(private store: Store, signal: AbortSignal) {
    onHit(this.root, "mark", (node) => this.#go(Number(node.dataset.at)), signal);
    on(this.root, "keydown", (event) => event.stopPropagation(), signal);
  }

  #go(at: number): void {
    const { store } = this;
    const one = marks(store.t)[at];
    if (!one) return;
    if (one.storage >= 0) store.select({ kind: "storage", id: one.storage });
    store.seek(Math.max(-1, Math.min(one.step, store.t.p.steps - 1)));
  }

  update(): void {
    const { t, selection, cursor } = this.store;
    const all = marks(t);
    this.root.hidden = !all.length;
    const storage = selection?.kind === "storage" ? selection.id : -1;
    const key = `${all.length} ${storage} ${cursor}`;
    if (this.root.hidden || key === this.#shown) return;
    this.#shown = key;
    const warnings = all.filter((one) => one.code);
    const story = all.filter((one) => one.storage === storage);
    const parts: HTMLElement[] = [];
    if (storage >= 0) {
      const name = t.p.strings[t.p.storage.name[storage]];
      parts.push(el("h4", {}, `${buffer(t.p, storage)} `, el("span.kv-soft", {}, name)));
      parts.push(story.length ? el("ol.kv-clock-story", {}, ...story.map((one) => this.#line(all, one, cursor))) : el("p.kv-none", {}, "No events were recorded for this buffer."));
    }
    parts.push(el("h4", {}, warnings.length ? `Warnings ${count(warnings.length)}` : "No warnings"));
    for (const one of warnings) parts.push(this.#warning(all, one));
    this.root.replaceChildren(...parts);
  }

  #line(all: Mark[], one: Mark, cursor: number): HTMLElement {
    const place = one.line ? el("code", { title: one.line }, short(one.line)) : "";
    const row = el("li", { "data-code": one.code || null }, this.#jump(all, one, `t = ${Number(one.time.toPrecision(5)).toLocaleString("en-US")}`), el("b", {}, one.code ? words(one.code) : one.kind), el("span", {}, one.text), place);
    mark(row, "data-later", one.step > cursor ? 1 : null);
    return row;
  }

  #warning(all: Mark[], one: Mark): HTMLElement {
    const head = el("b", {}, words(one.code), one.bytes ? `: ${bytes(one.bytes)}` : "");
    return el("section.kv-clock-warning", { "data-code": one.code }, head, el("p", {}, one.text), el("p", {}, this.#jump(all, one, one.step < 0 ? "before the first step" : "show where"), one.line ? el("code", { title: one.line }, short(one.line)) : ""));
  }

  #jump(all: Mark[], one: Mark, text: string): HTMLElement {
    return el("button.kv-link", { "data-kv": "mark", "data-at": all.indexOf(one) }, text);
  }
}

/** `loop.py:21 device.submit(…)` without the folders. */
function short(line: string): string { return line.replace(/^.*[/\\](?=[^/\\]+:\d)/, ""); }

/** `bytes`: the occupied bytes, more than those of the tensor if its pages are spread over banks. */
export interface Block { address: number; bytes: number; storage: number }
/** The blocks of an arena by address. `room`: its size; `free`: the largest free range. */
interface Arena { space: string; name: string; room: number; banks: number; blocks: Block[]; held: number; free: number }

/** Arenas of known size, at a step. */
function arenas(t: Trace, step: number): Arena[] {
  const { p } = t;
  const l = lives(t);
  const found = Array.from(p.arena.space, (space, i): Arena => ({ space: p.strings[space], name: p.strings[p.arena.name[i]], room: p.arena.bytes[i], banks: p.arena.banks[i], blocks: [], held: 0, free: 0 }));
  for (let k = 0; k < l.n; k++) {
    if (l.from[k] > step || l.to[k] <= step) continue;
    const s = l.storage[k];
    const address = p.storage.address[s] ?? -1;
    const arena = address < 0 ? undefined : found.find((one) => one.space === p.strings[p.storage.space[s]] && one.name === p.strings[p.storage.arena[s]]);
    arena?.blocks.push({ address, bytes: p.storage.taken[s] ?? l.bytes[k], storage: s });
  }
  for (const one of found) {
    one.blocks.sort((a, b) => a.address - b.address);
    let end = 0;
    for (const block of one.blocks) {
      one.held += block.bytes;
      one.free = Math.max(one.free, block.address - end);
      end = Math.max(end, block.address + block.bytes);
    }
    one.free = Math.max(one.free, one.room - end);
  }
  return found;
}

export class BanksCard {
  readonly root = el("section.kv-clock-banks", { "aria-label": "Memory by address", "data-kv": "banks" });
  #rows: { canvas: HTMLCanvasElement; text: HTMLElement }[] = [];

  update(store: Store, c: Clock | null): void {
    const all = c && clock(store.t) ? arenas(store.t, Math.max(0, store.cursor)) : [];
    this.root.hidden = !all.length;
    if (this.#rows.length !== all.length) {
      this.#rows = all.map(() => ({ canvas: el("canvas", { "aria-hidden": "true" }), text: el("p") }));
      this.root.replaceChildren(el("h4", {}, "By address, now"), ...this.#rows.flatMap(({ canvas, text }) => [text, canvas]));
    }
    all.forEach((arena, i) => {
      const { canvas, text } = this.#rows[i];
      const banks = arena.banks > 1 ? `, the same in each of ${count(arena.banks)} banks` : "";
      say(text, `${arena.name}: ${plural(arena.blocks.length, "buffer")} of ${bytes(arena.held)} in ${bytes(arena.room)}${banks}; largest contiguous free part ${bytes(arena.free)}`);
      const end = arena.blocks.reduce((most, block) => Math.max(most, block.address + block.bytes), 0);
      paint(canvas, arena, Math.min(arena.room, end * 1.15 || arena.room), store);
    });
  }
}

/** Draw blocks up to the address `top`; the rest of a nearly empty memory is left out. */
function paint(canvas: HTMLCanvasElement, arena: Arena, top: number, store: Store): void {
  const width = canvas.clientWidth;
  if (!width) return;
  const brush = sized(canvas, width, 14);
  if (!brush) return;
  const inks = new Inks(canvas);
  filled(brush, inks.colour("ground"), 0, 0, width, 14);
  const { selection, now } = store;
  for (const block of arena.blocks) {
    const x = (block.address / top) * width;
    const lit = (selection?.kind === "storage" && selection.id === block.storage) || now.lit.storages.has(block.storage);
    filled(brush, lit ? inks.colour("accent") : inks.mixed("view", 0.4), x, 0, Math.max(1, (block.bytes / top) * width - (block.bytes * width > 3 * top ? 0.7 : 0)), 14);
  }
}
