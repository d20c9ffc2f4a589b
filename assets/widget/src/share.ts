// The module of the share menu: a step, the selection or rows as Markdown, a picture of a pane, a link, an HTML file.
import { within } from "./arrays.js";
import { copy, save, toPng, toSvg } from "./picture.js";
import { el, on, say } from "./dom.js";
import { partOf } from "./evidence.js";
import { buffer, bytes, count } from "./format.js";
import { Popover } from "./popover.js";
import { findStep, freedBytes, labels, numberOf, opAt, runAt, stepsOf, type Trace } from "./replay.js";
import { describe, type Selection } from "./select.js";
import type { ShareContext, Shared } from "./lazypane.js";
import type { Store } from "./store.js";
import type { Report, Template } from "./wire.js";

/** The footer: model, version, policy, and code that reproduces the `step`. */
export function about({ p }: Trace, step: number | null): Facts {
  const { again = [], ...rest } = p.share ?? {};
  const last = again.length - 1;
  return { ...rest, again: again.map((text, i) => (i < last ? text : text.replace(", step={step}", step === null ? "" : `, step=${step}`))).join("\n") };
}

/** The run, frames and scope of a step. */
function place(t: Trace, step: number): string {
  const { frame, op: [, , scope] } = opAt(t, step);
  return [t.p.runs[t.p.frame.run[frame]]?.label ?? "", ...labels(t, frame), scope].filter(Boolean).join(" · ");
}

function stepFacts(t: Trace, step: number, report: Report | null): Facts {
  const { p } = t;
  const { g, op: [name, op, , inputs] } = opAt(t, step);
  const number = numberOf(t, step);
  const part = partOf(t, report?.findings ?? [], step)?.part;
  const of = !part?.step || part.step === number ? "" : `For step ${count(part.step)}, where this kind of op spent most: `;
  const blockers = within(p.step.block, step).map((b) => ({ code: p.strings[p.block.code[b]], input: g.values[inputs[p.block.input[b]]] ?? "", message: p.strings[p.block.message[b]] }));
  return {
    ...about(t, number),
    step: count(number), op, node: name, where: place(t, step), blockers,
    sentence: p.strings[p.step.sentence[step]],
    decision: p.strings[p.step.end[step]],
    rule: p.strings[p.step.rule[step]],
    allocated: bytes(p.step.alloc[step]), copied: bytes(p.step.copied[step]), written: bytes(p.step.written[step]),
    live: bytes(p.step.live[step]), held: bytes(p.step.live[step] - freedBytes(t, step)),
    repeated: part ? `${`${part.op} ${part.where}`.trim()}: ${bytes(part.bytes)}` : "",
    fixes: part?.fix ? [{ label: part.fix.label, of, sentence: part.fix.sentence, code: part.fix.code }] : [],
  };
}

function storageFacts(t: Trace, id: number, report: Report | null, step: number | null): Facts {
  const { p } = t;
  const { storage: s } = p;
  const at = (i: number, before: string, never: string) => (i < 0 ? before : i >= p.steps ? never : `step ${count(numberOf(t, i))}`);
  const held = report?.findings.find(({ kind, selection }) => kind === "held" && selection?.id === id);
  return {
    ...about(t, step),
    buffer: buffer(p, id), size: bytes(s.capacity[id]), name: p.strings[s.name[id]] ?? "", owner: p.codes.owner[s.origin[id]] ?? "",
    made: at(s.born[id], "before the first step", ""), freed: s.freed[id] < 0 ? "not in this recording" : at(s.freed[id], "", "not in this recording"),
    reason: held?.example ?? "",
  };
}

function cacheFacts(t: Trace, id: number, run: number, step: number | null): Facts {
  const c = t.p.caches[id];
  const figure = (column: number[], write: (n: number) => string) => (column[run] === undefined ? "" : write(column[run]));
  return {
    ...about(t, step), name: c.name, protocol: c.protocol, where: t.p.runs[run]?.label ?? "",
    valid: figure(c.valid, count), capacity: figure(c.capacity, count), copied: figure(c.copied, bytes), written: figure(c.written, bytes),
  };
}

const cell = (text: string) => text.replace(/\s+/g, " ").trim().replace(/[\\|]/g, "\\$&").replace(/</g, "&lt;");

/** The first visible table of a pane as Markdown, or null. */
function tableText(pane: HTMLElement): string | null {
  const table = [...pane.querySelectorAll("table")].find((one) => one.offsetHeight > 0);
  const rows = [...(table?.rows ?? [])].filter((row) => !row.classList.contains("kv-gap") && row.offsetHeight > 0)
    .map((row) => [...row.cells].filter((one) => one.offsetWidth > 0).map((one) => cell(one.innerText)));
  if (rows.length < 2) return null;
  const width = Math.max(...rows.map((row) => row.length));
  const lines = rows.map((row) => `| ${[...row, ...Array<string>(width - row.length).fill("")].join(" | ")} |`);
  return [lines[0], `|${" --- |".repeat(width)}`, ...lines.slice(1), ""].join("\n");
}

interface Facts { [name: string]: string | Facts[] }

// Markdown from the templates of kvviz/report/faces/markdown_text.py, with the same escaping; a test compares them.
const PLACE = /\{(\w+)(?:\|(\w+))?\}/g;
const SIGNS = /[\\`*[\]<>|~&$]|(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu;
const CALLS = /@(?=[\p{L}\p{N}_])|#(?=\p{Nd})/gu;
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

const seen = (raw: string) => raw.replace(UNSEEN, "·");
const plain = (raw: string) => seen(raw).replace(SIGNS, "\\$&").replace(CALLS, "$&<!-- -->");

export function code(raw: string): string {
  if (!raw) return "";
  const shown = seen(raw);
  const fence = "`".repeat(Math.max(0, ...(shown.match(/`+/g) ?? []).map((run) => run.length)) + 1);
  const room = /^[` ]|[` ]$/.test(shown) ? " " : "";
  return `${fence}${room}${shown}${room}${fence}`.replaceAll("|", "\\|");
}

function line(template: string, facts: Facts): string {
  return template.replace(PLACE, (_, name: string, way?: string) => {
    const raw = String(facts[name] ?? "");
    return way === "code" ? code(raw) : way === "raw" ? raw : plain(raw);
  });
}

export function filled(template: Template[], facts: Facts): string {
  const blocks: string[] = [];
  for (const [each, head, lines] of template) {
    const written = each
      ? ((facts[each] ?? []) as Facts[]).flatMap((entry) => lines.map((l) => line(l, entry)))
      : lines.filter((l) => [...l.matchAll(PLACE)].every(([, name]) => facts[name])).map((l) => line(l, facts));
    if (written.length) blocks.push(head.length || !each ? [...head, ...written].join("\n") : written.join("\n\n"));
  }
  return `${blocks.join("\n\n")}\n`;
}

type Subject = { title: string; kind: "step" | "storage" | "cache"; facts(): Facts }; // read when they are asked for: the diagnosis may have come since
const text = (value: string) => new Blob([value], { type: "text/plain" });

function ofStep(store: Store, step: number): Subject {
  const number = numberOf(store.t, step);
  return { title: `Step ${count(number)}`, kind: "step", facts: () => stepFacts(store.t, Math.max(0, findStep(store.t, number).step), store.report) };
}

/** The selection to share; null if it is unknown here. */
function ofSelection(store: Store, s: Selection | null): Subject | null {
  const { t, cursor } = store;
  const at = cursor < 0 ? null : store.number;
  if (s?.kind === "node") {
    const mine = s.step === undefined ? ((s.graph ?? store.now.graph) === store.now.graph ? stepsOf(t, store.now.frame)[s.id] : -1) : findStep(t, s.step).step;
    return mine >= 0 && mine !== cursor ? ofStep(store, mine) : null;
  }
  if (s?.kind === "storage") return { title: describe(t, s), kind: "storage", facts: () => storageFacts(t, s.id, store.report, at) };
  if (s?.kind === "cache") return { title: describe(t, s), kind: "cache", facts: () => cacheFacts(t, s.id, runAt(t, cursor), at) };
  return null;
}

export default function openShare(anchor: HTMLElement, what: Shared, { store, around, want }: ShareContext): void {
  const colours = anchor.closest<HTMLElement>(".kvviz")!;
  const app = colours.querySelector<HTMLElement>(":scope > .kv-app")!;
  const old = app.querySelector<HTMLElement>('[data-kv="share-menu"] > .kv-close');
  if (old) return old.click();
  const life = new AbortController();
  const said = el("p.kv-soft", { role: "status", "data-kv": "share-said" });
  const { p } = store.t;
  const name = (p.share?.file || p.title).replace(/\.onnx$/, "").replace(/[^\w.-]+/g, "_").slice(0, 60) || "kvviz";
  want(); // the diagnosis, with its fixes

  const act = (label: string, kv: string, run: () => Promise<string> | string) => {
    const node = el("button", { "data-kv": kv }, label);
    on(node, "click", () => {
      say(said, "…");
      void Promise.resolve().then(run).then((done) => say(said, done), (error) => say(said, `Failed. ${String(error)}`));
    }, life.signal);
    return node;
  };
  const part = (title: string, ...buttons: Node[]) => [el("h4", {}, title), el("div.kv-rowline", {}, ...buttons)];

  const markdown = (subject: Subject, kv: string): Node[] => {
    const templates = p.codes.markdown;
    if (!templates) return [];
    const file = `${name}-${subject.title.replace(/\W+/g, "-").toLowerCase()}.md`;
    const write = () => filled(templates[subject.kind], subject.facts());
    return part(`${subject.title}, as Markdown`, ...both("", kv, write, () => file));
  };
  const saved = (blob: Blob, file: string) => {
    save(blob, file);
    return `saved as ${file}`;
  };
  /** Buttons that copy and save a text. */
  const both = (kind: string, kv: string, write: () => string, file: () => string, type = "text/plain") => [
    act(`Copy${kind}`, `${kv}-copy`, () => copy(text(write()), "text/plain", file())),
    act(`Save${kind}`, `${kv}-save`, () => saved(new Blob([write()], { type }), file()))];

  const choice = el("select", { "aria-label": "Picture of", "data-kv": "share-pane" });
  const panes = [...app.querySelectorAll<HTMLElement>(".kv-pane[aria-label]")].filter((pane) => pane.offsetHeight > 24); // those that can be seen now
  const seen: [string, HTMLElement][] = what.pane ? [[what.name ?? "pane", what.pane]] : [["whole page", app], ...panes.map((pane): [string, HTMLElement] => [pane.getAttribute("aria-label")!, pane])];
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
    ...(rows ? part("The visible rows, as Markdown", ...both("", "share-rows", () => rows, () => `${name}-${what.name}.md`)) : []),
    el("h4", {}, what.name ? `Picture of the ${what.name}` : "Picture"),
    el("div.kv-rowline", {}, choice,
      act("Copy PNG", "share-png-copy", () => copy(toPng(picture()), "image/png", file("png"))),
      act("Save PNG", "share-png-save", async () => saved(await toPng(picture()), file("png"))),
      ...both(" SVG", "share-svg", picture, () => file("svg"), "image/svg+xml")),
    ...(around.link && !what.pane ? part("Link to what is seen", act("Copy link", "share-link", () => copy(text(around.link!()), "text/plain", `${name}-link.txt`))) : []),
    ...(what.pane || !html ? [] : html.able()
      ? part("The recording in one file", act("Save as HTML", "share-html", async () => saved(await html.make(), `${name}.html`)))
      : [el("h4", {}, "The recording in one file"), el("p.kv-soft", {}, "needs a running kernel, or kvviz's to_html")]),
    said);
  new Popover(app, menu, () => life.abort()).show(anchor);
}
