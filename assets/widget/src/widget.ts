// Transport only: traits and messages of the anywidget model on one side, the store on the other.
// The same module serves the stand-alone page, whose model is a stub with the same methods and perhaps no `send`.
import { build, makeRoot, type App } from "./app.js";
import { NEEDS_KERNEL, type Message } from "./commands.js";
import { inRun, type Breakpoint } from "./debug.js";
import { el } from "./dom.js";
import type { Selection } from "./select.js";
import { Store } from "./store.js";
import { follow, type Theme } from "./theme.js";
import type { Peek } from "./values.js";
import { decode, type Payload } from "./wire.js";

export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, call: (...args: any[]) => void): void;
  off(event: string, call?: (...args: any[]) => void): void;
  send?(message: unknown): void;
}

const WRITE_DELAY = 50; // ms: Python follows the cursor, it does not need every position of a drag
const ANSWER_DELAY = 4000; // ms without an answer before we say that nobody seems to listen

function listen(model: Model, event: string, call: (...args: any[]) => void, signal: AbortSignal): void {
  model.on(event, call);
  signal.addEventListener("abort", () => model.off(event, call));
}

async function newest(model: Model): Promise<Payload | null> {
  const [payload, edge] = await Promise.all([decode(model.get("payload")), decode(model.get("edge"))]);
  return edge && (!payload || edge.steps >= payload.steps) ? edge : payload;
}

interface Connected { store: Store; app: App; moving(): boolean }

function connect(model: Model, root: HTMLElement, first: Payload, life: AbortSignal): Connected {
  const store = new Store(first, model.get("cursor") ?? -1);
  store.selection = model.get("selection") ?? null;
  store.breakpoints = (model.get("breakpoints") as Breakpoint[] | undefined) ?? [];

  const dirty = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const write = () => {
    clearTimeout(timer);
    timer = undefined;
    if (!dirty.size) return;
    if (dirty.has("cursor")) {
      model.set("cursor", store.cursor);
      model.set("decode_step", store.run);
    }
    if (dirty.has("selection")) model.set("selection", store.selection);
    if (dirty.has("breakpoints")) model.set("breakpoints", store.breakpoints);
    dirty.clear();
    model.save_changes();
  };
  store.onPerson = (what) => {
    dirty.add(what);
    timer ??= setTimeout(write, WRITE_DELAY);
  };
  life.addEventListener("abort", write);

  let waiting: ReturnType<typeof setTimeout> | undefined;
  const ask = (message: Message): boolean => {
    if (!model.send) return false;
    try {
      model.send(message);
    } catch {
      return false;
    }
    clearTimeout(waiting);
    // a page whose kernel has gone still has a `send`; silence is the only sign
    waiting = setTimeout(() => store.tell(`no answer yet; ${NEEDS_KERNEL}`), ANSWER_DELAY);
    return true;
  };
  const answered = () => clearTimeout(waiting);
  life.addEventListener("abort", answered);

  const app = build(root, store, ask, write);
  // What the model says is never written back: linked debuggers of different length would push each other for ever.
  listen(model, "change:cursor", () => {
    answered();
    if (!dirty.has("cursor")) store.seek(model.get("cursor"), "model");
  }, life);
  listen(model, "change:decode_step", () => {
    const run = model.get("decode_step") as number;
    if (dirty.has("cursor") || run === store.run || run < 0) return;
    const to = inRun(store.t, store.cursor, run);
    if (to !== null) store.seek(to, "model");
  }, life);
  listen(model, "change:selection", () => {
    if (!dirty.has("selection")) store.select((model.get("selection") as Selection | null) ?? null, "model");
  }, life);
  listen(model, "change:breakpoints", () => {
    if (!dirty.has("breakpoints")) store.setBreakpoints(model.get("breakpoints") ?? [], "model");
  }, life);
  listen(model, "msg:custom", (message: Partial<Peek> | undefined) => {
    answered();
    if (message?.id !== undefined && message.id !== null) app.peek(message as Peek);
    else if (message?.error) store.tell(message.error);
    else if (store.note.startsWith("asked")) store.tell("");
  }, life);
  return { store, app, moving: () => dirty.has("cursor") };
}

/** anywidget's entry: draws into `el` until the returned function is called. */
function render({ model, el: host }: { model: Model; el: HTMLElement }): () => void {
  const life = new AbortController();
  const { signal } = life;
  const root = makeRoot();
  host.append(root);
  root.append(el("p", { class: "kv-wait" }, "kvviz …"));
  let live: Connected | null = null;
  const size = () => root.style.setProperty("--kv-height", `${model.get("height") || 720}px`);
  size();
  const look = follow(root, () => (model.get("theme") as Theme) || "auto", () => live?.store.relook(), signal);

  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    try {
      const payload = await newest(model);
      // a notebook may put the element into the page only after render(); text is measured in its font
      for (let i = 0; i < 40 && !root.isConnected; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      if (mine !== turn || signal.aborted) return; // a newer one is on its way
      if (!payload) return root.replaceChildren(el("p", { class: "kv-wait" }, "Nothing recorded yet."));
      if (!live) live = connect(model, root, payload, signal);
      else {
        live.store.replace(payload);
        if (live.store.note.startsWith("asked")) live.store.tell("");
        // Python may have set the cursor before we had the step that it names
        if (!live.moving()) live.store.seek(model.get("cursor") ?? live.store.cursor, "model");
      }
    } catch (error) {
      if (live) live.store.tell(String(error));
      else root.replaceChildren(el("p", { class: "kv-wait kv-error", role: "alert" }, `kvviz cannot read this recording. ${String(error)}`));
    }
  };
  listen(model, "change:payload", load, signal);
  listen(model, "change:edge", load, signal);
  listen(model, "change:theme", look, signal);
  listen(model, "change:height", size, signal);
  void load();
  return () => {
    life.abort();
    live?.app.destroy();
    root.remove();
  };
}

/** For a page of its own: plain traits in, no kernel. `payload` may be bytes or base64 text. */
export function mount(host: HTMLElement, state: Record<string, unknown>): () => void {
  const traits: Record<string, unknown> = { cursor: -1, decode_step: 0, selection: null, breakpoints: [], theme: "auto", height: 720, ...state };
  for (const name of ["payload", "edge"]) {
    const value = traits[name];
    if (typeof value === "string") traits[name] = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
  }
  const model: Model = { get: (name) => traits[name], set: (name, value) => void (traits[name] = value), save_changes() {}, on() {}, off() {} };
  return render({ model, el: host });
}

export default { render };
