// The little markup of captions and questions: `code`, *emphasis*, **strong**; see kvviz/lessons/question.py.
import { el } from "./dom.js";

const MARKS = /`([^`]+)`|(?<![\w*])\*\*([^*\s](?:[^*]*[^*\s])?)\*\*(?![\w*])|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])/g;

export function spoken(text: string): (Node | string)[] {
  const made: (Node | string)[] = [];
  let at = 0;
  for (const found of text.matchAll(MARKS)) {
    made.push(text.slice(at, found.index));
    const [whole, code, strong, soft] = found;
    made.push(code ? el("code", {}, code) : strong ? el("b", {}, strong) : el("em", {}, soft));
    at = found.index + whole.length;
  }
  made.push(text.slice(at));
  return made.filter((part) => part !== "");
}
