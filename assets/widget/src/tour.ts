// The module of the guided tour: captions that move the cursor and highlight a part of the page.
import { button, el, mark, onKey } from "./dom.js";
import type { Store } from "./store.js";
import type { TourStop } from "./wire.js";

/** The small markup of captions and questions: `code`, *emphasis*, **strong**; see kvviz/lessons/rich_text.py. */
const MARKS = /`([^`]+)`|(?<![\w*])\*\*([^*\s](?:[^*]*[^*\s])?)\*\*(?![\w*])|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])/g;

export function spoken(text: string): (Node | string)[] {
  const made: (Node | string)[] = [];
  let at = 0;
  for (const found of text.matchAll(MARKS)) {
    made.push(text.slice(at, found.index));
    const [whole, code, strong, soft] = found;
    made.push(code ? el("code", {}, code) : strong ? el("b", {}, strong) : el("em", {}, soft));
    at = found.index + whole.length;
  }
  made.push(text.slice(at));
  return made.filter((part) => part !== "");
}

export interface Guide { go(by: 1 | -1): void; close(): void }
/** `after`: the element above the captions; `open`: opens a list; `map`: shows memory as a map. */
export interface Place { app: HTMLElement; after: HTMLElement; store: Store; open(id: string): void; map(): void }
export type GuideModule = (place: Place, signal: AbortSignal) => Guide;

/** The highlighted part of a stop. */
export function lit(app: HTMLElement, stop: TourStop): HTMLElement | null {
  if (stop.tab) return app.querySelector<HTMLElement>(`.kv-panel[data-id="${stop.tab}"]`);
  return stop.pane ? app.querySelector<HTMLElement>(`.${stop.pane}`) : null;
}

const make: GuideModule = ({ app, after, store, open, map }, signal) => {
  const { title, stops } = store.t.p.tour!;
  const number = el("span.kv-soft", { "data-kv": "tour-number" });
  const text = el("p.kv-caption", { "data-kv": "tour-caption", "aria-live": "polite" });
  let at = -1; // before the first
  let light: HTMLElement | null = null;
  const back = button("◂ Previous stop", "The stop before (T, or ← here)", "tour-back", () => go(-1), signal, "T");
  const next = button("Next stop ▸", "The next stop (t, or → here)", "tour-next", () => go(1), signal, "t");
  const shut = button("✕", "Close the tour (Escape here)", "tour-close", () => close(), signal);
  shut.ariaLabel = "Close the tour";
  const card = el("section.kv-tour", { "aria-label": `Guided tour: ${title}`, tabindex: -1, "data-kv": "tour-card" },
    el("div.kv-tourhead", {}, el("b", {}, title), number), text, el("div.kv-tourmoves", {}, back, next, shut));
  after.after(card);

  const shine = (node: HTMLElement | null) => {
    if (light) mark(light, "data-lit", null);
    light = node;
    if (light) mark(light, "data-lit", "tour");
  };
  const draw = () => {
    const stop = stops[at];
    mark(card, "data-stop", at);
    number.textContent = stop ? `${at + 1} of ${stops.length}` : `${stops.length} stop${stops.length === 1 ? "" : "s"}`;
    text.replaceChildren(...(stop ? spoken(stop.caption) : []));
    next.textContent = stop ? (at + 1 < stops.length ? "Next stop ▸" : "Done") : "Start ▸";
    back.hidden = at < 1;
  };
  const visit = () => {
    const stop = stops[at];
    if (stop.tab) open(stop.tab);
    if (stop.pane === "kv-space") map();
    // the step may have run by now
    const now = store.t.p.tour?.stops[at] ?? stop;
    if (now.step !== null) store.go(now.step);
    else if (now.waits) store.tell("the step of this stop has not run yet");
    shine(lit(app, stop));
    light?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    draw();
  };
  const go = (by: 1 | -1) => {
    if (!stops.length) return close();
    const shown = !card.hidden;
    card.hidden = false;
    if (at + by >= stops.length && shown) return close();
    at = Math.min(stops.length - 1, Math.max(0, at + by));
    visit();
    // arrows lead through the tour while the focus is here
    if (!card.contains(document.activeElement)) (next as HTMLElement).focus({ preventScroll: true });
  };
  const close = () => {
    const inside = card.contains(document.activeElement);
    card.hidden = true;
    shine(null);
    at = -1;
    draw();
    if (inside) app.parentElement?.focus({ preventScroll: true });
  };
  onKey(card, (key) => {
    const move = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), Escape: close }[key];
    return move ? move() : false;
  }, signal);
  draw();
  if (stops[0]?.tab) open(stops[0].tab);
  return { go, close };
};
export default make;
