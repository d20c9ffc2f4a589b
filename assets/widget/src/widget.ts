// anywidget's entry: traits of the model on one side, a debugger or a pair of them on the other.
import { build, type Answer, type App } from "./app.js";
import type { Breakpoint } from "./debug.js";
import { modules } from "./modules.js";
import { entry, type Shown } from "./mount.js";
import { Pair } from "./pairview.js";
import { unpackMatch } from "./pair.js";
import type { Selection } from "./select.js";
import { Store } from "./store.js";
import { unpackValues } from "./valuedata.js";
import { line, listen, Writer, type Model } from "./sync.js";
import { patch, read, unpack, type Payload } from "./wire.js";

/** The payload with what changed in it since. */
function newest(payload: ArrayBuffer | null, ...changes: (ArrayBuffer | null)[]): Payload | null {
  return payload && unpack(changes.reduce<ArrayBuffer>((raw, change) => (change ? patch(raw, change) : raw), payload));
}

function showDebugger(model: Model, root: HTMLElement, first: Payload): Shown {
  const life = new AbortController();
  const { signal } = life;
  const store = new Store(first, model.get("cursor") ?? -1);
  store.selection = model.get("selection") ?? null;
  store.breakpoints = (model.get("breakpoints") as Breakpoint[] | undefined) ?? [];
  const writer = new Writer(model, {
    cursor: () => store.number, decode_step: () => store.run, selection: () => store.selection, breakpoints: () => store.breakpoints,
  }, signal);
  store.onPerson = (what) => (what === "cursor" ? writer.touch(what, "decode_step") : writer.touch(what));
  const { ask, answered } = line(model, (note) => store.tell(note), signal);
  const app: App = build(root, store, ask, writer.flush, modules(() => model.get("modules")), {
    data: () => read(model.get("cache_data")),
    changed: (call) => listen(model, "change:cache_data", () => {
      settled();
      call();
    }, signal),
  });
  const settled = () => {
    answered();
    if (/^(asked|no answer)/.test(store.note)) store.tell("");
  };
  const know = async () => {
    const raw = await read(model.get("value_data"));
    if (!signal.aborted && (raw || store.t.values)) store.know(raw && unpackValues(raw));
  };
  listen(model, "change:value_data", () => {
    settled();
    void know();
  }, signal);
  void know();
  // What the model says is never written back: linked debuggers of different length would push each other for ever.
  listen(model, "change:cursor", () => {
    answered();
    if (!writer.has("cursor")) store.go(model.get("cursor"), "model");
  }, signal);
  listen(model, "change:decode_step", () => {
    const run = model.get("decode_step") as number;
    if (!writer.has("cursor") && run !== store.run && run >= 0) store.toRun(run, "model");
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
    change: ([payload, ...changes]) => {
      const p = newest(payload, ...changes);
      if (!p) return false;
      store.replace(p);
      settled();
      // Python may have set the cursor before we had the step that it names
      if (!writer.has("cursor")) store.go(model.get("cursor") ?? store.number, "model");
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

export default entry({
  debugger: {
    traits: ["payload", "edge", "latest"],
    show(model, root, [payload, ...changes]) {
      const p = newest(payload, ...changes);
      return p && showDebugger(model, root, p);
    },
  },
  pair: {
    traits: ["payload", "edge", "latest", "other", "match"],
    show(model, root, [payload, edge, latest, other, match]) {
      const p = newest(payload, edge, latest);
      return p && other && match && new Pair(model, root, [p, unpack(other)], unpackMatch(match));
    },
  },
});
