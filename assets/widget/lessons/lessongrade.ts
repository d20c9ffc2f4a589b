// What a page that grades its own questions works out.
/** The number that a text says: with separators, a word before or behind it, sums and products; null if it says none. */
export function readNumber(text: string): number | null {
  const last = text.slice(text.lastIndexOf("=") + 1).toLowerCase().replace(/[×·⋅]|(?<=\d)\s*x\s*(?=\d)/g, "*").replace(/[−–]/g, "-");
  const [, sum] = /^[a-z\s:~≈]*([-\d][\d\s,'’_.+*/-]*?)\.?\s*[a-z\s]*\.?$/.exec(last.trim()) ?? [];
  if (sum === undefined) return null;
  const plain = sum.replace(/(?<=\d)[\s,'’_](?=\d{3}(?!\d))/g, "").replace(/\s*([-+*/])\s*/g, "$1").trim();
  if (!/^-?\d+(\.\d+)?([-+*/]\d+(\.\d+)?)*$/.test(plain)) return null;
  const product = (text: string) => text.split(/(?=[*/])/).reduce((made, part) => (part[0] === "*" ? made * +part.slice(1) : part[0] === "/" ? made / +part.slice(1) : +part), 1);
  return plain.split(/(?<=\d)(?=[-+])/).reduce((made, part) => made + product(part.replace(/^\+/, "")), 0);
}

const A = 65, LETTERS = 26;

/** As `kvviz.lessons.questions.score.write_score`: a figure for each question, and two letters that notice a slip of the pen. */
export function scoreCode(lesson: string, marks: number[]): string {
  const said = `${lesson}-${marks.join("")}`;
  const check = [...said].reduce((sum, letter) => (31 * sum + letter.charCodeAt(0)) % LETTERS ** 2, 0);
  return `${said}-${String.fromCharCode(A + Math.floor(check / LETTERS), A + (check % LETTERS))}`;
}
