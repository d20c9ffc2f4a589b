// Puts the debugger's panes together on one root element. It knows the store and the commands, not where they came from.
import { CachesPane, type CacheSource } from "./caches.js";
import type { Weights } from "./cacheview.js";
import { Commands, type Ask } from "./commands.js";
import { el, mark } from "./dom.js";
import { count } from "./format.js";
import { FrontierPane } from "./frontier.js";
import { help } from "./help.js";
import { History } from "./history.js";
import { Inspector } from "./inspector.js";
import { keys } from "./keys.js";
import { fullScreen, Workspace } from "./layouts.js";
import { MemoryPane } from "./memory.js";
import { BreakpointMenu } from "./menu.js";
import { LazyPane } from "./lazypane.js";
import type { Modules } from "./modules.js";
import { MissedPane } from "./missedpane.js";
import { Reports } from "./reports.js";
import { Shell } from "./shell.js";
import type { Change, Store } from "./store.js";
import { Story } from "./story.js";
import { StepTable } from "./table.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { Toolbar } from "./toolbar.js";
import { TotalsPane } from "./totals.js";
import { ValuesPane, type Peek } from "./values.js";
import { VerdictLine } from "./verdict.js";
import type { Report } from "./wire.js";

/** `hear`: an answer of the kernel. */
export interface App { hear(answer: Answer): void; destroy(): void }
export interface Answer extends Omit<Partial<Peek>, "id"> { id?: number | string; report?: Report; from?: number }

function sentence({ bare, cursor, number, t: { p } }: Store): string {
  if (bare >= 0) return `${p.runs[bare].label}: its totals; its steps are not here.`;
  return cursor < 0 ? "Before the first step." : `Step ${number}: ${p.strings[p.step.sentence[cursor]]}`;
}

export function build(root: HTMLElement, store: Store, ask: Ask, flushTraits: () => void, modules: Modules, source: CacheSource | null = null): App {
  const life = new AbortController();
  const { signal } = life;
  const commands = new Commands(store, ask, flushTraits);
  const shell = new Shell(root, () => void history.back());
  const { app } = shell;

  const toggleHelp = () => void shell.help(() => help(store.t.p.codes));
  const search = () => {
    tabs.show("steps");
    table.search.focus({ preventScroll: true });
    table.search.select();
  };
  const reports = new Reports(store, ask);
  const history = new History(store);
  const toolbar: Toolbar = new Toolbar(app, store, commands, { search, help: toggleHelp, breakpoints: () => menu.toggle() }, signal);
  const verdict = new VerdictLine(app, store, ask, reports, signal);
  const story = new Story(app, store, commands, signal);
  const main = el("div.kv-main");
  app.append(main);
  const totals = new TotalsPane(shell.pane("totals", "Totals of this run"), store, commands, ask, signal);
  const graph = new LazyPane(shell.pane("graph", "Graph", main), "graph", { store, commands, ask, modules }, signal);
  const side = el("div.kv-side");
  main.append(side);
  const inspector = new Inspector(shell.pane("this", "Inspector", side), store, ask, reports, history, signal);
  const frontier = new FrontierPane(shell.pane("frontier", "Frontier", side), store, (node) => commands.choose(node), signal);
  const map = shell.pane("map", "Memory map");
  const timeline = new Timeline(shell.pane("timeline", "Timeline", map), store, signal);
  const lists = shell.pane("lists", "Lists");
  const tabs = new Tabs(lists, signal);
  const table = new StepTable(tabs.add("steps", "Steps"), store, signal);
  const missed = new MissedPane(tabs.add("missed", "Missed"), store, ask, reports, (n) => tabs.count("missed", n), signal);
  const memory = new MemoryPane(tabs.add("buffers", "Buffers"), store, signal);
  const caches = new CachesPane(tabs.add("caches", "Caches"), store, ask, modules, source, signal);
  const values = new ValuesPane(tabs.add("values", "Values"), store, ask, signal);
  shell.addStatus();
  const workspace = new Workspace({ app, main, side, map, lists, panels: tabs.panels }, (id) => tabs.show(id), signal);
  toolbar.bar.add(workspace.choice);
  const menu: BreakpointMenu = new BreakpointMenu(app, store, commands, signal);

  const status = {
    update(change: Change) {
      if (change.payload) tabs.count("caches", store.t.p.caches.length);
      if (change.cursor || change.payload) {
        mark(root, "data-step", store.number);
        mark(root, "data-bare", store.bare < 0 ? null : store.bare);
        shell.sentence(sentence(store));
      }
      if (change.note || change.cursor) shell.note(store.note);
      shell.undo(history.jumped && history.from ? `jumped here from step ${count(history.from.number)}` : "");
    },
  };
  for (const view of [reports, history, toolbar, verdict, story, inspector, frontier, memory, totals, timeline, missed, caches, table, values, menu, graph, status]) store.add(view);

  const next = () => commands.next();
  const back = () => commands.back();
  const into = () => commands.into();
  const out = () => commands.out();
  keys(root, {
    moves: {
      ArrowRight: next, n: next, F10: next, ArrowLeft: back, p: back, "Shift+F10": back, i: into, F11: into, o: out, "Shift+F11": out,
      c: () => commands.continue(), C: () => commands.reverse(), ".": () => commands.nextRun(), ",": () => commands.previousRun(),
      Home: () => commands.first(), End: () => commands.last(), g: () => toolbar.bar.focusGoto(), b: () => commands.toggleSelected(),
      u: () => void history.back(), U: () => void history.forward(), F: () => void fullScreen(root),
      w: () => commands.why(), " ": () => commands.play(), "/": search, f: () => app.querySelector<HTMLElement>('[data-kv="fit"]')?.click(), "?": toggleHelp,
      Escape: () => {
        if (shell.help(null)) return;
        if (!menu.root.hidden) return menu.toggle();
        store.select(null);
        store.tell("");
      },
    },
    enter: () => {
      const s = store.selection;
      if (s?.kind !== "node" || !store.now.choices.some((c) => c.node === s.id)) return false;
      commands.choose(s.id, s.graph ?? store.now.graph);
      return true;
    },
    pause: () => commands.pause(),
  }, signal);

  return {
    hear: (answer) => {
      if (answer.report) reports.hear(answer.report, answer.from ?? 0);
      else if (typeof answer.id === "string") caches.hear(answer as Weights);
      else values.show(answer as Peek);
    },
    destroy: () => {
      commands.pause();
      life.abort();
      store.destroy();
      root.replaceChildren();
    },
  };
}
