// The module of the caches: their rows and meters, drawn from data of their own that come beside the payload.
import { View, type Weights } from "./cacheview.js";
import { NEEDS_KERNEL } from "./actions.js";
import { el, mark, say } from "./dom.js";
import type { MakePane } from "./lazypane.js";
import { ALL } from "./store.js";

export default ((host, { store, ask, caches }, signal) => {
  const note = el("p.kv-none");
  let view: View | null = null;
  let turn = 0;
  /** Why there is nothing to show. */
  const tell = () => {
    const known = store.p.caches.length;
    mark(note, "data-kv", known ? "cache-note" : "no-cache");
    say(note, known ? `Rows of caches are not ${NEEDS_KERNEL}. Run this cell to have them.` : store.report?.findings.find(({ kind }) => kind === "cache")?.title ?? "This model keeps no cache.");
  };
  const load = async () => {
    const mine = ++turn;
    const raw = await caches?.data();
    if (mine !== turn || signal.aborted) return; // newer data are on their way
    if (!raw) return tell();
    if (view) return view.take(raw);
    view = new View(host, store, ask, raw, signal);
    note.remove();
    view.update(ALL);
  };
  host.append(note);
  caches?.changed(() => void load());
  void load();
  return {
    hear: (answer) => view?.hear(answer as Weights),
    update: (change) => {
      if (view) view.update(change);
      else if (change.report || change.payload) tell();
    },
  };
}) satisfies MakePane;
