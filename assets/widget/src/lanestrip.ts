// The lanes under the words: what each came to beside the one that it left; one click shows it, one click closes it.
import { el, hit, on } from "./dom.js";
import { bytes, count } from "./format.js";
import type { LaneState } from "./lanestate.js";
import type { Context } from "./lazypane.js";
import type { LaneInfo } from "./pair.js";
import type { Change, View } from "./store.js";

/** `−4,096 B copied`; empty where nothing changed. */
export function change(before: number, after: number, what: string): string {
  const by = after - before;
  return by ? `${by > 0 ? "+" : "−"}${bytes(Math.abs(by))} ${what}` : "";
}

export class LaneStrip implements View {
  #rows = el("div.kv-lanerows", { role: "list" });

  constructor(host: HTMLElement, private context: Context, private state: LaneState, signal: AbortSignal) {
    host.append(this.#rows);
    on(this.#rows, "click", (event) => {
      const row = hit(event, "lane");
      if (!row) return;
      const id = Number(row.dataset.id);
      const info = state.info(id);
      if (hit(event, "lane-close")) return context.commands.send({ do: "close_lane", lane: id }, "asked the kernel to close the lane …");
      if (hit(event, "lane-compare")) return void state.compare(info?.of ?? 0, id).then(() => context.openList?.("compare"));
      if (hit(event, "lane-first") && info?.first) return void this.#first(info);
      if (id !== state.shown) void state.show(id);
    }, signal);
    state.listen(() => this.#draw());
  }

  /** The first difference, in the lane that is shown if it is one of the two, else in this one. */
  async #first(info: LaneInfo): Promise<void> {
    const { first } = info;
    if (!first) return;
    if (this.state.shown === info.of) this.context.store.go(first.step);
    else if (this.state.shown === info.id) this.context.store.go(first.other);
    else await this.state.show(info.id, first.other);
    this.context.store.tell(first.sentence);
  }

  update(change: Change): void {
    if (change.payload) this.state.redrawn();
    if (change.payload || change.cursor) this.#draw();
  }

  #draw(): void {
    const { state } = this;
    this.#rows.replaceChildren(...(state.list.length > 1 ? state.list.map((lane) => this.#row(lane)) : []));
  }

  #row(lane: LaneInfo): HTMLElement {
    const { state, context: { ask } } = this;
    const shown = lane.id === state.shown;
    const { p } = this.context.store.t;
    const run = p.runs.findIndex((r) => lane.step >= r.from && lane.step < r.from + r.steps);
    const said = p.runs.length > 1 && p.runs[run]?.text !== p.runs[run]?.label ? p.runs[run].text : "";
    const word = said ? ` “${said.trim()}”` : "";
    const from = lane.of === null ? "recorded first" : lane.step ? `left ${state.letter(lane.of)} at step ${count(lane.step)}${word}` : `whole run, beside ${state.letter(lane.of)}`;
    const row = el("div.kv-lane", { role: "listitem", "data-kv": "lane", "data-id": lane.id, "data-shown": shown ? 1 : null },
      el("button", { class: "kv-lanename", "data-kv": "lane-name", "aria-pressed": String(shown), title: shown ? "This lane is shown" : "Show this lane at the same op" },
        el("b", {}, state.letter(lane.id)), ` ${lane.label}`),
      el("span.kv-soft.kv-from", { title: lane.holds || null, "data-kv": "lane-from" }, from, lane.step && lane.throughout ? "; its change holds for the whole run" : "", lane.live ? ", goes on" : ""));
    if (!lane.figures || lane.of === null) return row;
    const [a, b] = lane.figures;
    const told = (["copied", "peak", "allocated"] as const).map((what) => [what, change(a[what], b[what], what)]).filter(([, text]) => text);
    const figures = el("span.kv-deltas", { "data-kv": "lane-figures", title: lane.note || "Of all runs" }, ...(told.length ? told : [["", "the same bytes"]]).map(([what, text]) => el("span", { "data-what": what, "data-by": text[0] === "+" ? "more" : text[0] === "−" ? "less" : null }, text)));
    const first = lane.first ? el("button", { class: "kv-link", "data-kv": "lane-first", title: lane.first.sentence }, `first difference at step ${count(lane.first.step)}`) : el("span.kv-soft", {}, "decided alike");
    const broken = lane.order?.total ? el("span.kv-broken", { "data-kv": "lane-broken", title: lane.order.broken[0][5] }, `✕ ${count(lane.order.total)} broken`) : "";
    const compared = state.comparison?.infos[1].id === lane.id;
    const tools = el("span.kv-tools", {}, el("button", { "data-kv": "lane-compare", "aria-pressed": String(compared), title: "Mark in the graph where decisions differ, and list the differences" }, `Compare ${state.letter(lane.of)} | ${state.letter(lane.id)}`));
    if (ask.able()) tools.append(el("button", { "data-kv": "lane-close", "aria-label": `Close lane ${lane.label}`, title: "Undo: close this lane" }, "✕"));
    row.append(figures, first, broken, tools);
    return row;
  }
}
