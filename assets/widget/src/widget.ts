// anywidget's entry: traits of the model on one side, a debugger, a pair of them or a planner on the other.
// The same module serves the stand-alone page (kvviz/view/export.py), whose model is a stub without `send`.
import { build, type Answer, type App } from "./app.js";
import { inRun, type Breakpoint } from "./debug.js";
import { el } from "./dom.js";
import { Pair } from "./pairview.js";
import { Planner } from "./planner.js";
import { unpackMatch } from "./pair.js";
import { unpackPlan } from "./plan.js";
import type { Selection } from "./select.js";
import { makeRoot } from "./shell.js";
import { Store } from "./store.js";
import { line, listen, Writer, type Model } from "./sync.js";
import { follow, type Theme } from "./theme.js";
import { read, unpack, type Payload } from "./wire.js";

/** What is on the page; `change` takes newer bytes if it can, else it is made anew. */
interface Shown { change(raws: (ArrayBuffer | null)[]): boolean; relook(): void; tell(note: string): void; destroy(): void }
type Kind = { traits: string[]; show(model: Model, root: HTMLElement, raws: (ArrayBuffer | null)[]): Shown | null };

function newest(payload: ArrayBuffer | null, edge: ArrayBuffer | null): Payload | null {
  const [a, b] = [payload && unpack(payload), edge && unpack(edge)];
  return b && (!a || b.steps >= a.steps) ? b : a;
}

function showDebugger(model: Model, root: HTMLElement, first: Payload): Shown {
  const life = new AbortController();
  const { signal } = life;
  const store = new Store(first, model.get("cursor") ?? -1);
  store.selection = model.get("selection") ?? null;
  store.breakpoints = (model.get("breakpoints") as Breakpoint[] | undefined) ?? [];
  const writer = new Writer(model, {
    cursor: () => store.cursor, decode_step: () => store.run, selection: () => store.selection, breakpoints: () => store.breakpoints,
  }, signal);
  store.onPerson = (what) => (what === "cursor" ? writer.touch(what, "decode_step") : writer.touch(what));
  const { ask, answered } = line(model, (note) => store.tell(note), signal);
  const app: App = build(root, store, ask, writer.flush);
  const settled = () => { if (store.note.startsWith("asked")) store.tell(""); };
  // What the model says is never written back: linked debuggers of different length would push each other for ever.
  listen(model, "change:cursor", () => {
    answered();
    if (!writer.has("cursor")) store.seek(model.get("cursor"), "model");
  }, signal);
  listen(model, "change:decode_step", () => {
    const run = model.get("decode_step") as number;
    if (writer.has("cursor") || run === store.run || run < 0) return;
    const to = inRun(store.t, store.cursor, run);
    if (to !== null) store.seek(to, "model");
  }, signal);
  listen(model, "change:selection", () => {
    if (!writer.has("selection")) store.select((model.get("selection") as Selection | null) ?? null, "model");
  }, signal);
  listen(model, "change:breakpoints", () => {
    if (!writer.has("breakpoints")) store.setBreakpoints(model.get("breakpoints") ?? [], "model");
  }, signal);
  listen(model, "msg:custom", (answer: Answer | undefined) => {
    answered();
    if (answer?.report || (answer?.id !== undefined && answer.id !== null)) app.hear(answer);
    else if (answer?.error) return store.tell(answer.error);
    settled();
  }, signal);
  return {
    change: ([payload, edge]) => {
      const p = newest(payload, edge);
      if (!p) return false;
      store.replace(p);
      settled();
      // Python may have set the cursor before we had the step that it names
      if (!writer.has("cursor")) store.seek(model.get("cursor") ?? store.cursor, "model");
      return true;
    },
    relook: () => store.relook(),
    tell: (note) => store.tell(note),
    destroy: () => {
      life.abort();
      app.destroy();
    },
  };
}

const KINDS: Record<string, Kind> = {
  debugger: {
    traits: ["payload", "edge"],
    show(model, root, [payload, edge]) {
      const p = newest(payload, edge);
      return p && showDebugger(model, root, p);
    },
  },
  pair: {
    traits: ["payload", "edge", "other", "match"],
    show(model, root, [payload, edge, other, match]) {
      const p = newest(payload, edge);
      return p && other && match && new Pair(model, root, [p, unpack(other)], unpackMatch(match));
    },
  },
  planner: {
    traits: ["payload"],
    show: (model, root, [payload]) => payload && new Planner(model, root, unpackPlan(payload)),
  },
};

/** anywidget's entry: draws into `el` until the returned function is called. */
function render({ model, el: host }: { model: Model; el: HTMLElement }): () => void {
  const life = new AbortController();
  const { signal } = life;
  const root = makeRoot();
  host.append(root);
  root.append(el("p.kv-wait", {}, "kvviz …"));
  let shown: Shown | null = null;
  let mode = "";
  const size = () => root.style.setProperty("--kv-height", `${model.get("height") || 720}px`);
  size();
  const look = follow(root, () => (model.get("theme") as Theme) || "auto", () => shown?.relook(), signal);

  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    try {
      const wanted = KINDS[model.get("mode")] ? model.get("mode") : "debugger";
      const raws = await Promise.all(KINDS[wanted].traits.map((name) => read(model.get(name))));
      // a notebook may put the element into the page only after render(); text is measured in its font
      for (let i = 0; i < 40 && !root.isConnected; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      if (mine !== turn || signal.aborted) return; // a newer one is on its way
      if (shown && wanted === mode && shown.change(raws)) return;
      shown?.destroy();
      mode = wanted;
      root.dataset.mode = mode;
      root.replaceChildren();
      shown = KINDS[mode].show(model, root, raws);
      if (!shown) root.replaceChildren(el("p.kv-wait", {}, "Nothing recorded yet."));
    } catch (error) {
      if (shown) shown.tell(String(error));
      else root.replaceChildren(el("p.kv-wait.kv-error", { role: "alert" }, `kvviz cannot read this recording. ${String(error)}`));
    }
  };
  for (const name of ["payload", "edge", "other", "match", "mode"]) {
    listen(model, `change:${name}`, () => { if (name === "mode" || KINDS[mode]?.traits.includes(name)) void load(); }, signal);
  }
  listen(model, "change:theme", look, signal);
  listen(model, "change:height", size, signal);
  void load();
  return () => {
    life.abort();
    shown?.destroy();
    root.remove();
  };
}

export default { render };
