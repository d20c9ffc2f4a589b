// Markdown from the templates of kvviz/report/markdown_text.py, which travel in the table of codes.
// How text and names are kept from becoming markup is told there; a test holds the two against each other.

/** `each`: the fact that has an entry for every repetition, or nothing; then what stands above, and the lines. */
export type Template = [each: string, head: string[], lines: string[]];
export interface Facts { [name: string]: string | Facts[] }

const PLACE = /\{(\w+)(?:\|(\w+))?\}/g;
const SIGNS = /[\\`*[\]<>|~&$]|(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu;
const CALLS = /@(?=[\p{L}\p{N}_])|#(?=\p{Nd})/gu;
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

const seen = (raw: string) => raw.replace(UNSEEN, "·");
const text = (raw: string) => seen(raw).replace(SIGNS, "\\$&").replace(CALLS, "$&<!-- -->");

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
    return way === "code" ? code(raw) : way === "raw" ? raw : text(raw);
  });
}

export function filled(template: Template[], facts: Facts): string {
  const blocks: string[] = [];
  for (const [each, head, lines] of template) {
    const told = each
      ? ((facts[each] ?? []) as Facts[]).flatMap((entry) => lines.map((l) => line(l, entry)))
      : lines.filter((l) => [...l.matchAll(PLACE)].every(([, name]) => facts[name])).map((l) => line(l, facts));
    if (told.length) blocks.push(head.length || !each ? [...head, ...told].join("\n") : told.join("\n\n"));
  }
  return `${blocks.join("\n\n")}\n`;
}
