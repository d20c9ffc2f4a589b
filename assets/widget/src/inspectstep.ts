// One execution of an op: why it ran as it did, what would change that, and what it read and wrote.
import { within } from "./arrays.js";
import type { Ask } from "./actions.js";
import { button, el, name, onHit, say, td } from "./dom.js";
import { pairsOf, pairState, pairText, partOf } from "./evidence.js";
import { buffer, bytes, capital, count, figure, opLabel, opName, shape, shortName, shortValue, valueName } from "./format.js";
import { capacity, labels, letter, numberOf, opAt, outcome, placeOf, rowsBefore, stack, type Place, type Trace } from "./replay.js";
import type { Store } from "./store.js";
import { named } from "./select.js";
import { bars, smallOf, type Small } from "./valuecard.js";
import type { Fix, Payload } from "./wire.js";
import { explained, word } from "./popover.js";

export function bufferChip(t: Trace, cursor: number, storage: number, gen: number): HTMLElement {
  const { p } = t;
  const origin = p.storage.origin[storage];
  return el("button", { class: "kv-chip", "data-kv": "buffer", "data-id": storage, "data-origin": p.codes.origin[origin], title: `${bytes(capacity(t, storage, cursor))}, ${p.codes.owner[origin]}; inspect this buffer` }, buffer(p, storage, gen));
}

export function valueLink({ p }: Trace, graph: number, value: number): HTMLElement {
  const g = p.graphs[graph];
  return el("button", { class: "kv-value", "data-kv": "value", "data-id": value, "data-graph": graph, title: g.values[value] }, name(valueName(g, value) || shortValue(g.values[value]), g.values[value]));
}

export function stepLink(t: Trace, step: number): HTMLElement {
  const number = numberOf(t, step);
  return el("button", { class: "kv-link", "data-kv": "step-link", "data-step": number, title: `Go to step ${count(number)}` }, `step ${count(number)}`);
}

export function nodeLink({ p }: Trace, graph: number, node: number): HTMLElement {
  const g = p.graphs[graph];
  return el("button", { class: "kv-link", "data-kv": "node-link", "data-id": node, "data-graph": graph, title: `${g.nodes[node][0]}; inspect this op` }, opLabel(g, node));
}

/** Follow the links in `app`, whichever pane they are in. */
export function links(app: HTMLElement, store: Store, signal: AbortSignal): void {
  onHit(app, "step-link", ({ dataset: { step } }) => store.go(Number(step)), signal);
  for (const [hook, kind] of [["buffer", "storage"], ["value", "value"], ["node-link", "node"]] as const) {
    onHit(app, hook, ({ dataset: { id, graph } }) => store.select({ kind, id: Number(id), ...(graph && { graph: Number(graph) }) }), signal);
  }
}

/** A message with names replaced by links; names that do not occur in it follow at the end. */
export function linked(message: string, links: [string, HTMLElement][]): (Node | string)[] {
  let parts: (Node | string)[] = [message];
  const behind: (Node | string)[] = [];
  for (const [name, link] of links) {
    const at = parts.findIndex((part) => typeof part === "string" && part.includes(name));
    if (at < 0) behind.push(behind.length ? ", " : " → ", link);
    else {
      const text = parts[at] as string;
      const from = text.indexOf(name);
      parts = [...parts.slice(0, at), text.slice(0, from), link, text.slice(from + name.length), ...parts.slice(at + 1)];
    }
  }
  return [...parts, ...behind];
}

/** Pairs of a name and a text; empty texts are left out. */
export function facts(...lines: [Node | string, (Node | string)[]][]): HTMLElement {
  const shown = lines.filter(([, parts]) => parts.length);
  return el("dl.kv-lines", {}, ...shown.flatMap(([name, parts]) => [el("dt", {}, name), el("dd", {}, ...parts)]));
}

/** `a, b and 5 more` of elements. */
export function listed(items: Node[], most = 8): (Node | string)[] {
  const shown = items.slice(0, most).flatMap((item, i) => (i ? [", ", item] : [item]));
  return items.length > most ? [...shown, ` and ${count(items.length - most)} more`] : shown;
}

/** Buttons to run again with a change, where there is a kernel, and to copy its code: texts and titles; `refused`: it was not copied. */
export function changeTools(code: string, apply: [string, string], copy: [string, string], which: object, store: Store, ask: Ask, refused: () => void, signal: AbortSignal): HTMLElement[] {
  const run = button(...apply, "apply", () => {
    if (ask({ do: "fix", ...which })) store.tell("asked the kernel to run again with this change …");
  }, signal);
  const copies: HTMLButtonElement = button(...copy, "copy", () => void (navigator.clipboard?.writeText(code) ?? Promise.reject()).then(() => say(copies, "Copied"), refused), signal);
  return [...(ask.able() ? [run] : []), ...(code ? [copies] : [])];
}

/** `which`: identifies the fix to the kernel; `at`: the step whose bytes it saves, if another one is shown. */
export function fixBox(fix: Fix, which: { step: number; blocker: number }, store: Store, ask: Ask, signal: AbortSignal, at: number): HTMLElement {
  const code = el("code", {}, fix.code);
  // if the clipboard is not allowed, the text is selected for Ctrl+C
  const select = () => getSelection()?.selectAllChildren(code);
  const tools = el("span.kv-group", {}, ...changeTools(fix.code, ["Apply", "Run again with this change, and compare"], ["Copy", "Copy this change"], which, store, ask, select, signal));
  const saves = fix.saves > 0 ? el("span.kv-soft", {}, `saves ${bytes(fix.saves)}${at < 0 ? "" : ` (step ${count(at)})`}`) : "";
  const head = el("div.kv-tools", {}, el("b", { title: fix.sentence }, fix.label), saves, tools);
  return el("div.kv-fix", { "data-kv": "fix" }, head, fix.code ? el("pre", {}, code) : "");
}

/** Placements of outputs that buffer and badge show already. */
const SEEN = new Set(["new", "in place"]);

export function stepTitle(t: Trace, step: number): { op: string; name: string; full: string } {
  const { g, node, op: [full, op] } = opAt(t, step);
  return { op: opName(op), name: shortName(g, node), full };
}

export function stepBody(store: Store, ask: Ask, step: number, signal: AbortSignal): Node[] {
  const { t, p } = store;
  const { frame, graph, node, op: [, , , inputs] } = opAt(t, step);
  const note = p.strings[p.step.note[step]];
  const rule = p.strings[p.step.rule[step]];
  const sums = [["alloc", "allocated"], ["written", "written"], ["copied", "copied"]] as const;
  return [
    why(store, ask, step, graph, inputs, signal),
    ...hidden(t, step),
    el("h4", {}, "Operands, their buffers and ", word("owner", "owners")),
    places(t, step, frame, graph, inputs),
    el("dl.kv-facts", {}, ...sums.map(([column, text]) => el("div", { "data-zero": p.step[column][step] === 0 ? 1 : null }, el("dt", { title: figure(p, text).about }, figure(p, text).name), el("dd", {}, bytes(p.step[column][step]))))),
    ...rows(t, step),
    ...(note ? [el("p.kv-rule", { "data-kv": "plan-note" }, el("b", {}, "Plan "), note)] : []),
    ...(rule ? [el("p.kv-rule", {}, el("b", {}, "Rule"), ` (${p.policy.name}) for `, word("in place"), ` · ${rule}`)] : []),
    facts(["attributes", attributes(t, graph, node)], ["attention", weighed(t, graph, node)], ["in", frames(t, frame)]),
  ];
}

/** The rows of the cache that an op writes. */
function rows(t: Trace, step: number): HTMLElement[] {
  const { p } = t;
  const run = p.frame.run[p.step.frame[step]];
  const written = new Set(p.step.written[step] ? p.out.storage.subarray(p.step.out[step], p.step.out[step + 1]) : []);
  return p.caches.flatMap((c, i) => {
    const room = c.capacity[run] ?? 0;
    if (!room || !written.has(c.storage[run])) return [];
    const [before] = rowsBefore(t, i, run);
    const valid = c.valid[run];
    const bar = el("div.kv-meter", { style: `--kv-before: ${Math.min(before, valid) / room}; --kv-valid: ${valid / room}` });
    const counts = [`${count(valid)} valid`, `${count(room - valid)} reserved`, `${count(Math.max(0, valid - before))} written`, `${count(p.step.copied[step] ? before : 0)} moved`];
    return [el("div.kv-cacherows", { "data-kv": "cache-rows", title: "after this run; written and moved by it" }, el("h4", {}, word("rows", "Rows"), ` of ${c.name}`), bar, el("p.kv-soft", {}, counts.join(" · ")))];
  });
}

/** Links to the caches whose rows an op weighs. */
function weighed({ p }: Trace, graph: number, node: number): (Node | string)[] {
  const name = p.graphs[graph].nodes[node][0];
  const links = p.caches.flatMap((c, i) => (c.attention?.includes(name)
    ? [el("button", { class: "kv-link", "data-kv": "attention-link", "data-id": i, title: `Show its attention weights on ${c.name}, as arcs over the words` }, c.name)] : []));
  return links.length ? ["over the words, by ", ...listed(links)] : [];
}

/** The decision, its reasons, how often the op was missed, and its fixes. */
function why(store: Store, ask: Ask, step: number, graph: number, inputs: number[], signal: AbortSignal): HTMLElement {
  const { p } = store;
  const flags = p.step.flags[step];
  const kind = outcome(p, flags);
  const own = partOf(store.t, store.report?.findings ?? [], step);
  const codes = [...new Set(within(p.step.block, step).map((b) => p.strings[p.block.code[b]]))];
  const box = el("div.kv-why", { "data-state": kind, "data-kv": "why" },
    el("p.kv-badge", { "data-state": kind, "data-kv": "decision" }, el("b", { "aria-hidden": "true" }, letter(p.codes, kind)), el("span.kv-headline", {}, ...explained(capital(p.strings[p.step.end[step]]))),
      flags & p.flag.foreign && kind !== "foreign" ? el("span.kv-soft", {}, " · foreign kernel") : "", el("span.kv-codes", {}, ...codes.map((code) => el("code", {}, code)))));
  box.append(codes.length ? "" : el("p.kv-sentence", {}, ...explained(p.strings[p.step.sentence[step]])), reasons(store.t, step, graph, inputs));
  if (own) {
    const { finding, part: { step: worst = -1, blocker = 0, fix, bytes: spent, times = 0 } } = own;
    box.append(el("p.kv-soft.kv-often", {}, el("button", { class: "kv-link", "data-kv": "finding-link", "data-id": finding, "data-step": step }, `Finding ${finding + 1}`), times > 1 ? `. This kind of op, in all runs: ${count(times)} times, ${bytes(spent)}.` : "."));
    // the kernel identifies a fix by the reason that it removes
    if (fix) box.append(fixBox(fix, { step: worst, blocker }, store, ask, signal, worst === numberOf(store.t, step) ? -1 : worst));
  }
  return box;
}

const MOST_HIDDEN = 3;
/** The hidden pairs of a step, a sentence and a link each. */
function hidden(t: Trace, step: number): HTMLElement[] {
  const { p } = t;
  const all = pairsOf(p, step);
  const shown = all.slice(0, MOST_HIDDEN).map((k) => {
    const late = p.pair.second[k] === step;
    const other = late ? p.pair.first[k] : p.pair.second[k];
    return el("p", { "data-state": pairState(p, k) }, `${pairText(p, k, "headline")}: ${late ? "after" : "before"} `, stepLink(t, other), ` ${pairText(p, k, late ? "op1" : "op2")}, ${pairText(p, k, "label")} of ${p.strings[p.pair.root[k]]}.`);
  });
  if (!shown.length) return [];
  return [el("div.kv-hidden", { "data-kv": "hidden" }, ...shown, ...(all.length > MOST_HIDDEN ? [el("p.kv-soft", {}, `and ${count(all.length - MOST_HIDDEN)} more`)] : []))];
}

function reasons(t: Trace, step: number, graph: number, inputs: number[]): HTMLElement {
  const { p } = t;
  const lost = p.step.flags[step] & p.flag.missed;
  const list = el("ul.kv-blockers", { "data-missed": lost ? 1 : null, "aria-label": "Why not in place" });
  for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
    const value = inputs[p.block.input[k]] ?? -1;
    const message = p.strings[p.block.message[k]];
    const culprit = p.strings[p.block.culprit[k]];
    const other = culprit ? named(t, graph, culprit) : null;
    const links: [string, HTMLElement][] = value < 0 ? [] : [[p.graphs[graph].values[value], valueLink(t, graph, value)]];
    if (other?.kind === "node") links.push([culprit, nodeLink(t, graph, other.id)]);
    else if (other && other.id !== value) links.push([culprit, valueLink(t, graph, other.id)]);
    list.append(el("li", { "data-kv": "blocker", "data-id": p.strings[p.block.code[k]] }, ...linked(message, links)));
  }
  list.hidden = !list.firstChild;
  return list;
}

function places(t: Trace, step: number, frame: number, graph: number, inputs: number[]): HTMLElement {
  const { p } = t;
  const values = !!t.values;
  const kind = outcome(p, p.step.flags[step]);
  const table = el("table.kv-places", { "aria-label": "Operands" });
  const row = (side: string, sign: string, title: string, value: number, chip: Node | string, info: string, how: string, small: Small | null) => table.append(el("tr", { "data-side": side, title: how },
    el("th", { scope: "row", title }, sign), td(valueLink(t, graph, value)), td(chip), td(shape(info), "kv-shape", { title: info }), td(how, "kv-soft", { title: how }), ...(values ? [td(small ? el("span", { title: small.text }, small.text, small.histogram.length ? bars(small.histogram) : "") : "", "kv-small")] : [])));
  inputs.forEach((value, slot) => {
    if (value < 0) return;
    const place = placeOf(t, frame, value, step - 1);
    const taken = (p.step.taken[step] >> slot) & 1;
    row("in", taken ? letter(p.codes, kind) : "in", taken ? `its buffer was handed over: ${p.strings[p.step.end[step]]}` : "read", value, place ? bufferChip(t, step, place.storage, place.gen) : "–", place ? infoOf(p, place) : "", place ? owner(p, place) : "", place && smallOf(t, place));
  });
  for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) {
    if (p.out.value[o] < 0) continue;
    const how = p.codes.how[p.out.how[o]];
    row("out", "out", "written", p.out.value[o], bufferChip(t, step, p.out.storage[o], p.out.gen[o]), p.strings[p.out.info[o]], SEEN.has(how) ? "" : how, smallOf(t, { from: "out", entry: o }));
  }
  return table;
}

export function infoOf(p: Payload, place: Place): string { return p.strings[p[place.from].info[place.entry]]; }

function owner(p: Payload, place: Place): string {
  if (place.from === "bind") return p.codes.binding[p.bind.how[place.entry]] ?? "";
  return p.codes.how[p.out.how[place.entry]] === "view" ? "view" : "";
}

function attributes({ p }: Trace, graph: number, node: number): string[] { return [p.graphs[graph].attributes?.[node] ?? ""].filter(Boolean); }

function frames(t: Trace, frame: number): (Node | string)[] {
  const { p } = t;
  const inner = stack(t, frame).slice(1);
  return inner.flatMap((f, i) => {
    const parent = p.frame.parent[f];
    return [...(i ? [" › "] : []), `${p.strings[p.frame.label[f]]} of `, nodeLink(t, p.frame.graph[parent], p.frame.node[f])];
  });
}

/** A node that has not run in the shown frame: what it waits for, and where else it ran. */
export function nodeBody(store: Store, graph: number, id: number): Node[] {
  const { t, p, x, now } = store;
  const steps = graph === now.graph ? now.steps : null;
  const ran = (n: number) => steps !== null && steps[n] >= 0 && steps[n] <= store.cursor;
  const open = x.graphs[graph].waits[id].filter((n) => !ran(n));
  const ready = now.choices.some((c) => c.node === id) && graph === p.frame.graph[now.next];
  const [, , , inputs, outputs] = p.graphs[graph].nodes[id];
  const links = (list: number[]) => listed(list.filter((v) => v >= 0).map((v) => valueLink(t, graph, v)));
  const elsewhere: Node[] = [];
  for (let i = 0; i < p.steps && elsewhere.length < 9; i++) if (p.step.node[i] === id && p.frame.graph[p.step.frame[i]] === graph) elsewhere.push(stepLink(t, i));
  return [
    el("p.kv-badge", { "data-state": ready ? "frontier" : "waiting" }, ready ? "Ready: all of its inputs exist" : elsewhere.length ? "Has not run here" : "Has not run"),
    facts(["attributes", attributes(t, graph, id)], ["waits for", listed(open.map((n) => nodeLink(t, graph, n)))], ["reads", links(inputs)], ["writes", links(outputs)], ["ran at", listed(elsewhere)]),
  ];
}

/** Step, run and frame of an execution. */
export function occurrenceOf(t: Trace, step: number): string {
  const { p } = t;
  const frame = p.step.frame[step];
  const run = p.runs[p.frame.run[frame]];
  const parts = [`step ${count(numberOf(t, step))}`];
  if (p.runs.length > 1 && run) parts.push(run.text && run.text !== run.label ? `“${run.text.trim()}”` : run.label);
  return [...parts, labels(t, frame).join(" › ")].filter(Boolean).join(" · ");
}
