// The entry of the module "ask": a question whose answer the kernel grades; see kvviz/lessons/question.py.
import { drawing, type Curve } from "./askcurve.js";
import { button, el, mark, on, uid } from "./dom.js";
import { shareKeys } from "./hostkeys.js";
import { spoken } from "./spoken.js";
import { ANSWER_DELAY, listen, type Model } from "./sync.js";
import { follow, type Theme } from "./theme.js";

interface Verdict { right?: boolean | null; text?: string }
interface Solution { answer?: string; explanation?: string; series?: number[] }
/** What takes an answer: `value` is null, and says why, while there is none. */
interface Field { node: HTMLElement; value(): unknown; lacks(): string; show?(series: number[]): void }

const NO_KERNEL = "There is no kernel to grade it: run this cell, or look at the answer.";
const SILENT = "No answer yet: the kernel is busy, or this cell has to be run again.";

/** `check`: have the answer graded; `edited`: what was said of an answer is not said of another one. */
interface Calls { check(): void; edited(): void }

function number(model: Model, calls: Calls, signal: AbortSignal): Field {
  const unit = model.get("unit") as string;
  const input = el("input", { type: "text", "data-kv": "ask-field", "aria-label": `Answer${unit ? ` in ${unit}` : ""}`, placeholder: "a number, or 2 * 3 * 4", autocomplete: "off" });
  entered(input, calls, signal);
  return { node: el("span", {}, input, unit ? ` ${unit}` : ""), value: () => input.value.trim() || null, lacks: () => "Write a number first." };
}

function op(model: Model, calls: Calls, signal: AbortSignal): Field {
  const id = uid("ops");
  const input = el("input", { type: "text", list: id, "data-kv": "ask-field", "aria-label": "Answer: an op, by its name or kind", placeholder: "name or kind of an op", autocomplete: "off" });
  entered(input, calls, signal);
  const names = el("datalist", { id }, ...(model.get("choices") as string[]).map((value) => el("option", { value })));
  return { node: el("span", {}, input, names), value: () => input.value.trim() || null, lacks: () => "Name an op first." };
}

function entered(input: HTMLInputElement, { check, edited }: Calls, signal: AbortSignal): void {
  on(input, "keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) check(); }, signal);
  on(input, "input", edited, signal);
}

function choice(model: Model, { edited }: Calls, signal: AbortSignal): Field {
  const name = uid("choice");
  const choices = model.get("choices") as string[];
  const boxes = choices.map((value) => el("input", { type: "radio", name, value, "data-kv": "ask-choice" }));
  for (const box of boxes) on(box, "change", edited, signal);
  return {
    node: el("div.kv-choices", { role: "radiogroup", "aria-label": "Answer" }, ...boxes.map((box, i) => el("label", {}, box, el("span", {}, ...spoken(choices[i]))))),
    value: () => boxes.find((box) => box.checked)?.value ?? null,
    lacks: () => "Choose one first.",
  };
}

function own(): Field {
  return { node: el("span.kv-soft", {}, "Answer in a cell: ", el("code", {}, "question.grade(…)")), value: () => null, lacks: () => "This one is answered in Python." };
}

function curve(model: Model, { edited }: Calls, signal: AbortSignal): Field {
  const made = drawing(model.get("curve") as Curve, edited, signal);
  return {
    node: made.node,
    value: () => (made.left() ? null : made.points()),
    lacks: () => `${made.left()} of ${made.points().length} points are not drawn yet.`,
    show: made.show,
  };
}

function render({ model, el: host }: { model: Model; el: HTMLElement }): () => void {
  const life = new AbortController();
  const { signal } = life;
  // while the question is here, what stands in for it is not needed
  const hidden = el("style", {}, `[data-kv-still="${model.get("still")}"]{display:none}`);
  const root = el("div.kv-ask", { role: "group", "aria-label": "Question", tabindex: -1 });
  host.append(hidden, root);
  shareKeys(root, signal);
  const look = follow(root, () => (model.get("theme") as Theme) || "auto", () => {}, signal);
  listen(model, "change:theme", look, signal);
  // a notebook may put the element into the page only after this
  requestAnimationFrame(look);

  const said = el("p.kv-said", { role: "status", "data-kv": "ask-said" });
  const score = el("span.kv-soft", { "data-kv": "ask-score" });
  const answer = el("div.kv-answer", { "data-kv": "ask-answer" });
  answer.hidden = true;
  const kind = model.get("kind") as string;
  let waiting: ReturnType<typeof setTimeout> | undefined;
  const edited = () => { if (waiting === undefined) say({}); };
  const check = () => {
    const given = field.value();
    if (given === null) return say({ right: null, text: field.lacks() });
    const manager = model.widget_manager;
    if (!model.send || (manager && "kernel" in manager && !manager.kernel)) return say({ right: null, text: NO_KERNEL });
    try {
      model.send({ do: "grade", given });
      // a page whose kernel has gone still has a `send`; silence is the only sign
      clearTimeout(waiting);
      waiting = setTimeout(() => say({ right: null, text: SILENT }), ANSWER_DELAY);
    } catch {
      say({ right: null, text: NO_KERNEL });
    }
  };
  const calls = { check, edited };
  const field: Field = kind === "choice" ? choice(model, calls, signal) : kind === "op" ? op(model, calls, signal)
    : kind === "curve" ? curve(model, calls, signal) : kind === "own" ? own() : number(model, calls, signal);
  const say = ({ right, text }: Verdict) => {
    clearTimeout(waiting);
    waiting = undefined;
    mark(said, "data-right", right === true ? "yes" : right === false ? "no" : null);
    said.replaceChildren(...(text ? [right === true ? "✓ Right." : el("span", {}, right === false ? "✗ Not yet: " : "", ...spoken(text))] : []));
    if (right) reveal(false);
  };
  const reveal = (asked: boolean) => {
    const { answer: text = "", explanation = "", series } = (model.get("solution") ?? {}) as Solution;
    answer.hidden = false;
    answer.replaceChildren(el("p", {}, el("b", {}, ...spoken(text))), ...(explanation ? [el("p", {}, ...spoken(explanation))] : []));
    if (series) field.show?.(series);
    if (!asked) return;
    try {
      model.send?.({ do: "reveal" });
    } catch { /* without a kernel nobody counts */ }
  };
  const tell = () => { score.textContent = (model.get("score") as string) || ""; };
  root.append(
    el("p.kv-question", { "data-kv": "ask-question" }, ...spoken(model.get("question") as string)), field.node,
    el("div.kv-askline", {},
      ...(kind === "own" ? [] : [button("Check", "Have the kernel grade the answer", "ask-check", check, signal)]),
      button("Show the answer", "The question then does not count as answered", "ask-reveal", () => reveal(true), signal), score),
    said, answer,
  );
  listen(model, "change:verdict", () => say((model.get("verdict") ?? {}) as Verdict), signal);
  listen(model, "change:score", tell, signal);
  say((model.get("verdict") ?? {}) as Verdict);
  tell();
  return () => {
    clearTimeout(waiting);
    life.abort();
    hidden.remove();
    root.remove();
  };
}

export default { render };
