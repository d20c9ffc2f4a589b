// Puts the debugger's panes together on one root element. It knows the store and the commands, not where they came from.
import { actions, Commands, movesOf, type Ask } from "./actions.js";
import { button, el, mark, on, onHit, say } from "./dom.js";
import type { Modules } from "./modules.js";
import { count, visible } from "./format.js";
import { EvidenceBar, FindingsPane, Reports } from "./findings.js";
import { FrontierPane } from "./frontier.js";
import { Hits, QueryBox } from "./hits.js";
import { History, Inspector } from "./inspector.js";
import { links } from "./inspectstep.js";
import { keys } from "./keys.js";
import type { LaneModule } from "./lanewidget.js";
import { fullScreen, Shell, splitters, Tabs, Toolbar } from "./shell.js";
import { copyButton, LazyPane, shareButton, type CacheSource, type Context, type ShareContext, type Surroundings } from "./lazypane.js";
import type { LaneSource } from "./pair.js";
import type { BreakpointMenu, Palette, PaletteModule } from "./palette.js";
import type { Change, Store, View } from "./store.js";
import { Timeline } from "./timeline.js";
import type { Guide, GuideModule } from "./tour.js";
import type { Report } from "./wire.js";
import { explain } from "./popover.js";

const WIDE = 1100; // px from which on a list that opens by itself leaves room for the graph

/** The lists of the drawer, and the modules that have them. */
const LISTS = [["steps", "Steps", "steps"], ["buffers", "Buffers", "lists.buffers"], ["caches", "Caches", "cache"], ["values", "Values", "values"], ["clock", "Lanes", "clock"], ["hazards", "Hazards", "hazards"], ["compare", "Compare", "lanes.compare"]];

class Story implements View {
  readonly root: HTMLElement;
  #words = el("div.kv-words", { role: "group", "aria-label": "Words so far" });
  #slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Decode step", "data-kv": "decode-slider" });
  #text = el("output.kv-run");
  #run = -2;

  constructor(host: HTMLElement, private store: Store, signal: AbortSignal) {
    this.root = el("div.kv-story", {}, this.#words, el("div.kv-runs", {}, this.#slider, this.#text));
    host.append(this.root);
    onHit(this.#words, "story-word", (word) => store.toRun(Number(word.dataset.id)), signal);
    on(this.#slider, "input", () => store.toRun(this.#slider.valueAsNumber, "person", true), signal);
  }

  update(change: Change): void {
    const { p } = this.store.t;
    if (change.payload) {
      this.root.hidden = p.runs.length < 2 && p.story.length === 0;
      this.#slider.max = String(Math.max(0, p.runs.length - 1));
      // without words, the labels of runs are shown
      const words = p.story.length ? p.story : p.runs.map((r, run) => ({ text: r.label, run, prompt: false }));
      this.#words.replaceChildren(...words.map((w) => el("button", {
        tabindex: -1, class: w.prompt ? "kv-word kv-prompt" : "kv-word", "data-kv": "story-word",
        "data-id": w.run ?? 0, title: w.prompt ? "prompt: read in the first run" : p.runs[w.run ?? 0]?.label ?? "",
      }, visible(w.text) || "∅")));
      if (p.live && p.story.length) this.#words.append(el("span.kv-word.kv-more", { title: "more can be run" }, "…"));
      this.#run = -2;
    }
    if (!change.cursor && !change.payload) return;
    const run = this.store.cursor < 0 && this.store.bare < 0 ? -1 : this.store.run;
    if (run === this.#run) return;
    this.#run = run;
    const at = Math.max(0, run);
    this.#slider.value = String(at);
    const label = p.runs[at]?.label ?? "";
    this.#slider.setAttribute("aria-valuetext", `${label}, ${at + 1} of ${p.runs.length}`);
    say(this.#text, p.runs.length ? `${label} · run ${count(at + 1)} of ${count(p.runs.length)}` : "no run");
    let now: Element | null = null;
    for (const word of this.#words.querySelectorAll<HTMLElement>('[data-kv="story-word"]')) {
      const mine = Number(word.dataset.id);
      const prompt = word.classList.contains("kv-prompt");
      const state = prompt ? "prompt" : mine === run ? "now" : mine < run ? "said" : "later";
      mark(word, "data-state", state);
      mark(word, "aria-current", state === "now" ? "step" : null);
      if (state === "now") now = word;
    }
    this.store.reveal(this.#words, now ?? this.#words.firstElementChild ?? this.#words);
  }
}

/** `show`: opens a table of the drawer; `search`: finds steps. */
export interface App { hear(answer: Answer): void; show(list: string): void; search(query: string): void; destroy(): void }
export interface Answer { id?: number | string; error?: string; report?: Report }

function sentence({ bare, cursor, number, t: { p } }: Store): string {
  if (bare >= 0) return `${p.runs[bare].label}: its totals; its steps are not here.`;
  return cursor < 0 ? "Before the first step." : `Step ${number}: ${p.strings[p.step.sentence[cursor]]}`;
}

export function build(root: HTMLElement, store: Store, ask: Ask, flushTraits: () => void, modules: Modules, source: CacheSource | null = null, around: Surroundings = {}, lanes: LaneSource | null = null): App {
  const life = new AbortController();
  const { signal } = life;
  const commands = new Commands(store, ask, flushTraits);
  const shell = new Shell(root, () => void history.back());
  const { app } = shell;
  explain(app, signal);
  links(app, store, signal);

  const hits = new Hits(store, modules);
  let palette: Palette | null = null;
  let menu: BreakpointMenu | null = null;
  const opened = async () => modules.load<PaletteModule>("palette");
  const toggleHelp = () => void opened().then((m) => shell.help(() => m.help(store.t.p.codes, store.t.p.query, list)));
  // what a device did cannot be run again in a file
  const again = () => ask.able() || !store.t.p.time.step.length;
  const choose = () => {
    const s = store.selection;
    if (s?.kind !== "node" || !store.now.choices.some((c) => c.node === s.id)) return false;
    commands.choose(s.id, s.graph ?? store.now.graph);
    return true;
  };
  const list = actions(commands, {
    search: () => box.focus(), help: toggleHelp, breakpoints: () => void opened().then((m) => {
      if (!menu) store.add((menu = new m.BreakpointMenu(app, store, commands, hits, signal)));
      menu.toggle(toolbar.stops);
    }), goto: () => toolbar.bar.focusGoto(), fit: () => shell.fit(), full: () => void fullScreen(root),
    palette: () => void opened().then((m) => (palette ??= new m.Palette(app, store, list, hits)).toggle()),
    wasBack: () => void history.back(), wasForward: () => void history.forward(), nextHit: (by) => hits.go(by),
    walk: (by) => evidence.walk(by), choose: () => choose() || store.tell("select an op of the frontier first"),
    close: () => shell.clear(store),
  });
  const reports = new Reports(store, ask);
  store.open(!!around.placed || !!store.t.p.tour || !!store.t.p.live, around.place?.finding);
  const history = new History(store);
  const toolbar: Toolbar = new Toolbar(app, store, list, signal);
  const box = new QueryBox(store, hits, (until) => commands.send({ do: "continue", until }, "asked the kernel to run on …"), signal);
  const story = new Story(app, store, signal);
  const strip = shell.pane("lanes", "Lanes");
  const main = el("div.kv-main");
  app.append(main);
  const found = shell.pane("findings", "Findings", main);
  const findings = new FindingsPane(found, store, ask, reports, (id) => tabs.show(id), !!around.placed || !!store.evidence, signal);
  const middle = el("div.kv-evidence");
  main.append(middle);
  const share: ShareContext = { store, modules, around, want: () => reports.want() };
  const context: Context = { store, commands, ask, modules, hits, reports, share, lanes, caches: source, openList: (id) => tabs.show(id) };
  const evidence = new EvidenceBar(middle, store, signal);
  const totalsOf = shell.pane("totals", "Totals of this run", middle);
  const totals = new LazyPane(totalsOf, "lists.totals", context, signal);
  const canvas = shell.pane("graph", "Graph", middle);
  const graph = new LazyPane(canvas, "graph", context, signal);
  const side = el("div.kv-side");
  main.append(side);
  const inspector = new Inspector(shell.pane("this", "Inspector", side), store, ask, reports, history, share, signal, (id) => tabs.show(id));
  const frontier = new FrontierPane(shell.pane("frontier", "Frontier", side), store, (node) => commands.choose(node), signal);
  const map = shell.pane("map", "Memory", middle);
  const spacetime = new LazyPane(shell.pane("space", "Space and time", map), "map", context, signal, false);
  const timeline = new Timeline(shell.pane("timeline", "Timeline", map), store, signal, map, (query) => search(query));
  const lists = shell.pane("lists", "Lists");
  const tabs = new Tabs(lists, (id) => store.openList(id), signal);
  const search = (query: string) => {
    tabs.show("steps");
    void hits.ask(query);
  };
  tabs.beside(copyButton(lists, "lists", share, signal));
  const drawer = new Map(LISTS.map(([id, title, module]) => [id, new LazyPane(tabs.add(id, title), module, context, signal, id !== "clock")]));
  if (lanes) drawer.set("", new LazyPane(strip, "lanes.strip", context, signal));
  const laned = () => {
    const more = (lanes?.get("lanes") ?? []).length > 1;
    strip.hidden = !more;
    tabs.offer("compare", more);
  };
  lanes?.changed(laned);
  laned();
  tabs.show(around.place?.list ?? "");
  shell.addStatus();
  splitters(app, { findings: found, side, map, lists: tabs.panels }, signal);
  list.push(
    ...tabs.all.map(({ id, title }) => ({ id: `list-${id}`, title: `Show ${title.toLowerCase()}`, keys: [], run: () => tabs.show(id) })),
    { id: "map", title: "Show memory as a map, or as a curve", keys: [], run: () => timeline.asMap() },
  );
  const forks = button("Fork ▾", "Run again from the same inputs with a change, in a lane beside this one (k)", "fork", () => {
    modules.load<LaneModule>("lanes").then((m) => m.menu(app, context, forks, signal), (error) => store.tell(String(error)));
  }, signal, "k");
  if (lanes && again()) {
    toolbar.bar.add(forks);
    list.push({ id: "fork", title: "Fork: run again with a change", keys: ["k"], run: () => forks.click() });
  }
  toolbar.bar.add(box.onward);
  toolbar.bar.add(box.root);
  toolbar.bar.add(shareButton("Share ▾", {}, share, signal));

  let guide: Promise<Guide> | null = null;
  const guided = () => (guide ??= modules.load<GuideModule>("tour").then((make) => make({
    app, after: toolbar.bar.root, store, open: (id) => tabs.show(id), map: () => timeline.asMap(true),
  }, signal)));
  const lead = (by: 1 | -1) => void guided().then((g) => g.go(by), (error) => store.tell(String(error)));
  if (store.t.p.tour) {
    toolbar.bar.add(button("Tour", "Guided tour: next stop (t)", "tour", () => lead(1), signal, "t"));
    list.push({ id: "tour", title: "Guided tour: next stop", keys: ["t"], run: () => lead(1) }, { id: "tour-back", title: "Guided tour: stop before", keys: ["T"], run: () => lead(-1) });
    void guided().catch((error) => store.tell(String(error)));
  }

  let timed = false;
  const status = {
    update(change: Change) {
      if (change.payload) {
        const { p } = store;
        const was = timed;
        timed = p.time.step.length > 0;
        tabs.offer("clock", timed);
        if (timed && !was && app.clientWidth >= WIDE) tabs.show("clock");
        tabs.count("caches", p.caches.length, "caches of this model");
        tabs.count("hazards", p.hazards?.counts[0] ?? 0, "pairs of steps in all runs that no edge orders");
        tabs.offer("values", again() || !!store.t.values);
        tabs.offer("caches", p.caches.length > 0 || ask.able());
        tabs.offer("hazards", !!p.hazards || (ask.able() && !p.live));
      }
      if (change.cursor || change.payload) {
        totalsOf.hidden = store.bare < 0;
        mark(root, "data-step", store.number);
        mark(root, "data-bare", store.bare < 0 ? null : store.bare);
        shell.sentence(sentence(store));
      }
      if (change.note || change.cursor) shell.note(store.note);
      shell.undo(history.jumped && history.from ? `jumped here from step ${count(history.from.number)}` : "");
    },
  };
  for (const view of [reports, history, hits, toolbar, box, findings, evidence, story, inspector, frontier, totals, timeline, spacetime, ...drawer.values(), graph, status]) store.add(view);

  // a page that begins at a cache shows its rows
  if (store.selection?.kind === "cache") tabs.show("caches");

  keys(root, { moves: movesOf(list), enter: choose, pause: () => commands.player.pause() }, signal);

  return {
    search,
    show: (list) => tabs.show(list),
    hear: (answer) => {
      if (answer.report) reports.hear(answer.report);
      else drawer.get(typeof answer.id === "string" ? "caches" : "values")!.hear(answer);
    },
    destroy: () => {
      commands.player.pause();
      life.abort();
      store.destroy();
      root.replaceChildren();
    },
  };
}
