// A change that removes a reason: what it is, its code to copy, and a button that runs again with it where a kernel is there.
import type { Ask } from "./commands.js";
import { button, el, say } from "./dom.js";
import { bytes, count } from "./format.js";
import type { Store } from "./store.js";
import type { Fix } from "./wire.js";

/** `which`: how the kernel knows it, `{step, blocker}` or `{cache}`; `brief`: one line, where the rest is told elsewhere; `at`: the step whose bytes it saves, where another one is shown. */
export function fixBox(fix: Fix, which: object, store: Store, ask: Ask, signal: AbortSignal, brief = false, at = -1): HTMLElement {
  const code = el("code", {}, fix.code);
  const copy: HTMLButtonElement = button("Copy", "Copy this change", "copy", () => {
    // without the permission the text is selected, so that Ctrl+C takes it
    getSelection()?.selectAllChildren(code);
    navigator.clipboard?.writeText(fix.code).then(() => say(copy, "Copied"), () => {});
  }, signal);
  const tools = el("span.kv-group", {}, fix.code ? copy : "");
  if (ask.able()) {
    tools.prepend(button("Apply", "Run again with this change, and compare", "apply", () => {
      if (ask({ do: "fix", ...which })) store.tell("asked the kernel to run again with this change …");
    }, signal));
  }
  const saves = brief && fix.saves > 0 ? el("span.kv-soft", {}, `saves ${bytes(fix.saves)}${at < 0 ? "" : ` (step ${count(at)})`}`) : "";
  const head = el("div.kv-tools", {}, el("b", { title: fix.sentence }, fix.label), saves, tools);
  return el("div.kv-fix", { "data-kv": "fix", "data-brief": brief ? 1 : null }, head, brief ? "" : el("p", {}, fix.sentence), fix.code ? el("pre", {}, code) : "");
}
