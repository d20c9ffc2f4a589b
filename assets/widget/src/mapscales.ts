// The text around the memory map: bytes or names of bands at its left, words of the runs above, numbers of steps below.
import { el, mark } from "./dom.js";
import { bytes, count, visible } from "./format.js";
import type { Layout } from "./mapbands.js";
import { ticks, yOf, type Range, type Sheet } from "./mapview.js";
import type { Trace } from "./replay.js";
import { numberOf } from "./steps.js";

export class Scales {
  readonly gutter = el("div.kv-map-gutter", { "aria-hidden": "true" });
  readonly words = el("div.kv-map-words", { "aria-hidden": "true" });
  readonly steps = el("div.kv-map-steps", { "aria-hidden": "true", title: "Press or drag: the cursor goes there" });

  /** Bytes of a single band, or the names of several with what reaches to their heads. */
  axis(s: Sheet, { bands }: Layout): void {
    const parts: HTMLElement[] = [];
    const put = (tag: "b" | "span", top: number, text: string, more: Record<string, string | number> = {}) => {
      const node = el(tag, more, text);
      node.style.top = `${top}px`;
      parts.push(node);
    };
    s.boxes.forEach((box, b) => {
      const high = box.foot - box.head;
      const { arena, space, top, addressed } = bands[b];
      if (bands.length > 1) {
        put("b", box.head, arena || space || "host", { title: `${space} ${arena}, ${bytes(top)}, ${addressed ? "by address" : "stacked"}` });
        if (high > 26) put("span", box.head + 13, bytes(box.bytes));
        return;
      }
      for (const value of ticks(box.bytes, Math.max(1, Math.floor(high / 34)))) {
        const y = yOf(s, b, value);
        if (y >= 5 && y <= s.height + 1) put("span", Math.min(s.height - 7, y) - 8, value ? bytes(value) : "0", { "data-tick": 1 });
      }
    });
    this.gutter.replaceChildren(...parts);
  }

  along(t: Trace, { from, to }: Range, width: number): void {
    const { p } = t;
    const x = (step: number) => ((step - from) / (to - from)) * width;
    const at = (left: number, text: string, more: Record<string, string | number> = {}) => {
      const node = el("span", more, text);
      node.style.transform = `translateX(${left.toFixed(0)}px)`;
      return node;
    };
    const words: HTMLElement[] = [];
    let end = -Infinity;
    p.runs.forEach((run, i) => {
      if (p.runs.length < 2 || run.first >= to || run.last <= from || run.last <= run.first) return;
      const left = Math.max(0, x(run.first));
      const room = Math.min(width, x(run.last)) - left;
      if (left < end + 6 || room < 14) return;
      const text = run.text ? visible(run.text).trim() || "␣" : run.label;
      const word = at(left, text, { title: run.label, "data-run": i });
      word.style.maxWidth = `${Math.max(14, room - 3).toFixed(0)}px`;
      words.push(word);
      end = left + Math.min(room - 3, text.length * 7);
    });
    this.words.replaceChildren(...words);
    const gap = Math.max(1, ticks(to - from, Math.max(1, Math.floor(width / 90)))[1] ?? 1);
    const numbers: HTMLElement[] = [];
    for (let step = Math.ceil(from / gap) * gap; step < to && x(step) < width - 40; step += gap) {
      numbers.push(at(x(step), count(numberOf(t, Math.min(step, p.steps - 1)))));
    }
    this.steps.replaceChildren(...numbers);
  }

  /** The word of the run that the cursor is in. */
  now(run: number): void {
    for (const word of this.words.children as HTMLCollectionOf<HTMLElement>) mark(word, "data-now", word.dataset.run === String(run) ? 1 : null);
  }
}
