// The share menu: Markdown of the step and of the selection, a picture of a pane, a link, the recording as one file.
import { copy, save } from "./clipboard.js";
import { el, on, say } from "./dom.js";
import { filled, type Facts } from "./markdown.js";
import { toPng, toSvg } from "./picture.js";
import { Popover } from "./popover.js";
import { runAt, stepsOf } from "./replay.js";
import { describe, type Selection } from "./select.js";
import { cacheFacts, stepFacts, storageFacts } from "./sharefacts.js";
import type { ShareContext, Shared } from "./sharing.js";
import { findStep } from "./steps.js";
import type { Store } from "./store.js";
import { tableText } from "./tabletext.js";

type Told = { title: string; kind: "step" | "storage" | "cache"; facts: Facts };
const text = (value: string) => new Blob([value], { type: "text/plain" });

function ofStep(store: Store, step: number): Told {
  const facts = stepFacts(store.t, step, store.report);
  return { title: `Step ${String(facts.step)}`, kind: "step", facts };
}

/** The selection as something to tell; null where nothing is known of it here. */
function ofSelection(store: Store, s: Selection | null): Told | null {
  const { t, cursor } = store;
  const at = cursor < 0 ? null : store.number;
  if (s?.kind === "node") {
    const mine = s.step === undefined ? ((s.graph ?? store.now.graph) === store.now.graph ? stepsOf(t, store.now.frame)[s.id] : -1) : findStep(t, s.step).step;
    return mine >= 0 && mine !== cursor ? ofStep(store, mine) : null;
  }
  if (s?.kind === "storage") return { title: describe(t, s), kind: "storage", facts: storageFacts(t, s.id, store.report, at) };
  if (s?.kind === "cache") return { title: describe(t, s), kind: "cache", facts: cacheFacts(t, s.id, runAt(t, cursor), at) };
  return null;
}

/** Parts of the page that can be seen now, by name. */
function panes(app: HTMLElement): [string, HTMLElement][] {
  const all = [...app.querySelectorAll<HTMLElement>(".kv-pane[aria-label]")].filter((pane) => pane.offsetHeight > 24);
  return [["whole page", app], ...all.map((pane): [string, HTMLElement] => [pane.getAttribute("aria-label")!, pane])];
}

export default function openShare(anchor: HTMLElement, what: Shared, { store, around, want }: ShareContext): void {
  const root = anchor.closest<HTMLElement>(".kv-root, .kvviz")!;
  const app = root.querySelector<HTMLElement>(":scope > .kv-app")!;
  const old = app.querySelector<HTMLElement>('[data-kv="share-menu"] > .kv-close');
  if (old) return old.click();
  const colours = anchor.closest<HTMLElement>(".kvviz")!;
  const life = new AbortController();
  const { signal } = life;
  const said = el("p.kv-soft", { role: "status", "data-kv": "share-said" });
  const { p } = store.t;
  const name = (p.share?.file || p.title).replace(/\.onnx$/, "").replace(/[^\w.-]+/g, "_").slice(0, 60) || "kvviz";
  want(); // the diagnosis, with its fixes

  const act = (label: string, kv: string, run: () => Promise<string> | string) => {
    const node = el("button", { "data-kv": kv }, label);
    on(node, "click", () => {
      say(said, "…");
      void Promise.resolve().then(run).then((done) => say(said, done), (error) => say(said, `Failed. ${String(error)}`));
    }, signal);
    return node;
  };
  const part = (title: string, ...buttons: Node[]) => [el("h4", {}, title), el("div.kv-rowline", {}, ...buttons)];

  const markdown = (told: Told, kv: string): Node[] => {
    const templates = p.codes.markdown;
    if (!templates) return [];
    const file = `${name}-${told.title.replace(/\W+/g, "-").toLowerCase()}.md`;
    // read when it is asked for: the diagnosis may have come since
    const write = () => filled(templates[told.kind], told.kind === "step" ? (ofStepAgain(told) ?? told.facts) : told.facts);
    return part(`${told.title}, as Markdown`, act("Copy", `${kv}-copy`, () => copy(text(write()), "text/plain", file)),
      act("Save", `${kv}-save`, () => saved(text(write()), file)));
  };
  const ofStepAgain = (told: Told): Facts | null => {
    const { step } = findStep(store.t, Number(String(told.facts.step).replaceAll(",", "")));
    return step < 0 ? null : stepFacts(store.t, step, store.report);
  };
  const saved = (blob: Blob, file: string) => {
    save(blob, file);
    return `saved as ${file}`;
  };

  const choice = el("select", { "aria-label": "Picture of", "data-kv": "share-pane" });
  const seen = what.pane ? [[what.name ?? "pane", what.pane] as [string, HTMLElement]] : panes(app);
  choice.append(...seen.map(([label], i) => el("option", { value: i }, label)));
  choice.hidden = seen.length < 2;
  const chosen = () => seen[Number(choice.value) || 0];
  const picture = () => toSvg(colours, chosen()[1]);
  const file = (end: string) => `${name}-${chosen()[0].replace(/\W+/g, "-").toLowerCase()}.${end}`;

  const step = store.cursor >= 0 && store.bare < 0 ? ofStep(store, store.cursor) : null;
  const rows = what.pane ? tableText(what.pane) : null;
  const selected = ofSelection(store, store.selection);
  const { html } = around;
  const menu = el("div.kv-pop.kv-menu.kv-sharing", { role: "dialog", "aria-label": what.name ? `Share: ${what.name}` : "Share", "data-kv": "share-menu" },
    ...(step ? markdown(step, "share-step") : []),
    ...(selected ? markdown(selected, "share-selection") : []),
    ...(rows ? part("The visible rows, as Markdown", act("Copy", "share-rows-copy", () => copy(text(rows), "text/plain", `${name}-${what.name}.md`)),
      act("Save", "share-rows-save", () => saved(text(rows), `${name}-${what.name}.md`))) : []),
    el("h4", {}, what.name ? `Picture of the ${what.name}` : "Picture"),
    el("div.kv-rowline", {}, choice,
      act("Copy PNG", "share-png-copy", () => copy(toPng(picture()), "image/png", file("png"))),
      act("Save PNG", "share-png-save", async () => saved(await toPng(picture()), file("png"))),
      act("Copy SVG", "share-svg-copy", () => copy(text(picture()), "text/plain", file("svg"))),
      act("Save SVG", "share-svg-save", () => saved(new Blob([picture()], { type: "image/svg+xml" }), file("svg")))),
    ...(around.link && !what.pane ? part("Link to what is seen", act("Copy link", "share-link", () => copy(text(around.link!()), "text/plain", `${name}-link.txt`))) : []),
    ...(what.pane || !html ? [] : html.able()
      ? part("The recording in one file", act("Save as HTML", "share-html", async () => saved(await html.make(), `${name}.html`)))
      : [el("h4", {}, "The recording in one file"), el("p.kv-soft", {}, "needs a running kernel, or kvviz's to_html")]),
    said);
  const pop = new Popover(app, menu, () => {
    life.abort();
    menu.remove();
  });
  pop.show(anchor);
}
