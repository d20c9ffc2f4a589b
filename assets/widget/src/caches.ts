// The caches: rows reserved and valid, bytes written and copied in the present run, and a strip of rows over runs.
import { el, mark, NUMBER, onHit, onResize, say, set, table, td } from "./dom.js";
import { buffer, bytes, count } from "./format.js";
import type { Change, Store, View } from "./store.js";
import type { Cache } from "./wire.js";

interface Row { root: HTMLElement; valid: HTMLElement; bar: HTMLElement; written: HTMLElement; copied: HTMLElement; where: HTMLElement; strip: HTMLCanvasElement; now: HTMLElement }
const HEIGHT = 30;

export class CachesPane implements View {
  readonly slow = true;
  #body = el("tbody");
  #rows: Row[] = [];
  #shown = false;

  constructor(private host: HTMLElement, private store: Store, signal: AbortSignal) {
    host.append(el("div.kv-scroll", {}, table("Caches in the present run", "kv-caches", ["cache", "kept", "rows valid / reserved", "written#", "copied#", "buffer", "rows over runs"], this.#body)));
    onHit(this.#body, "cache-row", (row) => store.select({ kind: "cache", id: Number(row.dataset.id) }), signal);
    onResize(host, () => {
      const shown = host.clientWidth > 0;
      if (shown !== this.#shown) {
        this.#shown = shown;
        this.#draw();
        this.#fill();
      }
    }, signal);
  }

  update(change: Change): void {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      this.#rows = p.caches.map((c, i) => this.#make(c, i));
      this.#body.replaceChildren(...this.#rows.map((r) => r.root));
      if (!this.#rows.length) this.#body.append(el("tr", {}, td("This model keeps no cache.", "kv-none", { colspan: 7 })));
    }
    if (change.payload || change.look) this.#draw();
    if (change.cursor || change.payload || change.selection) this.#fill();
  }

  #fill(): void {
    if (!this.#shown) return; // its tab is hidden
    const { store } = this;
    const { p } = store.t;
    const { run, lit } = store.now;
    this.#rows.forEach((row, i) => {
      const c = p.caches[i];
      const told = c.capacity[run] ? run : run - 1; // a run that still goes on has not told its caches yet
      const before = run > 0 ? c.valid[run - 1] ?? 0 : 0;
      const valid = c.valid[told] ?? 0;
      const capacity = c.capacity[told] ?? 0;
      say(row.valid, `${valid === before ? count(valid) : `${count(before)} → ${count(valid)}`} / ${count(capacity)}`);
      set(row.bar, "--kv-before", String(capacity ? before / capacity : 0));
      set(row.bar, "--kv-valid", String(capacity ? valid / capacity : 0));
      say(row.written, bytes(c.written[run] ?? 0));
      say(row.copied, bytes(c.copied[run] ?? 0));
      mark(row.copied, "data-bad", c.copied[run] ? 1 : null);
      mark(row.copied, "data-zero", c.copied[run] ? null : 1);
      const storage = c.storage[told] ?? -1;
      say(row.where, buffer(p, storage));
      row.now.style.left = `${((run + 0.5) / Math.max(1, p.runs.length)) * 100}%`;
      const chosen = store.selection?.kind === "cache" && store.selection.id === i;
      mark(row.root, "data-lit", chosen || lit.storages.has(storage) ? 1 : null);
    });
  }

  #make(c: Cache, i: number): Row {
    const valid = el("span.kv-rows");
    const bar = el("i.kv-meter");
    const written = td("", NUMBER);
    const copied = td("", NUMBER);
    const where = td("", "kv-id");
    const strip = el("canvas");
    const now = el("i.kv-now");
    const holder = el("div.kv-strip", { title: "across: runs; up: rows. Dark: written in that run, plain: valid, pale: reserved, orange: copied again" }, strip, now);
    const root = el("tr", { "data-kv": "cache-row", "data-id": i, title: `${c.input} → ${c.output}, axis ${c.axis}` },
      td(c.name), td(c.protocol, "kv-soft"), td(el("div.kv-fillrow", {}, valid, bar)), written, copied, where, td(holder));
    return { root, valid, bar, written, copied, where, strip, now };
  }

  #draw(): void {
    const { p } = this.store.t;
    if (!this.#shown) return;
    const style = getComputedStyle(this.host);
    const colour = (name: string) => style.getPropertyValue(name).trim() || "#888";
    const [reserved, valid, fresh, again] = ["--kv-view-pale", "--kv-view-mid", "--kv-view", "--kv-missed-mid"].map(colour);
    const most = Math.max(1, ...p.caches.flatMap((c) => c.capacity));
    this.#rows.forEach((row, i) => {
      const c = p.caches[i];
      const context = row.strip.getContext("2d");
      const width = Math.floor(row.strip.clientWidth);
      if (!context || !width) return;
      const ratio = globalThis.devicePixelRatio || 1;
      row.strip.width = width * ratio;
      row.strip.height = HEIGHT * ratio;
      context.scale(ratio, ratio);
      const runs = Math.max(1, c.capacity.length);
      const gap = width / runs > 5 ? 1 : 0;
      for (let r = 0; r < runs; r++) {
        const x = (r / runs) * width;
        const w = Math.max(0.5, width / runs - gap);
        const cell = (from: number, to: number, fill: string) => {
          if (to <= from) return;
          context.fillStyle = fill;
          context.fillRect(x, HEIGHT - (to / most) * HEIGHT, w, Math.max(1, ((to - from) / most) * HEIGHT));
        };
        const before = r > 0 ? c.valid[r - 1] : 0;
        cell(c.valid[r], c.capacity[r], reserved);
        cell(0, Math.min(before, c.valid[r]), c.copied[r] > 0 ? again : valid);
        cell(before, c.valid[r], fresh);
      }
    });
  }
}
