// What the inspector's pages are made of: names, buffers and steps that can be clicked, and lines of facts.
import type { Ask } from "./commands.js";
import { button, el, name as named, say } from "./dom.js";
import { buffer, bytes, count, opLabel, shortValue, valueName } from "./format.js";
import { capacity, numberOf, type Trace } from "./replay.js";
import type { Store } from "./store.js";
import type { Fix } from "./wire.js";

export function bufferChip(t: Trace, cursor: number, storage: number, gen: number): HTMLElement {
  const { p } = t;
  const origin = p.storage.origin[storage];
  return el("button", { class: "kv-chip", "data-kv": "buffer", "data-id": storage, "data-origin": p.codes.origin[origin], title: `${bytes(capacity(t, storage, cursor))}, ${p.codes.owner[origin]}; inspect this buffer` }, buffer(p, storage, gen));
}

export function valueLink({ p }: Trace, graph: number, value: number): HTMLElement {
  const g = p.graphs[graph];
  return el("button", { class: "kv-value", "data-kv": "value", "data-id": value, "data-graph": graph, title: g.values[value] }, named(valueName(g, value) || shortValue(g.values[value]), g.values[value]));
}

export function stepLink(t: Trace, step: number): HTMLElement {
  const number = numberOf(t, step);
  return el("button", { class: "kv-link", "data-kv": "step-link", "data-step": number, title: `Go to step ${count(number)}` }, `step ${count(number)}`);
}

export function nodeLink({ p }: Trace, graph: number, node: number): HTMLElement {
  const g = p.graphs[graph];
  return el("button", { class: "kv-link", "data-kv": "node-link", "data-id": node, "data-graph": graph, title: `${g.nodes[node][0]}; inspect this op` }, opLabel(g, node));
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
