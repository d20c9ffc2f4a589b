// Where the shown graph is: the frames around it, the block of the cursor, and for a loop which iteration.
import { el, on, onHit } from "./dom.js";
import { numberOf, stack, stepsOf, type Trace } from "./replay.js";
import type { Store } from "./store.js";

/** Frames of the same body under the same op, by iteration. */
export function iterations({ p }: Trace, frame: number): number[] {
  const { graph, parent, node, iteration } = p.frame;
  if (iteration[frame] < 0) return [];
  const found: number[] = [];
  for (let f = 0; f < p.frames; f++) if (parent[f] === parent[frame] && node[f] === node[frame] && graph[f] === graph[frame]) found.push(f);
  return found.sort((a, b) => iteration[a] - iteration[b]);
}

/** The frame of the same body under the same op in another frame around it; -1 if there is none. */
function twin({ p: { frames, frame } }: Trace, inner: number, around: number): number {
  for (let f = 0; f < frames; f++) if (frame.parent[f] === around && frame.node[f] === frame.node[inner] && frame.graph[f] === frame.graph[inner]) return f;
  return -1;
}

/** The step of the same op in another frame of the body, else the first step there; -1 if none is loaded. */
export function sameIn(t: Trace, frame: number, node: number): number {
  const same = node < 0 ? -1 : stepsOf(t, frame)[node];
  return same >= 0 ? same : t.x.first[frame] < t.p.steps ? t.x.first[frame] : -1;
}

export class Crumbs {
  readonly root = el("nav.kv-crumbs", { "aria-label": "call stack" });
  #shown = "";

  constructor(private store: Store, signal: AbortSignal) {
    onHit(this.root, "crumb", (crumb) => store.seek(Number(crumb.dataset.step)), signal);
    on(this.root, "change", (event) => {
      const choice = event.target as HTMLSelectElement;
      const { t, cursor, now } = store;
      const frames = stack(t, now.frame);
      let [frame, node] = [Number(choice.value), cursor < 0 ? -1 : t.p.step.node[cursor]];
      for (const inner of frames.slice(frames.indexOf(Number(choice.dataset.frame)) + 1)) {
        const there = twin(t, inner, frame);
        if (there < 0) {
          node = t.p.frame.node[inner]; // this iteration took another branch
          break;
        }
        frame = there;
      }
      const step = sameIn(t, frame, node);
      if (step >= 0) store.seek(step);
      else store.tell("no step of that iteration is here");
    }, signal);
  }

  /** `block`: title of the cursor's block. */
  show(block: string): void {
    const { t, p, now } = this.store;
    const key = `${now.frame}:${p.frames}:${p.steps}:${block}`;
    if (key === this.#shown) return;
    this.#shown = key;
    const frames = stack(t, now.frame);
    const parts: Node[] = [];
    const sep = () => { if (parts.length) parts.push(el("span.kv-sep", { "aria-hidden": "true" }, "›")); };
    frames.forEach((f, i) => {
      const text = i === 0 ? p.graphs[p.frame.graph[f]].name || "main" : p.strings[p.frame.label[f]];
      const inner = frames[i + 1];
      const back = inner === undefined ? -1 : stepsOf(t, f)[p.frame.node[inner]];
      sep();
      parts.push(back >= 0
        ? el("button", { "data-kv": "crumb", "data-step": back, title: `Go to step ${numberOf(t, back)}, where ${text} goes on` }, text)
        : el("span", { class: inner === undefined && !block ? "kv-here" : "", "data-kv": "crumb-here", title: text }, text));
      const all = iterations(t, f);
      if (all.length > 1) {
        parts.push(el("select", { "data-kv": "iteration", "data-frame": f, "aria-label": `Iteration of ${text}`, title: "Go to the same op in another iteration" },
          ...all.map((other, k) => el("option", { value: other, selected: other === f }, `iteration ${k + 1} of ${all.length}`))));
      }
    });
    for (const part of block.split(" · ").filter(Boolean)) {
      sep();
      parts.push(el("span.kv-part", { title: part }, part));
    }
    this.root.replaceChildren(...parts);
  }
}
