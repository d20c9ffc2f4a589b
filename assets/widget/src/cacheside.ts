// Beside the rows of a cache: its meters for one run and for all, and what is wrong with it.
import { cost, meter, type CacheData } from "./cachedata.js";
import { el, onHit, say, td } from "./dom.js";
import { bytes, count, plural } from "./format.js";

export class CacheSide {
  readonly root: HTMLElement;
  #meters = el("tbody");
  #cost = el("p.kv-cache-cost", { "data-kv": "cache-cost" });
  #warnings = el("ul.kv-cache-warnings", { "data-kv": "cache-warnings" });

  constructor(go: (run: number) => void, signal: AbortSignal) {
    const head = ["", "this run", "all runs"].map((text) => el("th", { scope: "col" }, text));
    this.root = el("div.kv-cache-side", {}, this.#cost, el("table.kv-cache-meters", { "aria-label": "Meters of this cache" }, el("thead", {}, el("tr", {}, ...head)), this.#meters));
    this.#cost.after(this.#warnings);
    onHit(this.#warnings, "cache-run", (link) => go(Number(link.dataset.run)), signal);
  }

  show(d: CacheData, cache: number, run: number, protocol: string): void {
    say(this.#cost, cost(d, cache, run, protocol));
    this.#meters.replaceChildren(...d.meters.map(({ name, label, about, sums, bad }) => {
      const write = name.startsWith("bytes") ? bytes : count;
      const value = meter(d, name, cache, run);
      const sum = d.runs.reduce((total, _, r) => total + meter(d, name, cache, r), 0);
      return el("tr", { "data-kv": "meter", "data-id": name, "data-bad": bad && value > 0 ? 1 : null, "data-zero": value ? null : 1 },
        el("th", { scope: "row", title: about }, label), td(write(value), "kv-num"), td(sums ? write(sum) : "", "kv-num"));
    }));
    const mine = d.warnings.filter((w) => w.cache === cache);
    const others = d.warnings.length - mine.length;
    this.#warnings.replaceChildren(
      ...mine.map((w) => el("li", { "data-kv": "cache-warning", "data-id": w.kind }, el("div", {}, el("b", {}, `⚠\uFE0E ${w.kind}`),
        el("button", { "data-kv": "cache-run", "data-run": w.run, title: "Go to the first of these runs" }, `${d.runs[w.run] ?? ""}${w.runs > 1 ? ` +${count(w.runs - 1)}` : ""}`)), el("p", {}, w.text))),
      mine.length ? "" : el("li.kv-soft", {}, "Nothing is wrong with this cache."),
      others ? el("li.kv-soft", {}, `${plural(others, "warning")} about other caches, marked ⚠\uFE0E in the list.`) : "");
  }
}
