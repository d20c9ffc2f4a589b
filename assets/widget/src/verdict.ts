// The diagnosis of the recording, requested when first needed, and its verdict in one line.
import type { Ask } from "./commands.js";
import { button, el, onHit } from "./dom.js";
import { pairsOf } from "./hiddenpairs.js";
import { findStep } from "./replay.js";
import type { Change, Store, View } from "./store.js";
import type { Report } from "./wire.js";

export class Reports implements View {
  #asked = false;
  constructor(private store: Store, private ask: Ask) {}

  want(): void {
    const { store, ask } = this;
    if (!store.report && !this.#asked && store.t.p.steps && ask.able()) this.#asked = ask({ do: "report", cures: false });
  }

  /** Take a report; `from` > 0: more entries of the present one. */
  hear(report: Report, from: number): void {
    if (report.steps !== this.store.t.p.steps) return; // it has run on since
    const before = from > 0 ? this.store.report?.missed ?? [] : [];
    this.store.setReport({ ...report, missed: [...before, ...report.missed] });
    if (report.cures === false) this.ask({ do: "report" });
  }

  update(change: Change): void {
    if (change.payload) this.#asked = false;
  }
}

const PAIRS = ["hidden", "broken"]; // kinds that lead to a pair

export class VerdictLine implements View {
  readonly root = el("div.kv-verdict", { role: "region", "aria-label": "Verdict", "data-kv": "verdict" });
  #parts = el("div.kv-parts");
  #closed = false;

  constructor(host: HTMLElement, private store: Store, private ask: Ask, private reports: Reports, openList: (id: string) => void, private signal: AbortSignal) {
    const close = button("✕", "Close the verdict", "verdict-close", () => {
      this.#closed = true;
      this.#draw();
    }, signal);
    close.ariaLabel = "Close the verdict";
    this.root.append(el("b", {}, "Verdict"), this.#parts, close);
    host.append(this.root);
    onHit(this.#parts, "verdict-item", (item) => {
      const found = store.report?.verdict?.[Number(item.dataset.id)];
      if (!found) return;
      if (found.step !== null) store.go(found.step);
      if (found.selection) store.select(found.selection);
      const pair = PAIRS.includes(found.kind) && found.step !== null ? pairsOf(store.t.p, findStep(store.t, found.step).step)[0] : undefined;
      if (pair === undefined) return;
      openList("hazards");
      store.choosePair(pair);
    }, signal);
  }

  update(change: Change): void {
    if (!change.payload && !change.report) return;
    // an unfinished trace is diagnosed on request
    if (!this.store.t.p.live) this.reports.want();
    this.#draw();
  }

  #draw(): void {
    const { store } = this;
    const items = store.report?.verdict ?? [];
    this.root.hidden = this.#closed || !items.length;
    this.#parts.replaceChildren(...items.map((v, id) => {
      const lead = v.step !== null || v.selection !== null;
      const item = el("span.kv-item", { "data-kind": v.kind }, lead ? el("button", { class: "kv-link", "data-kv": "verdict-item", "data-id": id, title: "Show it" }, v.text) : el("span", {}, v.text));
      const { fix } = v;
      if (!fix) return item;
      if (this.ask.able()) item.append(button(`Apply ${fix.change || fix.label}`, fix.sentence, "verdict-apply", () => {
        if (this.ask({ do: "fix", verdict: id })) store.tell("asked the kernel to run again with this change …");
      }, this.signal));
      else item.append(el("code", { title: fix.sentence }, fix.change || fix.label));
      return item;
    }));
  }
}
