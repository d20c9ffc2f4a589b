// The diagnosis: it comes with a finished recording, and of one that goes on when it is first wanted: the list at once, then the cures.
import type { Ask } from "./commands.js";
import type { Change, Store, View } from "./store.js";
import type { Report } from "./wire.js";

export class Reports implements View {
  #asked = false;
  constructor(private store: Store, private ask: Ask) {}

  want(): void {
    const { store, ask } = this;
    if (!store.report && !this.#asked && store.t.p.steps && ask.able()) this.#asked = ask({ do: "report", cures: false });
  }

  /** An answer of the kernel; `from` > 0: more entries of the one that is here. */
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
