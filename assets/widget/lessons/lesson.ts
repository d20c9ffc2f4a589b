// The entry of the module "lesson": pictures in steps, see kvviz/lessons/stepping.py. It starts all that are in the page and not started.
import { button, el, mark, on, onKey } from "../src/dom.js";
import { shareKeys } from "../src/keys.js";
import { follow } from "../src/mount.js";

/** By number of the cell: state, weight in percent, text where it is another than the cell's own. */
type Changes = Record<string, [string, number, string?]>;
interface Steps { pause: number; marks: Record<string, string>; frames: Changes[] }

/** Moves a picture by so many frames; by name of the key. */
const MOVES: Record<string, (at: number, last: number) => number> = {
  ArrowRight: (at) => at + 1, ArrowLeft: (at) => at - 1, Home: () => 0, End: (_, last) => last,
};

/** Follows the host's theme; paper is light. */
export function light(root: HTMLElement, signal: AbortSignal): void {
  let printing = false;
  const look = follow(root, () => (printing ? "light" : "auto"), () => {}, signal);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]] as const) {
    addEventListener(event, () => {
      printing = now;
      look();
    }, { signal });
  }
  requestAnimationFrame(look); // a notebook may attach the element only after this
}

interface Stepper { root: HTMLElement; seen(): boolean; key(name: string): boolean }

function start(root: HTMLElement, signal: AbortSignal): Stepper {
  const { pause, marks, frames } = JSON.parse(root.querySelector('script[type="application/json"]')!.textContent!) as Steps;
  const cells = [...root.querySelectorAll<HTMLElement>("[data-s]")];
  const captions = [...root.querySelectorAll(".kv-told li")].map((node) => node.textContent!);
  const caption = root.querySelector<HTMLElement>(".kv-caption")!;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const last = frames.length - 1;
  let at = -1, playing = false, inView = false, timer: ReturnType<typeof setTimeout> | undefined;

  const dress = (changes: Changes) => {
    for (const [i, [state, weight, text]] of Object.entries(changes)) {
      const cell = cells[+i];
      cell.dataset.s = state;
      cell.style.setProperty("--w", String(weight / 100));
      cell.firstElementChild!.textContent = text ?? cell.dataset.text!;
      cell.lastElementChild!.textContent = marks[state];
    }
  };
  const to = (next: number) => {
    const goal = Math.min(last, Math.max(0, next));
    // a frame says what changes from the one before it: backwards, all of them are put together again
    if (goal < at) dress(Object.assign({}, ...frames.slice(0, goal + 1)));
    else for (let k = at + 1; k <= goal; k++) dress(frames[k]);
    at = goal;
    caption.textContent = captions[at];
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", captions[at]);
    count.textContent = `${at + 1} of ${frames.length}`;
    root.dataset.frame = String(at);
    [back.disabled, forth.disabled] = [at === 0, at === last];
  };
  const tick = () => {
    clearTimeout(timer);
    if (playing && inView && !document.hidden) timer = setTimeout(() => { to(at + 1); if (at === last) play(false); else tick(); }, pause);
  };
  const play = (now: boolean) => {
    playing = now;
    if (playing && at === last) to(0);
    player.textContent = playing ? "❚❚ Pause" : "▶ Play";
    mark(root, "data-playing", playing ? "" : null);
    caption.setAttribute("aria-live", playing ? "off" : "polite"); // what plays is not read out
    tick();
  };
  const step = (next: number) => { play(false); to(next); };

  const player = button("", "Play or pause (Space)", "step-play", () => play(!playing), signal);
  const back = button("← Back", "One step back (←)", "step-back", () => step(at - 1), signal);
  const forth = button("Next →", "One step forward (→)", "step-forth", () => step(at + 1), signal);
  const slider = el("input", { type: "range", min: 0, max: last, "aria-label": "Step", "data-kv": "step-slider" });
  const count = el("span.kv-soft", { "data-kv": "step-count" });
  on(slider, "input", () => step(+slider.value), signal);
  caption.before(el("div.kv-controls", {}, back, player, forth, slider, count));
  root.tabIndex = 0;
  const key = (name: string) => {
    const move = MOVES[name];
    if (move) step(move(at, last));
    else if (name === " ") play(!playing);
    return !!move || name === " ";
  };
  onKey(root, (name, event) => (name === " " && (event.target as Element).closest("button, summary") ? false : key(name)), signal);
  shareKeys(root, signal);
  light(root, signal);

  const watch = new IntersectionObserver((seen) => {
    inView = seen[seen.length - 1].isIntersecting;
    tick();
  }, { threshold: 0.2 });
  watch.observe(root);
  signal.addEventListener("abort", () => watch.disconnect());
  document.addEventListener("visibilitychange", tick, { signal });
  still.addEventListener("change", () => { if (still.matches) play(false); }, { signal });
  play(false);
  to(0);
  return { root, seen: () => inView, key };
}

/** The pictures of the page that were not started. */
export const steppers: Stepper[] = [...document.querySelectorAll<HTMLElement>(".kv-stepping:not([data-frame])")].map((root) => start(root, new AbortController().signal));
