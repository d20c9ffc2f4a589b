// The four words that a newcomer needs, each explained in one sentence where it stands.
import { el, on, onHit } from "./dom.js";
import { Popover } from "./popover.js";

const WORDS = {
  frontier: "The frontier is all ops whose inputs exist and that have not run: any of them could run next.",
  owner: "The owner of a buffer, which is the model, the caller or this run, decides whether an op may overwrite it.",
  "in place": "An op runs in place if it writes its result over an input that nothing reads again, so that nothing new is allocated.",
  rows: "A cache has one row of numbers for each token that was read; each decode step writes one more.",
};
export type Word = keyof typeof WORDS;

/** A word that opens its explanation, underlined with dots. */
export function word(id: Word, text: string = id): HTMLElement {
  return el("button.kv-term", { "data-kv": "term", "data-id": id, title: WORDS[id], "aria-haspopup": "dialog" }, text);
}

/** A sentence in which "in place" is such a word, where it stands first. */
export function explained(text: string): (Node | string)[] {
  const at = text.toLowerCase().indexOf("in place");
  return at < 0 ? [text] : [text.slice(0, at), word("in place", text.slice(at, at + 8)), text.slice(at + 8)].filter((part) => part !== "");
}

/** Open the explanations of the words in `app`. */
export function explain(app: HTMLElement, signal: AbortSignal): void {
  onHit(app, "term", (found) => {
    const id = found.dataset.id as Word;
    new Popover(app, el("div.kv-pop.kv-meaning", { role: "dialog", "aria-label": id, "data-kv": "meaning" }, el("p", {}, WORDS[id]))).show(found);
  }, signal);
  // what the panes do on Enter is not meant where a word has the focus
  on(app, "keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && (event.target as HTMLElement).dataset?.kv === "term") event.stopPropagation();
  }, signal);
}
