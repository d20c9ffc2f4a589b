// What happened to tensors beside the ops, as the producer marked it: warnings, and the story of the one that is chosen.
import { el, mark, on, onHit } from "./dom.js";
import { buffer, bytes, count } from "./format.js";
import type { Trace } from "./replay.js";
import type { Store } from "./store.js";

/** `step`: place of the one after which it happened. `code`: of a warning, else empty. */
export interface Mark { step: number; time: number; kind: string; code: string; value: string; storage: number; bytes: number; text: string; line: string }

const WARNING = "warning ";
const made = new WeakMap<Trace, Mark[]>();

export function marks(t: Trace): Mark[] {
  let found = made.get(t);
  if (found) return found;
  const { mark: m, strings } = t.p;
  found = Array.from(m?.step ?? [], (step, k) => {
    const kind = strings[m.kind[k]];
    const code = kind.startsWith(WARNING) ? kind.slice(WARNING.length) : "";
    return { step, time: m.time[k], kind, code, value: strings[m.value[k]], storage: m.storage[k], bytes: m.bytes[k], text: strings[m.text[k]], line: strings[m.line[k]] };
  });
  made.set(t, found);
  return found;
}

/** `USE_AFTER_FREE` as `Use after free`. */
export function words(code: string): string {
  const text = code.toLowerCase().replace(/_/g, " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Warnings in their order, and what was marked of a storage. */
export function told(all: Mark[], storage: number): { warnings: Mark[]; story: Mark[] } {
  return { warnings: all.filter((one) => one.code), story: storage < 0 ? [] : all.filter((one) => one.storage === storage) };
}

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
    const { warnings, story } = told(all, storage);
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
function short(line: string): string {
  return line.replace(/^.*[/\\](?=[^/\\]+:\d)/, "");
}
