// anywidget's entry: connects the traits of the model with a debugger.
import { shared } from "shared";
import { build, type Answer, type App } from "./app.js";
import { NEEDS_KERNEL, type Ask } from "./actions.js";
import type { Breakpoint } from "./debug.js";
import { modules, type Modules } from "./modules.js";
import { entry, line, listen, Writer, type Model, type Shown } from "./mount.js";
import { piece, read, unpack, type Payload } from "./wire.js";
import type { LaneSource } from "./pair.js";
import type { Address } from "./address.js";
import type { Selection } from "./select.js";
import { Store } from "./store.js";
import type { Surroundings } from "./lazypane.js";
import { unpackValues } from "./valuedata.js";

/** The recording as one HTML file: this page itself, or made by the kernel. */
function wholeFile(model: Model, ask: Ask, flush: () => void, signal: AbortSignal): Surroundings["html"] {
  if (model.file) return { able: () => true, make: async () => (flush(), new Blob([model.file!()], { type: "text/html" })) };
  return {
    able: ask.able,
    make: () => new Promise((done, fail) => {
      const once = new AbortController();
      signal.addEventListener("abort", () => once.abort());
      listen(model, "msg:custom", (answer: { id?: unknown; error?: string } | undefined, buffers: DataView[] = []) => {
        if (answer?.id !== "html") return;
        once.abort();
        if (answer.error || !buffers.length) fail(new Error(answer.error ?? "the kernel sent nothing"));
        else done(new Blob([buffers[0] as BlobPart], { type: "text/html" }));
      }, once.signal);
      flush(); // it opens where the page is
      if (!ask({ do: "html", id: "html" })) fail(new Error(NEEDS_KERNEL));
    }),
  };
}

/** Connect a file with the part of its address after #. */
async function atItsAddress(app: App, store: Store, around: Surroundings, parts: Modules, signal: AbortSignal): Promise<void> {
  const make = await parts.load<(...given: ConstructorParameters<typeof Address>) => Address>("address");
  if (signal.aborted) return;
  const address = make(store, app, signal);
  around.link = () => address.link();
  store.add(address);
  address.follow();
}

function showDebugger(model: Model, root: HTMLElement, first: Payload): Shown {
  const life = new AbortController();
  const { signal } = life;
  const at = model.get("cursor") as number | null;
  const store = new Store(first, at ?? first.total - 1);
  store.selection = model.get("selection") ?? null;
  store.breakpoints = (model.get("breakpoints") as Breakpoint[] | undefined) ?? [];
  const writer = new Writer(model, {
    cursor: () => store.number, decode_step: () => store.run, selection: () => store.selection, breakpoints: () => store.breakpoints, place: () => store.place,
  }, signal);
  store.onPerson = (what) => (what === "cursor" ? writer.touch(what, "decode_step") : writer.touch(what));
  const { ask, answered } = line(model, (note) => store.tell(note), signal);
  const parts = modules(() => model.get("modules"), shared);
  const placed = !!model.get("selection") || (at !== null && at >= 0) || (!!model.file && /(^#|&)(step|sel|finding)=/.test(location.hash));
  const around: Surroundings = { placed, place: model.get("place") ?? {}, html: wholeFile(model, ask, writer.flush, signal) };
  const heard = (names: string, call: () => void) => { for (const name of names.split(" ")) listen(model, `change:${name}`, call, signal); };
  const lanes: LaneSource = {
    get: (name) => model.get(name),
    show: (lane, p, step, who) => {
      if (who === "person") {
        model.set("lane", lane);
        model.save_changes();
      }
      store.replace(p);
      store.go(step, who);
      void know();
    },
    changed: (call) => heard("lanes branches lane main offers", call),
  };
  const dataOf = (name: string) => {
    const lane = model.get("lane") ?? 0;
    return read(lane === (model.get("data_of") ?? 0) ? model.get(name) : piece(model.get("branches"), `${name}:${lane}`));
  };
  const app: App = build(root, store, ask, writer.flush, parts, {
    data: () => dataOf("cache_data"),
    changed: (call) => heard("cache_data data_of", () => {
      settled();
      call();
    }),
  }, around, lanes);
  if (model.file) void atItsAddress(app, store, around, parts, signal);
  const settled = () => {
    answered();
    if (/^(asked|no answer)/.test(store.note)) store.tell("");
  };
  const know = async () => {
    const raw = await dataOf("value_data");
    if (!signal.aborted && (raw || store.t.values)) store.know(raw && unpackValues(raw));
  };
  heard("value_data data_of", () => {
    settled();
    void know();
  });
  void know();
  // Changes by the model are never written back: linked debuggers of different length would push each other forever.
  const follow = (name: string, writes: string, take: (value: any) => void) => heard(name, () => { if (!writer.has(writes)) take(model.get(name)); });
  heard("cursor", answered);
  follow("cursor", "cursor", (step: number) => store.go(step, "model"));
  follow("decode_step", "cursor", (run: number) => { if (run !== store.run && run >= 0) store.toRun(run, "model"); });
  follow("selection", "selection", (selection: Selection | null) => store.select(selection ?? null, "model"));
  follow("breakpoints", "breakpoints", (list: Breakpoint[]) => store.setBreakpoints(list ?? [], "model"));
  listen(model, "msg:custom", (answer: Answer | undefined) => {
    answered();
    if (answer?.id === "html") return settled();
    if (answer?.report || (answer?.id !== undefined && answer.id !== null)) app.hear(answer);
    else if (answer?.error) return store.tell(answer.error);
    settled();
  }, signal);
  return {
    change: ([payload, ...changes]) => {
      if (!payload) return false;
      const p = unpack(payload, ...changes);
      if ((model.get("lane") ?? 0) !== (model.get("main") ?? 0)) return true; // another lane is shown
      store.replace(p);
      settled();
      // Python may have set the cursor before its step was here
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
  mode: "debugger",
  traits: ["payload", "edge", "latest"],
  show: (model, root, [payload, ...changes]) => payload && showDebugger(model, root, unpack(payload, ...changes)),
});
