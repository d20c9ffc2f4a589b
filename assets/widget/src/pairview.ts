// Before and after: two debuggers side by side with one cursor, and over them what the change came to.
import { build, type Answer, type App } from "./app.js";
import { scaleOf } from "./curve.js";
import { button, el, mark, say } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { common, differences, partner, type Match, type Totals } from "./pair.js";
import { modules } from "./modules.js";
import { makeRoot } from "./shell.js";
import { bareRuns, numberOf } from "./steps.js";
import { Store } from "./store.js";
import { line, listen, Writer, type Model } from "./sync.js";
import type { Payload } from "./wire.js";

const FIGURES: [keyof Totals, string, (n: number) => string][] = [
  ["peak", "peak", bytes], ["copied", "copied", bytes], ["allocated", "allocated", bytes], ["in_place", "steps in place", count], ["missed", "steps missed", count], ["steps", "steps", count],
];
const SIDES = [0, 1] as const;
const TRAITS = ["cursor", "partner"] as const;

const digits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
/** `−4,096 B (−2.9 %)`, with its own sign; nothing changed: `no change`. */
export function change(before: number, after: number, write: (n: number) => string): string {
  const by = after - before;
  if (!by) return "no change";
  const sign = by > 0 ? "+" : "−";
  const share = before ? (100 * Math.abs(by)) / before : 0;
  return `${sign}${write(Math.abs(by))}${share < 0.1 ? "" : ` (${sign}${digits.format(share)} %)`}`;
}

export class Pair {
  #stores: Store[];
  #apps: App[];
  #notes = SIDES.map(() => el("span.kv-hint", { role: "status", "data-kv": "partner-note" }));
  #halves: HTMLElement[];
  #life = new AbortController();

  constructor(model: Model, root: HTMLElement, payloads: Payload[], private match: Match) {
    const { signal } = this.#life;
    // both are looked at as they are recorded: running on belongs to the debugger alone
    this.#stores = payloads.map((p, side) => new Store({ ...p, live: null }, model.get(TRAITS[side]) ?? -1));
    const [a, b] = this.#stores;
    a.scale = b.scale = common(scaleOf(a.t), scaleOf(b.t));
    const roots = SIDES.map(() => makeRoot(true));
    this.#halves = SIDES.map((side) => el("section.kv-half", { "data-side": TRAITS[side], "aria-label": match.labels[side] },
      el("header", {}, el("h3", {}, match.labels[side]), this.#notes[side]), roots[side]));
    root.replaceChildren(this.#header(model), el("div.kv-pair", {}, ...this.#halves));

    const writer = new Writer(model, { cursor: () => a.number, partner: () => b.number }, signal);
    const { ask, answered } = line(model, (note) => a.tell(note), signal);
    const parts = modules(() => model.get("modules"));
    this.#apps = SIDES.map((side) => build(roots[side], this.#stores[side], Object.assign((m: object) => ask({ ...m, side } as never), { able: () => false }), writer.flush, parts));
    for (const side of SIDES) {
      const store = this.#stores[side];
      const other = this.#stores[1 - side];
      store.onPerson = (what, drag) => {
        if (what === "cursor") {
          if (store.bare >= 0) other.toRun(store.bare, "model", drag);
          else other.seek(partner(match.to[side], store.cursor).step, "model", drag);
          writer.touch(...TRAITS);
          this.#tell(side);
        } else if (what === "breakpoints") other.setBreakpoints(store.breakpoints, "model");
        else other.select(this.#sameNode(side), "model");
      };
      listen(model, `change:${TRAITS[side]}`, () => {
        if (writer.has("cursor")) return;
        // Python has paired them already
        a.go(model.get("cursor"), "model");
        b.go(model.get("partner"), "model");
        this.#tell(side);
      }, signal);
    }
    listen(model, "msg:custom", (answer: (Answer & { side?: number }) | undefined) => {
      answered();
      if (answer?.id !== undefined && answer.id !== null) this.#apps[answer.side ?? 0].hear(answer);
      else if (answer?.error) a.tell(answer.error);
    }, signal);
    this.#tell(0);
  }

  /** The node that is chosen on one side, where the other side has it too. */
  #sameNode(side: number): Store["selection"] {
    const s = this.#stores[side].selection;
    if (s?.kind !== "node") return null;
    const name = (store: Store) => store.t.p.graphs[s.graph ?? 0]?.nodes[s.id]?.[0];
    return name(this.#stores[side]) === name(this.#stores[1 - side]) ? s : null;
  }

  /** Say on the other side whether the op of this side ran there at all. */
  #tell(side: 0 | 1): void {
    const store = this.#stores[side];
    const { exact, step } = partner(this.match.to[side], store.cursor);
    const p = store.t.p;
    const node = store.cursor < 0 ? "" : p.graphs[p.frame.graph[p.step.frame[store.cursor]]].nodes[p.step.node[store.cursor]][0];
    mark(this.#halves[side], "data-near", null);
    mark(this.#halves[1 - side], "data-near", exact ? null : 1);
    say(this.#notes[side], "");
    say(this.#notes[1 - side], exact ? "" : step < 0 ? `${node} does not run here` : `${node} does not run here: shown is step ${numberOf(this.#stores[1 - side].t, step)}, the nearest before it`);
  }

  #header(model: Model): HTMLElement {
    const { signal } = this.#life;
    const { labels, totals, first, back, runs, note } = this.match;
    const [a, b] = this.#stores;
    const found = differences(a.t, b.t, this.match.to[0], runs);
    // figures of recordings of different length are not like for like: say so
    const figures = FIGURES.filter(([key]) => key !== "steps" || totals[0].steps !== totals[1].steps).map(([key, text, write]) => {
      const [x, y] = [totals[0][key], totals[1][key]];
      const better = key === "steps" ? null : key === "in_place" ? y > x : y < x;
      return el("div", { "data-kv": "pair-figure", "data-id": key, "data-change": x === y || better === null ? null : better ? "better" : "worse" },
        el("dt", {}, `${text} `, el("b", {}, change(x, y, write))), el("dd", {}, `${write(x)} → ${write(y)}`));
    });
    const go = (step: number | undefined) => void (step !== undefined && a.seek(step));
    const start = () => (first ? a.go(first.step) : go(found[0]));
    const tools = el("div.kv-group");
    const leave = el("span");
    if (back) leave.append(button("◀\uFE0E Back", "Back to the debugger", "pair-back", () => {
      model.set("mode", "debugger");
      model.save_changes();
    }, signal));
    if (first || found.length) {
      tools.append(
        button("First difference", "The first op that was decided in another way", "first-difference", start, signal),
        button("◂", "The difference before", "previous-difference", () => go(found.filter((s) => s < a.cursor).pop()), signal),
        button("▸", "The next difference", "next-difference", () => go(found.find((s) => s > a.cursor)), signal));
    }
    const where = bareRuns(a.t.p) ? " in the runs whose steps are here" : "";
    const said = (found.length ? `${plural(found.length, "op")} decided in another way` : "all ops decided alike") + where + (note ? `; ${note}` : "");
    return el("header.kv-compare.kv-bar", { "aria-label": `${labels[0]} compared with ${labels[1]}` }, leave, el("dl", {}, ...figures),
      el("div", {}, tools, el("p.kv-soft", { "data-kv": "pair-count" }, said)),
      first ? el("p.kv-first", { "data-kv": "pair-first" }, el("b", {}, "First difference "), first.sentence) : "");
  }

  change(): boolean { return false; }
  relook(): void { for (const s of this.#stores) s.relook(); }
  tell(note: string): void { this.#stores[0].tell(note); }
  destroy(): void {
    this.#life.abort();
    for (const app of this.#apps) app.destroy();
  }
}
