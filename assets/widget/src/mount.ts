// Shared by all entries of anywidget: the root element, and what is drawn from unpacked traits.
// The same modules serve the stand-alone page (kvviz/view/export.py), whose model is a stub without `send`.
import { NEEDS_KERNEL, type Ask, type Message } from "./actions.js";
import { Delay, el, onMutation } from "./dom.js";
import { keepFocus, roving, shareKeys } from "./keys.js";
import { read } from "./wire.js";

/** A mounted view; `change` returns false if it has to be rebuilt for the new bytes. */
export interface Shown { change(raws: Raws): boolean; relook(): void; tell(note: string): void; destroy(): void }
type Raws = (ArrayBuffer | null)[];
/** The view of a bundle, and the traits that it needs. */
export interface Kind { mode: "debugger" | "planner"; traits: string[]; show(model: Model, root: HTMLElement, raws: Raws): Shown | null }

/** anywidget's entry. */
export function entry(kind: Kind): { render(context: { model: Model; el: HTMLElement }): () => void } {
  return { render: ({ model, el: host }) => render(kind, model, host) };
}

const DRESSED = 8; // times: two versions that are both shown do not push each other for ever

/**
 * Keep the style sheet of this version. anywidget has one element for all versions, and a saved notebook may replace its text
 * with that of the saving version while the kernel starts.
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
  onMutation(sheet, { childList: true }, put, signal);
  put();
}

/** Put `root` into `host`; the static fallback is hidden while it is there; see kvviz/widget/page_widget.py. Returns what hides it, and the theme. */
export function put(model: Model, host: HTMLElement, root: HTMLElement, changed: () => void, signal: AbortSignal): [hidden: HTMLElement, look: () => void] {
  const hidden = el("style", {}, `[data-kv-still="${model.get("still")}"]{display:none}`);
  host.append(hidden, root);
  shareKeys(root, signal);
  const look = follow(root, () => (model.get("theme") as Theme) || "auto", changed, signal);
  listen(model, "change:theme", look, signal);
  signal.addEventListener("abort", () => [hidden, root].forEach((node) => node.remove()));
  return [hidden, look];
}

/** Draws into `host` until the returned function is called. */
function render({ mode, traits, show }: Kind, model: Model, host: HTMLElement): () => void {
  const life = new AbortController();
  const { signal } = life;
  const root = el("div.kvviz", { role: "group", "aria-label": "kvviz debugger", tabindex: -1, "data-mode": mode });
  let shown: Shown | null = null;
  const [hidden, look] = put(model, host, root, () => shown?.relook(), signal);
  keepFocus(root, signal);
  roving(root, signal);
  dress(model, signal);
  root.append(el("p.kv-wait", {}, "kvviz …"));
  const size = () => root.style.setProperty("--kv-height", `${model.get("height") || 720}px`);
  size();

  // on an error the saved picture is shown again
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
      const raws = await Promise.all(traits.map((name) => read(model.get(name))));
      // a notebook may attach the element only after render(); text is measured in its font
      for (let i = 0; i < 40 && !host.isConnected; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      look(); // only now there is something behind it
      if (mine !== turn || signal.aborted) return; // a newer one is on its way
      if (shown?.change(raws)) return;
      shown?.destroy();
      shown = null;
      recover();
      root.replaceChildren();
      shown = show(model, root, raws);
      if (!shown) root.replaceChildren(el("p.kv-wait", {}, "Nothing recorded yet."));
    } catch (error) {
      if (shown) shown.tell(String(error));
      else fail(`kvviz cannot read this recording: ${error instanceof Error ? error.message : String(error)}.`);
    }
  };
  for (const name of traits) listen(model, `change:${name}`, () => void load(), signal);
  listen(model, "change:height", size, signal);
  void load();
  return () => {
    life.abort();
    shown?.destroy();
    said.remove();
  };
}

export type Theme = "auto" | "light" | "dark";

// Attributes in which hosts state their theme: VS Code, marimo, Sphinx themes, Colab, and class names.
const MARKS = ["data-vscode-theme-kind", "data-theme", "theme", "class"];

/** Whether the host's own attributes say dark; null if they say nothing. */
function marked({ body, documentElement }: Document): boolean | null {
  const words = [body, documentElement].flatMap((node) => MARKS.map((name) => node.getAttribute(name))).join(" ");
  // whole words only: `dark:bg-black` is a rule, not a state
  const kind = / (?:vscode-|theme-)?(dark|light|high-contrast(?:-light)?)(?:-theme|-mode)? /.exec(` ${words} `)?.[1];
  return kind ? /dark|trast$/.test(kind) : null;
}

/** Whether the combined background behind the widget is dark. */
function darkBehind(root: HTMLElement, prefersDark: boolean): boolean {
  const brush = el("canvas").getContext("2d", { willReadFrequently: true })!;
  const paint = (color: string) => {
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
  };
  const around: string[] = [];
  for (let node = root.parentNode; node; node = node.parentNode ?? (node as ShadowRoot).host) {
    if (node instanceof Element) around.unshift(getComputedStyle(node).backgroundColor);
  }
  // the page is opaque unless it is in a frame
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  paint((/dark/.test(scheme) ? prefersDark || !/light/.test(scheme) : prefersDark && self !== top) ? "#000" : "#fff");
  around.forEach(paint);
  const [r, g, b] = brush.getImageData(0, 0, 1, 1).data;
  return 3 * r + 6 * g + b < 1280;
}

/** Sets data-theme on `root`, and data-host where the host's own colours may be used; calls `changed` when it changed. */
export function follow(root: HTMLElement, wanted: () => Theme, changed: () => void, signal: AbortSignal): () => void {
  const prefers = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const { body, documentElement } = document;
  let last = "";
  const apply = () => {
    const { jpThemeLight, vscodeThemeKind } = body.dataset;
    const auto = wanted() === "auto";
    const dark = () => (jpThemeLight ? jpThemeLight === "false" : marked(document) ?? darkBehind(root, !!prefers?.matches));
    root.dataset.theme = auto ? (dark() ? "dark" : "light") : wanted();
    // other hosts may have Jupyter's variables from ipywidgets, always those of the light theme
    root.dataset.host = auto && jpThemeLight ? "notebook" : auto && vscodeThemeKind ? "vscode" : "page";
    // themes of the same kind may differ in colours
    const { color, backgroundColor } = getComputedStyle(root);
    const now = root.dataset.theme + color + backgroundColor;
    if (now !== last) changed();
    last = now;
  };
  prefers?.addEventListener("change", apply, { signal });
  // watching attributes is not listening to the page's events
  const attributeFilter = [...MARKS, "style", "data-jp-theme-light", "data-jp-theme-name"];
  for (const node of [body, documentElement]) onMutation(node, { attributeFilter }, apply, signal);
  apply();
  return apply;
}

export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, call: (...args: any[]) => void): void;
  off(event: string, call?: (...args: any[]) => void): void;
  send?(message: unknown): void;
  file?(): string; // of a page that is a file: its text
  widget_manager?: { kernel?: unknown };
}

const WRITE_DELAY = 50; // ms: Python follows the cursor, it does not need every position of a drag
const ANSWER_DELAY = 4000; // ms without an answer before we say that nobody seems to listen
const RUN_DELAY = 60_000; // where the kernel has to run everything again

export function listen(model: Model, event: string, call: (...args: any[]) => void, signal: AbortSignal): void {
  model.on(event, call);
  signal.addEventListener("abort", () => model.off(event, call));
}

/** Writes traits, delayed; `values`: the present value of each. */
export class Writer {
  #dirty = new Set<string>();
  #later: Delay;
  constructor(private model: Model, private values: Record<string, () => unknown>, life: AbortSignal) {
    this.#later = new Delay(life);
    life.addEventListener("abort", this.flush);
  }

  touch(...names: string[]): void {
    for (const name of names) this.#dirty.add(name);
    if (!this.#later.waits) this.#later.start(WRITE_DELAY, this.flush);
  }

  /** Whether a trait is about to be written, and so does not follow the model. */
  has(name: string): boolean { return this.#dirty.has(name); }

  flush = (): void => {
    this.#later.stop();
    if (!this.#dirty.size) return;
    for (const name of this.#dirty) this.model.set(name, this.values[name]());
    this.#dirty.clear();
    this.model.save_changes();
  };
}

/** Requests to the kernel; `tell` reports that no answer came. */
export function line(model: Model, tell: (note: string) => void, life: AbortSignal): { ask: Ask; answered(): void } {
  const waiting = new Delay(life);
  const manager = model.widget_manager;
  const able = () => !!model.send && !(manager && "kernel" in manager && !manager.kernel);
  const ask = (message: Message): boolean => {
    if (!able()) return false;
    try {
      // traits are written later than messages are sent
      model.send!({ ...message, shown: model.get("lane") ?? 0 });
    } catch {
      return false;
    }
    // `send` exists even if the kernel is gone, so only silence shows that
    const slow = message.do === "fix" || message.do === "fork" || message.do === "html";
    waiting.start(slow ? RUN_DELAY : ANSWER_DELAY, () => tell(`no answer yet; ${NEEDS_KERNEL}`));
    return true;
  };
  return { ask: Object.assign(ask, { able }), answered: () => waiting.stop() };
}
