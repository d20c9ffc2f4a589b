// The state of a page that is a file, in its address: `#step=3619&sel=B345&finding=2.181&list=caches&query=op:Concat`. It is read when the page opens
// or the address changes, and written as the reader moves.
import { Delay } from "./dom.js";
import { describe, type Selection } from "./select.js";
import type { Trace } from "./replay.js";
import type { Change, Place, Store, View } from "./store.js";

interface Parts { step: number | null; sel: string; query: string; finding?: Place["finding"]; list: string }
const EVERY = 300; // ms between writes: browsers refuse more than some 200 in half a minute

export function parse(hash: string): Parts {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const step = asked.get("step");
  const finding = /^(\d{1,6})\.(\d{1,9})$/.exec(asked.get("finding") ?? "");
  return { finding: finding ? [Number(finding[1]), Number(finding[2])] : undefined, list: asked.get("list") ?? "", step: step !== null && /^-?\d{1,15}$/.test(step) ? Number(step) : null, sel: asked.get("sel") ?? "", query: asked.get("query") ?? "" };
}

export function write({ step, sel, query, finding, list }: Parts): string {
  const parts = [step === null ? "" : `step=${step}`, sel && `sel=${encodeURIComponent(sel)}`, finding ? `finding=${finding.join(".")}` : "", list && `list=${encodeURIComponent(list)}`, query && `query=${encodeURIComponent(query)}`];
  return parts.filter(Boolean).join("&");
}

/** `B345`, or the name of a node, a cache or a value, after its kind if the name is ambiguous. */
export function selected({ p }: Trace, sel: string): Selection | null {
  const [, kind = "", name] = /^(?:(node|cache|value):)?(.*)$/s.exec(sel)!;
  const storage = /^B(\d+)(?:\.\d+)?$/.exec(sel);
  if (storage) return Number(storage[1]) < p.storages ? { kind: "storage", id: Number(storage[1]) } : null;
  if (!name) return null;
  const find = (what: "node" | "value", names: (graph: number) => string[]): Selection | null => {
    for (let graph = 0; graph < p.graphs.length; graph++) {
      const id = names(graph).indexOf(name);
      if (id >= 0) return { kind: what, id, graph };
    }
    return null;
  };
  const cache = p.caches.findIndex((c) => c.name === name);
  return (kind !== "cache" && kind !== "value" ? find("node", (g) => p.graphs[g].nodes.map((n) => n[0])) : null)
    ?? (kind !== "node" && kind !== "value" && cache >= 0 ? { kind: "cache", id: cache } : null)
    ?? (kind !== "node" && kind !== "cache" ? find("value", (g) => p.graphs[g].values) : null);
}

/** The inverse of `selected`. */
export function named(t: Trace, s: Selection | null): string {
  if (!s) return "";
  const name = s.kind === "storage" ? `B${s.id}` : describe(t, s);
  const back = selected(t, name);
  return back?.kind === s.kind && back.id === s.id ? name : `${s.kind}:${name}`;
}

export class Address implements View {
  readonly slow = true;
  #later: Delay;
  #written = "";
  #begun = false;

  constructor(private store: Store, private app: { show(list: string): void; search(query: string): void }, private signal: AbortSignal) {
    addEventListener("hashchange", () => { if (location.hash.slice(1) !== this.#written) this.follow(); }, { signal });
    this.#later = new Delay(signal);
  }

  follow(): void {
    const { step, sel, query, finding, list } = parse(location.hash);
    if (step !== null) this.store.go(step);
    if (sel) this.store.select(selected(this.store.t, sel));
    if (query) this.app.search(query);
    if (list) this.app.show(list);
    this.#begun = true;
    if (step !== null || finding) this.store.open(true, finding);
  }

  get hash(): string {
    const { store } = this;
    return write({ step: store.number, sel: named(store.t, store.selection), query: store.query.trim(), list: store.list, ...store.place });
  }

  link(): string { return `${location.href.replace(/#.*$/, "")}#${this.hash}`; }

  update(_change: Change): void {
    if (!this.#begun || this.signal.aborted || this.#later.waits) return;
    this.#later.start(EVERY, () => {
      const now = this.hash;
      if (now === this.#written) return;
      this.#written = now;
      history.replaceState(history.state, "", `#${now}`);
    });
  }
}

export default (...given: ConstructorParameters<typeof Address>) => new Address(...given);
