// Puts the panes together on one root element. It knows the store and the commands, not where they came from.
import { CachesPane } from "./caches.js";
import { Commands, type Ask } from "./commands.js";
import { el, mark, say } from "./dom.js";
import { FrontierPane } from "./frontier.js";
import { GraphPane } from "./graph.js";
import { help } from "./help.js";
import { keys } from "./keys.js";
import { MemoryPane } from "./memory.js";
import { BreakpointMenu } from "./menu.js";
import { MissedPane } from "./missedpane.js";
import { StepPane } from "./step.js";
import type { Change, Store } from "./store.js";
import { Story } from "./story.js";
import { StepTable } from "./table.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { Toolbar } from "./toolbar.js";
import { ValuesPane, type Peek } from "./values.js";

export interface App { root: HTMLElement; peek(answer: Peek): void; destroy(): void }

/** The root is made apart, so that an error or a wait can be shown before there is anything to debug. */
export function makeRoot(): HTMLElement {
  return el("div", { class: "kvviz", role: "group", "aria-label": "kvviz debugger", tabindex: 0, "data-lm-suppress-shortcuts": "true" });
}

export function build(root: HTMLElement, store: Store, ask: Ask, flushTraits: () => void): App {
  const life = new AbortController();
  const { signal } = life;
  const commands = new Commands(store, ask, flushTraits);
  const app = el("div", { class: "kv-app" });
  root.replaceChildren(app);

  let panel: HTMLElement | null = null;
  const toggleHelp = () => {
    if (panel) {
      panel.remove();
      panel = null;
      return root.focus({ preventScroll: true });
    }
    panel = help();
    app.append(panel);
    panel.focus({ preventScroll: true });
  };
  const search = () => {
    tabs.show("steps");
    table.search.focus({ preventScroll: true });
    table.search.select();
  };
  const toolbar: Toolbar = new Toolbar(app, store, commands, { search, help: toggleHelp, breakpoints: () => menu.toggle() }, signal);
  const story = new Story(app, store, commands, signal);
  const pane = (name: string, label: string, parent: HTMLElement) => {
    const node = el("section", { class: `kv-pane kv-${name}`, "aria-label": label });
    parent.append(node);
    return node;
  };
  const main = el("div", { class: "kv-main" });
  app.append(main);
  const graph = new GraphPane(pane("graph", "Graph", main), store, commands, signal);
  const side = el("div", { class: "kv-side" });
  main.append(side);
  const step = new StepPane(pane("this", "This step", side), store, signal);
  const frontier = new FrontierPane(pane("frontier", "Frontier", side), store, commands, signal);
  const memory = new MemoryPane(pane("memory", "Buffers", main), store, signal);
  const timeline = new Timeline(pane("timeline", "Timeline", app), store, signal);
  const tabs = new Tabs(pane("lists", "Lists", app), signal);
  const table = new StepTable(tabs.add("steps", "Steps"), store, signal);
  const missed = new MissedPane(tabs.add("missed", "Missed"), store, signal);
  const caches = new CachesPane(tabs.add("caches", "Caches"), store, signal);
  const values = new ValuesPane(tabs.add("values", "Values"), store, ask, signal);
  const sentence = el("span", { class: "kv-say", "data-kv": "sentence", "aria-live": "polite" });
  const note = el("span", { class: "kv-tell", "data-kv": "status", role: "status" });
  app.append(el("div", { class: "kv-status" }, sentence, note));
  const menu: BreakpointMenu = new BreakpointMenu(app, store, commands, signal);

  const status = {
    update(change: Change) {
      const { p } = store.t;
      if (change.payload) {
        tabs.count("missed", missed.count);
        tabs.count("caches", p.caches.length);
      }
      if (change.cursor || change.payload) {
        mark(root, "data-step", store.cursor);
        say(sentence, store.cursor < 0 ? "Before the first step." : `Step ${store.cursor}: ${p.strings[p.step.sentence[store.cursor]]}`);
        sentence.title = sentence.textContent ?? "";
      }
      if (change.note || change.cursor) say(note, store.note);
    },
  };
  for (const view of [toolbar, story, step, frontier, memory, timeline, missed, caches, table, values, menu, graph, status]) store.add(view);

  keys(root, {
    commands, toolbar, search, help: toggleHelp,
    fit: () => graph.zoom(),
    chooseSelected: () => {
      const s = store.selection;
      if (s?.kind !== "node" || !store.now.choices.some((c) => c.node === s.id)) return false;
      commands.choose(s.id);
      return true;
    },
    escape: () => {
      if (panel) return toggleHelp();
      if (!menu.root.hidden) return menu.toggle();
      store.select(null);
      store.tell("");
    },
  }, signal);

  return {
    root,
    peek: (answer) => values.show(answer),
    destroy: () => {
      commands.pause();
      life.abort();
      store.destroy();
      root.replaceChildren();
    },
  };
}
