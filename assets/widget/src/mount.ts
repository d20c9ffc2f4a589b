// What all entries of anywidget share: the root element, the traits of a mode unpacked, and what is drawn from them.
// The same modules serve the stand-alone page (kvviz/view/export.py), whose model is a stub without `send`.
import { el } from "./dom.js";
import { keepFocus, roving, shareKeys } from "./keys.js";
import { makeRoot } from "./shell.js";
import { listen, type Model } from "./sync.js";
import { follow, type Theme } from "./theme.js";
import { read } from "./wire.js";

/** What is on the page; `change` takes newer bytes if it can, else it is made anew. */
export interface Shown { change(raws: Raws): boolean; relook(): void; tell(note: string): void; destroy(): void }
export type Raws = (ArrayBuffer | null)[];
/** One of the things that a bundle draws, and the traits that it draws it from. */
export interface Kind { traits: string[]; show(model: Model, root: HTMLElement, raws: Raws): Shown | null }

/** anywidget's entry; `kinds` by the trait `mode`, the first one where the mode is not known. */
export function entry(kinds: Record<string, Kind>): { render(context: { model: Model; el: HTMLElement }): () => void } {
  return { render: ({ model, el: host }) => render(kinds, model, host) };
}

const DRESSED = 8; // times: two versions that are both shown do not push each other for ever

/**
 * Keep the style sheet that belongs to this code. anywidget has one place for all versions, and a saved notebook brings that
 * of the version which saved it: while the kernel starts, after ours was put there.
 */
function dress(model: Model, signal: AbortSignal): void {
  const sheet = document.getElementById(model.get("_anywidget_id") ?? "");
  const own = model.get("_css");
  if (!(sheet instanceof HTMLStyleElement) || !own) return;
  let left = DRESSED;
  const put = () => {
    if (sheet.textContent === own) return;
    if (left-- > 0) sheet.textContent = own;
  };
  const watch = new MutationObserver(put);
  watch.observe(sheet, { childList: true });
  signal.addEventListener("abort", () => watch.disconnect());
  put();
}

/** Draws into `host` until the returned function is called. */
function render(kinds: Record<string, Kind>, model: Model, host: HTMLElement): () => void {
  const life = new AbortController();
  const { signal } = life;
  const root = makeRoot();
  // while the page is here, the saved picture of it is not needed; see kvviz/widget/still_image.py
  const hidden = el("style", {}, `[data-kv-still="${model.get("still")}"]{display:none}`);
  host.append(hidden, root);
  shareKeys(root, signal);
  keepFocus(root, signal);
  roving(root, signal);
  dress(model, signal);
  root.append(el("p.kv-wait", {}, "kvviz …"));
  let shown: Shown | null = null;
  let mode = "";
  const size = () => root.style.setProperty("--kv-height", `${model.get("height") || 720}px`);
  size();
  const look = follow(root, () => (model.get("theme") as Theme) || "auto", () => shown?.relook(), signal);

  // the saved picture says more than an error: it is shown again, and nothing that hides it is left on the page
  const said = el("p", { role: "alert", style: "font: 13px/1.45 system-ui, sans-serif; margin: 6px 0" });
  const fail = (text: string) => {
    said.textContent = text;
    hidden.remove();
    root.replaceWith(said);
  };
  const recover = () => {
    if (!said.isConnected) return;
    said.replaceWith(root);
    host.prepend(hidden);
  };

  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    try {
      const wanted = kinds[model.get("mode")] ? model.get("mode") : Object.keys(kinds)[0];
      const raws = await Promise.all(kinds[wanted].traits.map((name) => read(model.get(name))));
      // a notebook may put the element into the page only after render(); text is measured in its font
      for (let i = 0; i < 40 && !host.isConnected; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      look(); // only now there is something behind it
      if (mine !== turn || signal.aborted) return; // a newer one is on its way
      if (shown && wanted === mode && shown.change(raws)) return;
      shown?.destroy();
      shown = null;
      recover();
      mode = wanted;
      root.dataset.mode = mode;
      root.replaceChildren();
      shown = kinds[mode].show(model, root, raws);
      if (!shown) root.replaceChildren(el("p.kv-wait", {}, "Nothing recorded yet."));
    } catch (error) {
      if (shown) shown.tell(String(error));
      else fail(`kvviz cannot read this recording: ${error instanceof Error ? error.message : String(error)}.`);
    }
  };
  for (const name of new Set(["mode", ...Object.values(kinds).flatMap((kind) => kind.traits)])) {
    listen(model, `change:${name}`, () => { if (name === "mode" || kinds[mode]?.traits.includes(name)) void load(); }, signal);
  }
  listen(model, "change:theme", look, signal);
  listen(model, "change:height", size, signal);
  void load();
  return () => {
    life.abort();
    shown?.destroy();
    hidden.remove();
    said.remove();
    root.remove();
  };
}
