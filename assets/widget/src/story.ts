// The words of prompt and answer as the slider over decode steps: each word is the run that said it.
import type { Commands } from "./commands.js";
import { el, mark, on, onHit, say } from "./dom.js";
import { visible } from "./format.js";
import type { Change, Store, View } from "./store.js";

export class Story implements View {
  readonly root: HTMLElement;
  #words = el("div.kv-words", { role: "group", "aria-label": "Words told so far" });
  #slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Decode step", "data-kv": "decode-slider" });
  #text = el("output.kv-run");
  #run = -2;

  constructor(host: HTMLElement, private store: Store, commands: Commands, signal: AbortSignal) {
    this.root = el("div.kv-story", {}, this.#words, el("div.kv-runs", {}, this.#slider, this.#text));
    host.append(this.root);
    onHit(this.#words, "story-word", (word) => commands.toRun(Number(word.dataset.id)), signal);
    on(this.#slider, "input", () => commands.toRun(this.#slider.valueAsNumber, true), signal);
  }

  update(change: Change): void {
    const { p } = this.store.t;
    if (change.payload) {
      this.root.hidden = p.runs.length < 2 && p.story.length === 0;
      this.#slider.max = String(Math.max(0, p.runs.length - 1));
      // without a story the runs themselves stand in for words
      const words = p.story.length ? p.story : p.runs.map((r, run) => ({ text: r.label, run, prompt: false }));
      this.#words.replaceChildren(...words.map((w) => el("button", {
        tabindex: -1, class: w.prompt ? "kv-word kv-prompt" : "kv-word", "data-kv": "story-word",
        "data-id": w.run ?? 0, title: w.prompt ? "prompt: read in the first run" : p.runs[w.run ?? 0]?.label ?? "",
      }, visible(w.text) || "∅")));
      if (p.live && p.story.length) this.#words.append(el("span.kv-word.kv-more", { title: "more can be run" }, "…"));
      this.#run = -2;
    }
    if (!change.cursor && !change.payload) return;
    const run = this.store.cursor < 0 && this.store.bare < 0 ? -1 : this.store.run;
    if (run === this.#run) return;
    this.#run = run;
    const at = Math.max(0, run);
    this.#slider.value = String(at);
    const label = p.runs[at]?.label ?? "";
    this.#slider.setAttribute("aria-valuetext", `${label}, ${at + 1} of ${p.runs.length}`);
    say(this.#text, `${label} · ${at + 1}/${p.runs.length}`);
    let now: Element | null = null;
    for (const word of this.#words.querySelectorAll<HTMLElement>('[data-kv="story-word"]')) {
      const mine = Number(word.dataset.id);
      const prompt = word.classList.contains("kv-prompt");
      const state = prompt ? "prompt" : mine === run ? "now" : mine < run ? "said" : "later";
      mark(word, "data-state", state);
      mark(word, "aria-current", state === "now" ? "step" : null);
      if (state === "now") now = word;
    }
    this.store.reveal(this.#words, now ?? this.#words.firstElementChild ?? this.#words);
  }
}
