// Shared by the debugger and the planner: the root element, panes and the bars between them, the bar at the top, the help panel, the status line.
import { button, el, mark, on, onDrag, onHit, onKey, say, set, uid } from "./dom.js";
import { closePopover, Popover } from "./popover.js";
import type { Change, Store, View } from "./store.js";
import { shown, type Action } from "./actions.js";
import { into, over, placeName } from "./debug.js";
import { count, plural } from "./format.js";

export class Shell {
  readonly app = el("div.kv-app");
  readonly #sentence = el("span.kv-say", { "data-kv": "sentence", "aria-live": "polite" });
  readonly #note = el("span.kv-tell", { "data-kv": "status", role: "status" });
  readonly #undo = el("button", { class: "kv-link", "data-kv": "undo", title: "Back to where one was (u)" });
  #help: Popover | null = null;

  constructor(readonly root: HTMLElement, undo: () => void = () => {}) {
    this.#undo.onclick = undo;
    this.#undo.hidden = true;
    root.replaceChildren(this.app);
  }

  pane(name: string, label: string, parent: HTMLElement = this.app): HTMLElement {
    const node = el("section", { class: `kv-pane kv-${name}`, "aria-label": label });
    parent.append(node);
    return node;
  }

  /** Add the status line below all panes. */
  addStatus(): void { this.app.append(el("div.kv-status", {}, this.#sentence, this.#undo, this.#note)); }

  sentence(text: string): void { say(this.#sentence, text, text); }
  note(text: string): void { say(this.#note, text, text); }

  /** Offer to undo a jump; "" hides the offer. */
  undo(text: string): void {
    say(this.#undo, text && `◂ undo: ${text}`);
    this.#undo.hidden = !text;
  }

  /** Close what is open, or else forget the selection and the note. */
  clear(store: Store): void {
    if (closePopover(this.app)) return;
    store.select(null);
    store.tell("");
  }

  fit(): void { this.app.querySelector<HTMLElement>('[data-kv="fit"]')?.click(); }

  /** Toggle the help panel. */
  help(make: () => HTMLElement): void {
    if (this.#help?.open) return this.#help.close();
    this.#help = new Popover(this.app, make());
    this.#help.show(this.app.querySelector<HTMLElement>('[data-kv="help"]'));
  }
}

export interface Tab { id: string; title: string; panel: HTMLElement; tab: HTMLButtonElement }

export class Tabs {
  readonly bar = el("div.kv-tabs", { role: "tablist", "aria-label": "Lists" });
  readonly panels = el("div.kv-panels");
  #tabs: Tab[] = [];
  #open = ""; // the drawer is closed at first
  #beside: HTMLButtonElement | null = null;

  constructor(host: HTMLElement, private opened: (id: string) => void, signal: AbortSignal) {
    host.append(this.bar, this.panels);
    onHit(this.bar, "tab", (tab) => this.show(tab.dataset.id === this.#open ? "" : tab.dataset.id!), signal);
    on(host, "keydown", (event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      const all = [...this.#tabs.filter((t) => !t.tab.hidden).map((t) => t.tab), ...(this.#beside ? [this.#beside] : [])];
      const at = all.indexOf(event.target as HTMLButtonElement);
      if (!by || at < 0) return;
      event.stopPropagation();
      const next = all[(at + by + all.length) % all.length];
      if (next !== this.#beside) this.show(next.dataset.id!);
      next.focus();
    }, signal);
  }

  /** A button for the open list at the end of the tabs, reached by their arrows. */
  beside(button: HTMLButtonElement): void {
    this.#beside = button;
    button.tabIndex = -1;
    this.panels.before(button);
    this.show(this.#open);
  }

  add(id: string, title: string): HTMLElement {
    const panelId = uid(id);
    const panel = el("div.kv-panel", { role: "tabpanel", id: panelId, "aria-label": title, "data-id": id });
    const tab = el("button", { role: "tab", "aria-controls": panelId, "data-kv": "tab", "data-id": id }, title);
    this.#tabs.push({ id, title, panel, tab });
    this.bar.append(tab);
    this.panels.append(panel);
    this.show(this.#open);
    return panel;
  }

  get all(): readonly Tab[] { return this.#tabs; }
  /** Show or hide a tab; if it was open, the drawer closes. */
  offer(id: string, there: boolean): void {
    const tab = this.#tabs.find((t) => t.id === id)!;
    tab.tab.hidden = !there;
    if (!there && this.#open === id) this.show("");
  }

  /** `what`: what is counted, and where. */
  count(id: string, n: number, what: string): void {
    const tab = this.#tabs.find((t) => t.id === id)!;
    say(tab.tab, n > 0 ? `${tab.title} ${n}` : tab.title, n > 0 ? `${n} ${what}` : "");
    mark(tab.tab, "data-count", n);
  }

  show(id: string): void {
    if (id && !this.#tabs.some((t) => t.id === id)) return;
    this.#open = id;
    this.opened(id);
    this.panels.hidden = id === "";
    if (this.#beside) this.#beside.hidden = id === "";
    for (const t of this.#tabs) {
      const open = t.id === id;
      t.panel.hidden = !open;
      mark(t.tab, "aria-selected", String(open));
      t.tab.tabIndex = open || id === "" ? 0 : -1;
    }
  }
}

/** Put a bar before or after each of these panes; its size is the custom property `--kv-NAME` of `app`. */
export function splitters(app: HTMLElement, panes: { findings: HTMLElement; side: HTMLElement; map: HTMLElement; lists: HTMLElement }, signal: AbortSignal): void {
  const make = (pane: HTMLElement, split: Split) => splitter(app, pane, split, signal);
  panes.findings.after(make(panes.findings, { name: "findings", label: "Width of the findings", vertical: true, sign: 1, least: 160, most: 0.4 }));
  panes.side.before(make(panes.side, { name: "side", label: "Width of the inspector", vertical: true, sign: -1, least: 200, most: 0.6 }));
  panes.map.before(make(panes.map, { name: "map", label: "Height of memory", vertical: false, sign: -1, least: 60, most: 0.7 }));
  panes.lists.parentElement!.before(make(panes.lists, { name: "lists", label: "Height of the drawer", vertical: false, sign: -1, least: 60, most: 0.7 }));
}

/** Toggle full screen; some hosts do not allow it. */
export async function fullScreen(root: HTMLElement): Promise<void> {
  await (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen?.())?.catch(() => {});
}

/** `sign`: 1 if the pane grows as the splitter moves right or down. `least`: px; `most`: of the page. */
interface Split { name: string; label: string; vertical: boolean; sign: 1 | -1; least: number; most: number }

const STEP = 16; // px an arrow key moves the bar

const KEPT = "kvviz.sizes"; // in local storage, where a host has one

function sizes(): Record<string, number | undefined> {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

function splitter(app: HTMLElement, pane: HTMLElement, { name, label, vertical, sign, least, most }: Split, signal: AbortSignal): HTMLElement {
  const bar = el("div.kv-splitter", { role: "separator", tabindex: 0, "data-kv": "splitter", "data-id": name, "data-vertical": vertical ? 1 : null, "aria-orientation": vertical ? "vertical" : "horizontal", "aria-label": label, title: `${label}: drag, or use the arrow keys; double click for the usual size; Page Up and Page Down go to the other bars` });
  const size = () => (vertical ? pane.offsetWidth : pane.offsetHeight);
  /** Apply a size; the usual one if there is none. */
  const apply = (px: number | undefined) => {
    if (px === undefined) app.style.removeProperty(`--kv-${name}`);
    else set(app, `--kv-${name}`, `${px}px`);
    bar.ariaValueNow = String(px ?? 0);
    bar.ariaValueText = px === undefined ? "the usual size" : `${px} px`;
  };
  const put = (px?: number) => {
    const to = px === undefined ? px : Math.round(Math.max(least, Math.min(most * (vertical ? app.clientWidth : app.clientHeight), px)));
    apply(to);
    try {
      localStorage.setItem(KEPT, JSON.stringify({ ...sizes(), [name]: to }));
    } catch { /* it holds as long as the page lives */ }
  };
  let [from, was] = [0, 0];
  onDrag(bar, (event, moving) => {
    const at = vertical ? event.clientX : event.clientY;
    if (moving) return put(was + sign * (at - from));
    event.preventDefault();
    [from, was] = [at, size()];
  }, signal);
  on(bar, "dblclick", () => put(), signal);
  onKey(bar, (key) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[key];
    if (!by || /Left|Right/.test(key) !== vertical) return false;
    put(size() + sign * by * STEP);
  }, signal);
  const kept = sizes()[name];
  apply(Number.isFinite(kept) ? kept : undefined);
  return bar;
}

/** Makes buttons of actions; their titles name the keys. */
export function tools(list: Action[], signal: AbortSignal): (text: string, id: string, label?: string) => HTMLButtonElement {
  return (text, id, label) => {
    const { title, keys, run } = list.find((action) => action.id === id)!;
    const known = keys.filter((key) => !/F\d/.test(key)).map(shown);
    const b = button(text, `${title}${known.length ? ` (${known.join(" or ")})` : ""}`, id, run, signal, known.join(" ") || undefined);
    if (label) b.ariaLabel = label;
    if (id === "next") b.classList.add("kv-go");
    return b;
  };
}

export class Bar implements View {
  readonly root: HTMLElement;
  #goto: HTMLInputElement;
  #of = el("span");
  #where = el("span.kv-where");
  #position: HTMLElement;
  #policy = el("span.kv-pill", { "data-kv": "policy" });

  /** `unit`: the name of positions; `where`: the text after the number. */
  constructor(host: HTMLElement, private store: Store, unit: string, groups: HTMLElement[][], right: HTMLElement[], private where: () => string, signal: AbortSignal) {
    this.#goto = el("input", { type: "number", min: -1, step: 1, "data-kv": "goto", "aria-label": `Go to ${unit}`, title: `Numbered from 0; type a number to go there (g)` });
    const go = () => {
      const to = this.#goto.valueAsNumber;
      if (Number.isFinite(to)) store.go(to);
      this.#number();
    };
    on(this.#goto, "change", go, signal);
    on(this.#goto, "keydown", (event) => {
      if (event.key !== "Enter") return;
      go();
      host.parentElement?.focus({ preventScroll: true }); // so that the next key moves on from there
    }, signal);
    this.#position = el("span.kv-position", { "data-kv": "step-number" }, `${unit} `, this.#goto, this.#of, this.#where);
    this.root = el("div.kv-bar", { role: "toolbar", "aria-label": "Moves" }, ...groups.map((g) => el("span.kv-group", {}, ...g)),
      el("span.kv-rest", {}, this.#position, el("span.kv-right", {}, this.#policy, ...right)));
    host.append(this.root);
  }

  add(control: HTMLElement): void { this.#policy.after(control); }

  focusGoto(): void {
    this.#goto.focus();
    this.#goto.select();
  }

  #number(): void {
    const text = String(this.store.number);
    this.#goto.value = text;
    set(this.#goto, "--kv-digits", String(text.length));
  }

  update(change: Change): void {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      say(this.#policy, `${p.policy.dry ? "dry run · " : ""}policy: ${p.policy.name}`, p.policy.about);
      this.#goto.max = String(p.total - 1);
    }
    if (!change.payload && !change.cursor) return;
    this.#number();
    mark(this.#position, "data-step", store.number);
    const kept = p.runs.filter((r) => r.steps).length;
    const some = kept > 0 && p.runs.some((r) => !r.steps && r.written);
    say(this.#of, ` of ${count(p.total)}${some ? ` kept, in ${count(kept)} of ${plural(p.runs.length, "run")}` : ""}`);
    const where = this.where();
    say(this.#where, where ? ` · ${where}` : "", where);
  }
}

export class Toolbar implements View {
  readonly bar: Bar;
  readonly stops: HTMLButtonElement;
  #back: HTMLButtonElement;
  #tokens: HTMLElement;
  #later: HTMLElement;
  #into: HTMLButtonElement;

  constructor(host: HTMLElement, private store: Store, list: Action[], signal: AbortSignal) {
    const make = tools(list, signal);
    this.#back = make("◀\uFE0E", "back", "Back");
    this.#into = make("Into", "into");
    this.#later = make("Next token ▸▸", "next-token", "Next token");
    this.stops = make("Break", "breakpoints");
    this.bar = new Bar(host, store, "step", [[this.#back, make("Next ▶\uFE0E", "next", "Next")], [this.#into, make("Out", "out"), make("Continue", "continue")], [make("◂◂", "previous-token", "Previous token"), this.#later]],
      [this.stops, make("⌘K", "palette", "⌘K: all commands"), make("?", "help", "Help")], () => this.#where(), signal);
    this.#tokens = this.#later.parentElement!;
  }

  #where(): string {
    const { t, cursor, run } = this.store;
    const label = t.p.runs.length > 1 ? t.p.runs[run]?.label ?? "" : "";
    const place = this.store.bare < 0 ? placeName(t, cursor) : "totals only";
    return [label.replace(/^decode (\d+)/, "decode step $1"), place].filter(Boolean).join(" · ");
  }

  update(change: Change): void {
    const { t, cursor, breakpoints } = this.store;
    this.bar.update(change);
    if (change.payload) {
      this.#tokens.hidden = t.p.runs.length < 2 && !t.p.live;
      const what = t.p.story.length ? "Next token" : "Next run";
      say(this.#later, `${what} ▸▸`);
      this.#later.ariaLabel = what;
    }
    if (change.payload || change.cursor) {
      mark(this.#into, "data-on", into(t, cursor) !== over(t, cursor) ? "1" : null);
      mark(this.#back, "aria-disabled", cursor < 0 && this.store.bare < 0 ? "true" : null); // a disabled button would swallow keys
    }
    if (change.breakpoints) {
      const on = breakpoints.filter((b) => b.enabled).length;
      say(this.stops, on ? `Break ${on}` : "Break", `${on} breakpoints are on (b)`);
      mark(this.stops, "data-on", on ? "1" : null);
      mark(this.stops, "aria-label", `Break: ${on} breakpoints on`);
    }
  }
}
