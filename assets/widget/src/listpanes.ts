// The module of the buffer list and of the totals of a run, which share code and are not visible at opening.
import buffers from "./bufferlist.js";
import { NEEDS_KERNEL, type Ask, type Commands } from "./commands.js";
import { button, Delay, el, NUMBER, onHit, td } from "./dom.js";
import { bytes, count, plural, signed, visible } from "./format.js";
import type { MakePane } from "./lazypane.js";
import { bare } from "./replay.js";
import { Rows } from "./rows.js";
import type { Change, Store, View } from "./store.js";

const WAIT = 250; // ms: who only passes by asks for nothing
const FIGURES = ["peak", "allocated", "written", "copied"] as const;

class TotalsPane implements View {
  #timer: Delay;
  #run = -1;
  #about = el("div.kv-about");
  #rows: Rows;

  constructor(host: HTMLElement, private store: Store, private commands: Commands, private ask: Ask, private signal: AbortSignal) {
    this.#rows = new Rows("Runs", "kv-runlist", ["run", "token", "steps#", "peak#", "allocated#", "written#", "copied#"], store, (run) => this.#row(run), signal);
    this.#rows.sortable((head, run) => {
      const r = store.t.p.runs[run];
      return head === "run" ? run : head === "token" ? r.text.trim() : r[head as "steps"];
    });
    host.append(this.#about, this.#rows.root);
    onHit(this.#rows.root, "run-row", (row) => commands.toRun(Number(row.dataset.id)), signal);
    this.#timer = new Delay(signal);
  }

  update(change: Change): void {
    if (!change.cursor && !change.payload) return;
    const { bare: run, t: { p } } = this.store;
    if (change.payload) this.#rows.clear();
    if (run === this.#run && !change.payload) return;
    this.#run = run;
    this.#timer.stop();
    if (run < 0) return;
    const recorded = p.runs[run].steps > 0;
    const able = recorded && this.ask.able();
    if (able) this.#timer.start(WAIT, () => {
      if (this.store.bare === run && this.ask({ do: "detail", run })) this.store.tell("asked the kernel for the steps of this run …");
    });
    this.#about.replaceChildren(...this.#tell(run, recorded, able));
    this.#rows.show(p.runs.length, run, run);
  }

  #row(run: number): HTMLElement {
    const { p } = this.store.t;
    const r = p.runs[run];
    const here = !bare(p, run);
    return el("tr", { "data-kv": "run-row", "data-id": run }, td(r.label), td(visible(r.text).trim(), "kv-soft"),
      td(here ? count(r.steps) : r.steps ? "not here" : "not recorded", here ? NUMBER : "kv-num kv-soft"), ...FIGURES.map((key) => td(bytes(r[key]), NUMBER, { "data-zero": r[key] ? null : 1 })));
  }

  #tell(run: number, recorded: boolean, able: boolean): Node[] {
    const { p } = this.store.t;
    const r = p.runs[run];
    const before = p.runs[run - 1];
    const why = !recorded ? "Its steps were not recorded."
      : able ? `Its ${plural(r.steps, "step")} are in the kernel; they load when you select this run.`
      : `Its ${plural(r.steps, "step")} are not in this page; showing them ${NEEDS_KERNEL.replace("recorded: ", "")}.`;
    const here = p.runs.map((_, n) => n).filter((n) => !bare(p, n));
    const near = [...here.filter((n) => n < run).slice(-1), ...here.filter((n) => n > run).slice(0, 1)];
    return [
      el("h3", {}, "Totals only"),
      el("p.kv-big", {}, r.label, el("span.kv-name", {}, visible(r.text).trim())),
      el("p.kv-soft", { "data-kv": "totals-why" }, why, ...(recorded ? [] : [" To keep them, decode again with ", el("code", {}, `detail=[${run}]`), "."])),
      el("dl.kv-facts", {}, ...FIGURES.map((key) => el("div", { "data-kv": "total", "data-id": key }, el("dt", {}, key), el("dd", {}, bytes(r[key])),
        el("dd.kv-soft", {}, before && r[key] !== before[key] ? signed(r[key] - before[key]) : "")))),
      el("p.kv-soft", {}, before ? "With a sign: more or less than in the run before." : ""),
      el("p", {}, ...(near.length ? [el("span.kv-soft", {}, "Steps are here of "), ...near.map((n) => button(p.runs[n].label, "Go to this run", "near-run", () => this.commands.toRun(n), this.signal))] : [])),
    ];
  }
}

const totals: MakePane = (host, { store, commands, ask }, signal) => new TotalsPane(host, store, commands, ask, signal);
const panes: Record<string, MakePane> = { buffers, totals };
export default panes;
