// Layouts: which panes get the room. Sizes that a person gave them are kept by layout; see layout.css for the usual ones.
import { el, mark, on } from "./dom.js";
import { Kept, Splitter } from "./splitter.js";

export const LAYOUTS = ["Debug", "Memory", "Cache", "Layers", "Compare", "Lanes"] as const;
export type Layout = (typeof LAYOUTS)[number];
/** The list that a layout opens. */
const LISTS: Record<Layout, string> = { Debug: "layers", Memory: "buffers", Cache: "caches", Layers: "layers", Compare: "compare", Lanes: "clock" };

export interface Panes { app: HTMLElement; main: HTMLElement; side: HTMLElement; map: HTMLElement; lists: HTMLElement; panels: HTMLElement }

export class Workspace {
  readonly choice = el("select", { "aria-label": "Layout", title: "Layout: which panes are large", "data-kv": "layout" }, ...LAYOUTS.map((name) => el("option", { value: name }, name)));
  #layout: Layout = "Debug";
  #splitters: Splitter[];

  constructor(private panes: Panes, private openList: (id: string) => void, signal: AbortSignal) {
    const { app, main, side, map, lists, panels } = panes;
    const kept = new Kept("kvviz.sizes");
    const layout = () => this.#layout;
    this.#splitters = [
      new Splitter(app, side, { name: "side", label: "Width of the inspector", vertical: true, unit: "%", sign: -1, least: 240, most: 0.75 }, kept, layout, signal),
      new Splitter(app, map, { name: "map", label: "Height of the memory map", vertical: false, unit: "px", sign: -1, least: 0, most: 0.7 }, kept, layout, signal),
      new Splitter(app, panels, { name: "lists", label: "Height of the lists", vertical: false, unit: "px", sign: -1, least: 0, most: 0.7 }, kept, layout, signal),
    ];
    const [between, above, over] = this.#splitters;
    main.insertBefore(between.bar, side);
    map.before(above.bar);
    lists.before(over.bar);
    on(this.choice, "change", () => this.show(this.choice.value as Layout), signal);
    mark(app, "data-layout", this.#layout);
  }

  show(layout: Layout): void {
    this.#layout = layout;
    this.choice.value = layout;
    mark(this.panes.app, "data-layout", layout);
    for (const splitter of this.#splitters) splitter.apply();
    this.openList(LISTS[layout]);
  }

  /** Whether a layout has something to show. */
  offer(layout: Layout, there: boolean): void {
    this.choice.querySelector<HTMLOptionElement>(`option[value="${layout}"]`)!.hidden = !there;
    if (!there && this.#layout === layout) this.show("Debug");
  }

  get layout(): Layout { return this.#layout; }
}

/** The widget over the whole screen, or back; some hosts do not allow it. */
export async function fullScreen(root: HTMLElement): Promise<boolean> {
  try {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await root.requestFullscreen();
    return true;
  } catch {
    return false;
  }
}
