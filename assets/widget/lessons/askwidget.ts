// The entry of the module "ask": a question whose answer the kernel grades; see kvviz/lessons/questions/question.py.
import { button, el, mark, on, onKey, svg, uid } from "../src/dom.js";
import { spoken } from "../src/tour.js";
import { line, listen, put, type Model } from "../src/mount.js";

/** `top`: of the scale; `marks`: values of the scale with their words. */
interface Curve { labels: string[]; top: number; marks: [number, string][] }
/** An input for the answer. `value`: null while there is none; `lacks` says why. */
interface Field { node: HTMLElement; value(): unknown; lacks(): string; show?(series: number[]): void }

const [W, H, LEFT, RIGHT, TOP, BOTTOM] = [560, 190, 72, 30, 12, 34];
/** px beside a point within which the pointer moves it up and down. */
const NEAR = 8;

function drawing({ labels, top, marks }: Curve, { edited }: Calls, signal: AbortSignal): Field {
  const points: (number | null)[] = labels.map(() => null);
  const last = Math.max(1, labels.length - 1);
  const x = (i: number) => LEFT + ((W - LEFT - RIGHT) * i) / last;
  const y = (value: number) => H - BOTTOM - ((H - TOP - BOTTOM) * value) / top;
  const path = (series: (number | null)[]) => series.map((v, i) => (v === null ? "" : `${i && series[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`)).join("");
  const grid = Array.from({ length: labels.length }, (_, i) => svg("line", { x1: x(i), x2: x(i), y1: TOP, y2: H - BOTTOM, class: "kv-rule" }));
  const drawn = svg("path", { class: "kv-drawn" });
  const dots = svg("g");
  const truth = svg("path", { class: "kv-truth" });
  const cursor = svg("circle", { r: 6, class: "kv-cursor" });
  const every = Math.ceil(labels.length / 12);
  const scale = marks.flatMap(([value, text]) => [
    svg("line", { x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), class: value ? "kv-rule" : "kv-base" }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text)]);
  const hint = svg("text", { x: (LEFT + W - RIGHT) / 2, y: TOP + 22, "text-anchor": "middle", class: "kv-hint" }, "Drag from left to right, or use the arrow keys");
  const names = labels.flatMap((label, i) => (i % every ? [] : [svg("text", { x: x(i), y: H - BOTTOM + 16, "text-anchor": "middle" }, label.length > 9 ? `${label.slice(0, 8)}…` : label)]));
  const board = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "kv-board", role: "slider", tabindex: 0, "data-kv": "ask-board", "aria-valuemin": 0, "aria-valuemax": top,
    "aria-label": "Curve to draw: arrows left and right choose a point, up and down move it" },
    ...grid, ...scale, ...names, hint, drawn, dots, truth, cursor);
  let at = 0;
  const draw = () => {
    drawn.setAttribute("d", path(points));
    hint.style.display = points.some((v) => v !== null) ? "none" : "";
    dots.replaceChildren(...points.flatMap((v, i) => (v === null ? [] : [svg("circle", { cx: x(i), cy: y(v), r: 3 })])));
    cursor.setAttribute("cx", String(x(at)));
    cursor.setAttribute("cy", String(y(points[at] ?? 0)));
    const value = points[at] ?? 0;
    board.setAttribute("aria-valuenow", String(value));
    board.setAttribute("aria-valuetext", `${labels[at]}: ${points[at] === null ? "not drawn" : Math.round((100 * value) / top) + " % of the scale"}`);
  };
  const put = (i: number, value: number) => { points[i] = Math.min(top, Math.max(0, value)); };
  /** The px from the left, and the value at the height of the pointer. */
  const where = (event: PointerEvent): [number, number] => {
    const box = board.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * W;
    const py = ((event.clientY - box.top) / box.height) * H;
    return [px, ((H - BOTTOM - py) / (H - TOP - BOTTOM)) * top];
  };
  const nearest = (px: number) => Math.min(labels.length - 1, Math.max(0, Math.round(((px - LEFT) / (W - LEFT - RIGHT)) * last)));
  const legend = el("p.kv-soft", {}, "Dashed: the true curve.");
  legend.hidden = true;
  const node = el("div.kv-curve", {}, board as unknown as HTMLElement, legend);
  let from: [number, number] | null = null;
  const passed = new Set<number>(); // points that this stroke has gone over
  const move = (event: PointerEvent) => {
    const [px, value] = where(event);
    const [before, old] = from ?? [px, value];
    // points under the line get its height, and keep it for the rest of the stroke
    for (let k = 0; k < labels.length; k++) {
      if ((x(k) - before) * (x(k) - px) > 0) continue;
      put(k, px === before ? value : old + ((value - old) * (x(k) - before)) / (px - before));
      passed.add(k);
    }
    at = nearest(px);
    if (!passed.has(at) || Math.abs(px - x(at)) <= NEAR) put(at, value);
    if (!from || Math.abs(px - x(at)) <= NEAR) passed.add(at);
    from = [px, value];
    edited();
    draw();
  };
  on(node, "pointerdown", (event) => {
    event.preventDefault();
    board.focus({ preventScroll: true });
    board.setPointerCapture(event.pointerId);
    from = null;
    passed.clear();
    move(event);
  }, signal);
  on(node, "pointermove", (event) => { if (from && event.buttons) move(event); }, signal);
  on(node, "pointerup", () => { from = null; }, signal);
  onKey(node, (key) => {
    const by = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 }[key];
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: labels.length - 1 }[key];
    if (by === undefined && to === undefined) return false;
    if (to !== undefined) {
      const next = Math.min(labels.length - 1, Math.max(0, to));
      // the next point starts at the same height
      if (points[at] === null) put(at, 0);
      if (points[next] === null) put(next, points[at] ?? 0);
      at = next;
    } else put(at, (points[at] ?? 0) + by! * top);
    edited();
    draw();
  }, signal, true);
  draw();
  const left = () => points.filter((v) => v === null).length;
  return {
    node, value: () => (left() ? null : points), lacks: () => `${left()} of ${points.length} points are not drawn yet.`,
    show: (series) => {
      truth.setAttribute("d", path(series));
      legend.hidden = false;
    },
  };
}

interface Verdict { right?: boolean | null; text?: string }
interface Solution { answer?: string; explanation?: string; series?: number[] }
const NO_KERNEL = "There is no kernel to grade it: run this cell, or look at the answer.";
const SILENT = "No answer yet: the kernel is busy, or this cell has to be run again.";

/** `check`: grade the answer; `edited`: clear the verdict on the previous answer. */
interface Calls { check(): void; edited(): void }

/** A text input for a number or the name of an op. */
function written(model: Model, { check, edited }: Calls, kind: string, signal: AbortSignal): Field {
  const unit = model.get("unit") as string;
  const id = uid("ops");
  const [label, placeholder, lacks] = kind === "op" ? ["Answer: an op, by its name or kind", "name or kind of an op", "Name an op first."] : [`Answer${unit ? ` in ${unit}` : ""}`, "a number, or 2 * 3 * 4", "Write a number first."];
  const input = el("input", { type: "text", list: kind === "op" ? id : null, "data-kv": "ask-field", "aria-label": label, placeholder, autocomplete: "off" });
  on(input, "keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) check(); }, signal);
  on(input, "input", edited, signal);
  const after = kind === "op" ? el("datalist", { id }, ...(model.get("choices") as string[]).map((value) => el("option", { value }))) : unit ? ` ${unit}` : "";
  return { node: el("span", {}, input, after), value: () => input.value.trim() || null, lacks: () => lacks };
}

/** One of several texts: arrows and digits choose, Enter grades; a handled key goes neither to the browser nor to the notebook. */
function choice(model: Model, { check, edited }: Calls, signal: AbortSignal): Field {
  const name = uid("choice");
  const choices = model.get("choices") as string[];
  const boxes = choices.map((value) => el("input", { type: "radio", name, value, "data-kv": "ask-choice" }));
  for (const box of boxes) on(box, "change", edited, signal);
  const node = el("div.kv-choices", { role: "radiogroup", "aria-label": "Answer: arrows or digits choose, Enter checks" },
    ...boxes.map((box, i) => el("label", {}, box, el("span.kv-digit", { "aria-hidden": "true" }, String(i + 1)), el("span", {}, ...spoken(choices[i])))));
  onKey(node, (key, event) => {
    const at = boxes.indexOf(event.composedPath()[0] as HTMLInputElement);
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, " ": 0 }[key];
    if (key === "Enter" && !event.shiftKey) check();
    else if (by === undefined && !boxes[Number(key) - 1]) return false;
    else {
      // the first arrow chooses where the focus is
      const step = boxes.some((box) => box.checked) ? by! : 0;
      const box = by === undefined ? boxes[Number(key) - 1] : boxes[(at + step + boxes.length) % boxes.length];
      box.checked = true;
      box.focus({ preventScroll: true });
      edited();
    }
  }, signal, true);
  return { node, value: () => boxes.find((box) => box.checked)?.value ?? null, lacks: () => "Choose one first." };
}

function own(model: Model): Field {
  return { node: el("span.kv-soft", {}, "Answer in a cell: ", el("code", {}, model.get("unit") as string)), value: () => null, lacks: () => "This one is answered in Python." };
}

function render({ model, el: host }: { model: Model; el: HTMLElement }): () => void {
  const life = new AbortController();
  const { signal } = life;
  const root = el("div.kv-ask", { role: "group", "aria-label": "Question", tabindex: -1 });
  const [, look] = put(model, host, root, () => {}, signal);
  // a notebook may attach the element only after this
  requestAnimationFrame(look);

  const said = el("p.kv-said", { role: "status", "data-kv": "ask-said" });
  const score = el("span.kv-soft", { "data-kv": "ask-score" });
  const answer = el("div.kv-answer", { "data-kv": "ask-answer" });
  answer.hidden = true;
  const kind = model.get("kind") as string;
  let asked = false; // until the kernel has answered
  const { ask, answered } = line(model, () => say({ right: null, text: SILENT }), signal);
  const edited = () => { if (!asked) say({}); };
  const check = () => {
    const given = field.value();
    if (given === null) return say({ right: null, text: field.lacks() });
    asked = ask({ do: "grade", given });
    if (!asked) say({ right: null, text: NO_KERNEL });
  };
  const calls = { check, edited };
  const field: Field = kind === "choice" ? choice(model, calls, signal) : kind === "curve" ? drawing(model.get("curve") as Curve, calls, signal) : kind === "own" ? own(model) : written(model, calls, kind, signal);
  const say = ({ right, text }: Verdict) => {
    answered();
    asked = false;
    mark(said, "data-right", right === true ? "yes" : right === false ? "no" : null);
    said.replaceChildren(...(text ? [right === true ? `✓ Right${text.slice(5)}.` : el("span", {}, right === false ? "✗ Not yet: " : "", ...spoken(text))] : []));
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
  return () => life.abort();
}

export default { render };
