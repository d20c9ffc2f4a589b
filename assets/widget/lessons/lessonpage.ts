// The entry of "lessonpage": the lesson that is one file (kvviz/demo/lesson_page.py). The page grades its questions itself, and writes a code
// that says which were right.
import { mark, on } from "../src/dom.js";
import { light, steppers } from "./lesson.js";
import { readNumber, scoreCode } from "./lessongrade.js";

/** `answer`: of a choice, its text. `hints`: by wrong answer; `otherwise`: for all others. */
interface Question { answer: string | number; hints: Record<string, string>; otherwise: string; why: string }

/** `first`: right at the first try; `later`: right, but after a wrong answer. */
const MARK = { first: 2, later: 1, none: 0 };

function ask(form: HTMLFormElement, { answer, hints, otherwise, why }: Question, graded: (mark: number) => void, signal: AbortSignal): void {
  const said = form.querySelector<HTMLElement>('[role="status"]')!;
  const field = form.querySelector<HTMLInputElement>('input[type="text"]');
  let tries = 0, closed = false;
  const say = (right: boolean | null, text: string) => {
    mark(said, "data-right", right === null ? null : right ? "yes" : "no");
    said.replaceChildren(text);
  };
  const close = (mark: number) => {
    if (!closed) graded(mark);
    closed = true;
  };
  on(form, "submit", (event) => {
    event.preventDefault(); // the focus stays where it is
    const text = field?.value ?? form.querySelector<HTMLInputElement>("input:checked")?.value ?? "";
    const given = field ? readNumber(text) : text;
    if (given === null || given === "") return say(null, field ? "Write a number, or a sum such as 4 + 2 * 3." : "Choose one first.");
    if (given === answer) {
      say(true, `✓ Right. ${why}`);
      return close(tries ? MARK.later : MARK.first);
    }
    tries++;
    say(false, `✗ Not yet: ${hints[String(given)] ?? (typeof answer === "number" ? `too ${+given > answer ? "large" : "small"}: ` : "") + otherwise}`);
  }, signal);
  on(form, "input", () => say(null, ""), signal);
  on(form.querySelector<HTMLElement>("[data-kv=\"reveal\"]")!, "click", () => {
    close(MARK.none);
    say(null, `${answer}. ${why}`);
  }, signal);
}

function open(): void {
  const { signal } = new AbortController();
  const main = document.querySelector<HTMLElement>("main")!;
  const { lesson, questions } = JSON.parse(document.getElementById("kv-questions")!.textContent!) as { lesson: string; questions: Question[] };
  light(main, signal);
  // with nothing in focus, the arrows are for the picture that is looked at
  on(document.documentElement, "keydown", (event) => {
    const free = event.target === document.body && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (free && event.key.startsWith("Arrow") && steppers.find((one) => one.seen())?.key(event.key)) event.preventDefault();
  }, signal);
  const marks = questions.map(() => MARK.none), code = document.getElementById("kv-code")!, right = document.getElementById("kv-right")!;
  const show = () => {
    code.textContent = scoreCode(lesson, marks);
    right.textContent = `${marks.filter(Boolean).length} of ${marks.length} right`;
  };
  document.querySelectorAll<HTMLFormElement>("form").forEach((form, i) => ask(form, questions[i], (now) => { marks[i] = now; show(); }, signal));
  const copy = document.getElementById("kv-copy")!;
  on(copy, "click", () => {
    getSelection()!.selectAllChildren(code); // what can be copied by hand, too
    navigator.clipboard?.writeText(code.textContent!).then(() => { copy.textContent = "Copied"; }, () => {});
  }, signal);
  document.querySelectorAll<HTMLElement>("[data-live]").forEach((node) => { node.hidden = false; });
  show();
}

open();
