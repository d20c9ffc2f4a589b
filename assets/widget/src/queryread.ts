// Parses a query by the table in the payload's header, with the same parts and the same errors as kvviz/query.
import type { Part, Query, Value } from "./modules.js";
import type { Field, QueryTable } from "./wire.js";

interface Given { text: string; quoted: boolean }
type Sort = "(" | ")" | "-" | "or" | "word" | "quoted" | "test" | "order" | "";
interface Token { sort: Sort; text: string; field: string; sign: string; values: Given[] }

const BLANK = " \t\r\n\u00a0";
const ORDERS = ["sort", "limit"];
const LIKE: Record<string, string> = { sort: "-copied", limit: "10" };
const SIGNS = [">=", "<=", "!=", ":", "=", ">", "<"];
const TEST = new RegExp(`([A-Za-z_][A-Za-z0-9_]*)(?:[${BLANK}]*(==|!=|>=|<=|=|>|<)[${BLANK}]*|:)`, "y");
const VALUE = new RegExp(`[^${BLANK}()|]*`, "y");
const BARE = new RegExp(`[^${BLANK}()]+`, "y");
const UNIT = new RegExp(`[${BLANK}]+([A-Za-z]+)(?=[${BLANK}()]|$)`, "y");
const NUMERIC = /^[0-9][0-9,]*(?:\.[0-9]+)?$/;
const NUMBER = /^([-−]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]+))? ?([A-Za-z]*)$/;
const BUFFER = /^[Bb]?([0-9]{1,15})(?:\.([0-9]{1,15}))?$/;
const COUNT = /^[1-9][0-9]{0,8}$/;
const NUMBERS = ["number", "bytes", "run"];
const EQUAL = [":", "=", "!="];

/** The edit distance with transpositions. */
function distance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      let cost = Math.min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) cost = Math.min(cost, rows[i - 2][j - 2] + 1);
      row.push(cost);
    }
    rows.push(row);
  }
  return rows[a.length][b.length];
}

function meant(word: string, names: string[]): string {
  let best = "";
  let least = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const name of names) {
    const away = word.length > 2 && name.startsWith(word) ? 1 : distance(word, name);
    if (away < least && !name.includes(" ")) [best, least] = [name, away];
  }
  return best && `; did you mean "${best}"`;
}

const strip = (text: string) => text.replace(new RegExp(`^[${BLANK}]+|[${BLANK}]+$`, "g"), "");

class Reader {
  #fields = new Map<string, Field>();
  #scale = new Map<string, number>();
  #tokens: Token[] = [];
  #at = 0;
  #depth = 0;
  #orders: Query["orders"] = [];
  #limit: number | null = null;

  constructor(private table: QueryTable, private text: string) {
    if ([...text].length > table.longest) throw new Error(`it has ${[...text].length} characters, more than ${table.longest}`);
    for (const field of table.fields) for (const name of [field.name, ...field.aliases]) this.#fields.set(name, field);
    for (const [unit, scale] of Object.entries(table.units)) this.#scale.set(unit.toLowerCase(), scale);
    this.#words();
  }

  whole(): Query {
    const part = this.#some();
    if (this.#sort() === ")") throw new Error('")" has no "(" before it');
    return { part, orders: this.#orders, limit: this.#limit };
  }

  // -- words

  #push(sort: Sort, text: string, field = "", sign = "", values: Given[] = []): void { this.#tokens.push({ sort, text, field, sign, values }); }

  #match(pattern: RegExp, at: number): RegExpExecArray | null {
    pattern.lastIndex = at;
    return pattern.exec(this.text);
  }

  #words(): void {
    const { text } = this;
    for (let at = 0; at < text.length; ) {
      const letter = text[at];
      if (BLANK.includes(letter)) at++;
      else if (letter === "(" || letter === ")") this.#push(letter, text[at++]);
      else if ("-−".includes(letter) && at + 1 < text.length && !`${BLANK})`.includes(text[at + 1])) this.#push("-", text[at++]);
      else if ("\"'".includes(letter)) {
        const given = this.#quoted(at);
        this.#push("quoted", given);
        at += given.length + 2;
      } else {
        const test = this.#match(TEST, at);
        if (test) at = this.#test(test);
        else {
          const bare = this.#match(BARE, at)![0];
          this.#bare(bare);
          at += bare.length;
        }
      }
    }
  }

  #bare(text: string): void {
    if ("-−".includes(text)) throw new Error(`nothing stands behind "${text}"`);
    const sign = SIGNS.find((s) => text.startsWith(s));
    if (sign) throw new Error(`no field stands before "${sign}" in "${text}"; put quotes around a text to search for it`);
    const lower = text.toLowerCase();
    if (text === "·" || text === "›" || lower === "and") return;
    this.#push(lower === "or" ? "or" : "word", text);
  }

  #quoted(at: number): string {
    const { text } = this;
    const close = text.indexOf(text[at], at + 1);
    if (close < 0) throw new Error(`the quote that begins with ${text.slice(at)} has no end`);
    if (close === at + 1) throw new Error("there is nothing between the quotes");
    return text.slice(at + 1, close);
  }

  /** Read a test; returns its end. */
  #test(match: RegExpExecArray): number {
    const { text } = this;
    const sign = match[2] === "==" ? "=" : match[2] ?? ":";
    const field = this.#known(match[1]);
    const values: Given[] = [];
    let at = match.index + match[0].length;
    for (;;) {
      const quoted = at < text.length && "\"'".includes(text[at]);
      const value = quoted ? this.#quoted(at) : this.#match(VALUE, at)![0];
      if (!value) throw new Error(`nothing stands behind "${strip(match[0])}"`);
      values.push({ text: value, quoted });
      at += value.length + (quoted ? 2 : 0);
      if (text[at] !== "|") break;
      at++;
    }
    const last = values[values.length - 1];
    if (this.#fields.get(field)?.kind === "bytes" && !last.quoted && NUMERIC.test(last.text)) {
      const unit = this.#match(UNIT, at);
      if (unit && this.#isUnit(unit[1])) {
        last.text += unit[1];
        at += unit[0].length;
      }
    }
    this.#push(ORDERS.includes(field) ? "order" : "test", strip(match[0]), field, sign, values);
    return at;
  }

  #isUnit(text: string): boolean { return this.#scale.has(text.toLowerCase()); }

  #known(written: string): string {
    const name = written.toLowerCase();
    if (ORDERS.includes(name)) return name;
    const field = this.#fields.get(name);
    if (field) return field.name;
    const guess = meant(name, [...this.#fields.keys(), ...ORDERS]);
    throw new Error(`there is no field "${written}"${guess}; there are ${[...this.table.fields.map((f) => f.name), ...ORDERS].join(", ")}; put quotes around a text to search for it`);
  }

  // -- parts

  #sort(ahead = 0): Sort { return this.#tokens[this.#at + ahead]?.sort ?? ""; }

  #some(): Part | null {
    const parts = [this.#every()];
    while (this.#sort() === "or") {
      if (!parts[parts.length - 1]) throw new Error('nothing stands before "or"');
      this.#at++;
      parts.push(this.#every());
      if (!parts[parts.length - 1]) throw new Error('nothing stands after "or"');
    }
    return parts.length === 1 ? parts[0] : { is: "some", parts: parts as Part[] };
  }

  #every(): Part | null {
    const parts: Part[] = [];
    while (!["", ")", "or"].includes(this.#sort())) {
      if (this.#sort() === "order") this.#order(this.#tokens[this.#at++]);
      else parts.push(this.#one());
    }
    return parts.length > 1 ? { is: "every", parts } : parts[0] ?? null;
  }

  #one(): Part {
    const token = this.#tokens[this.#at++];
    switch (token.sort) {
      case "-":
        if (this.#sort() === "order") throw new Error(`"${this.#tokens[this.#at].text}" cannot be negated; write sort:-copied for the largest first`);
        if (["", ")", "or"].includes(this.#sort())) throw new Error(`nothing stands behind "${token.text}"`);
        return { is: "not", part: this.#one() };
      case "(": return this.#inner();
      case "quoted": return { is: "word", text: token.text };
      case "test": return this.#compared(this.#fields.get(token.field)!, token.sign, token.values);
      default:
        this.#at--;
        return this.#phrase();
    }
  }

  #inner(): Part {
    if (++this.#depth > this.table.deepest) throw new Error(`it nests more than ${this.table.deepest} deep`);
    const part = this.#some();
    if (this.#sort() !== ")") throw new Error('"(" has no ")" after it');
    this.#at++;
    this.#depth--;
    if (!part) throw new Error('there is nothing between "(" and ")"');
    return part;
  }

  /** One word, or several that the page shows together, such as "in place". */
  #phrase(): Part {
    for (const many of [3, 2]) {
      const words = this.#joined(many);
      if (!Object.hasOwn(this.table.words, words)) continue;
      this.#at += many;
      return { is: "compare", field: "decision", sign: ":", values: [this.table.words[words]] };
    }
    for (const many of [2, 1]) {
      const field = this.#fields.get(this.#joined(many));
      let number = this.#word(many);
      if (!field || !number || !this.#isValue(field, number)) continue;
      this.#at += many + 1;
      if (field.kind === "bytes" && NUMERIC.test(number) && this.#isUnit(this.#word(0))) number += this.#tokens[this.#at++].text;
      return this.#compared(field, ":", [{ text: number, quoted: false }]);
    }
    return { is: "word", text: this.#tokens[this.#at++].text };
  }

  #word(ahead: number): string { return this.#sort(ahead) === "word" ? this.#tokens[this.#at + ahead].text : ""; }

  #joined(many: number): string {
    const words = Array.from({ length: many }, (_, i) => this.#word(i));
    return words.every(Boolean) ? words.join(" ").toLowerCase() : "";
  }

  #order(token: Token): void {
    if (this.#depth) throw new Error(`"${token.text}" cannot stand between brackets`);
    if (![":", "="].includes(token.sign) || token.values.length > 1) throw new Error(`"${token.field}" is written with one value, like ${token.field}:${LIKE[token.field]}`);
    const value = token.values[0].text;
    if (token.field === "limit") {
      if (!COUNT.test(value)) throw new Error(`"limit" is a whole number from 1 on, not "${value}"`);
      this.#limit = Number(value);
      return;
    }
    const down = "-−".includes(value[0]);
    const name = this.#known(down ? value.slice(1) : value);
    if (!this.#fields.get(name)?.sorts) {
      throw new Error(`steps have no order by "${name}"; there are ${this.table.fields.filter((f) => f.sorts).map((f) => f.name).join(", ")}`);
    }
    this.#orders.push({ field: name, down });
  }

  // -- values

  #isValue(field: Field, word: string): boolean {
    if (field.kind === "buffer") return BUFFER.test(word);
    const match = NUMBERS.includes(field.kind) ? NUMBER.exec(word) : null;
    return match !== null && (!match[4] || (field.kind === "bytes" && this.#isUnit(match[4])));
  }

  #compared(field: Field, sign: string, given: Given[]): Part {
    const kind = this.table.kinds.find((k) => k.name === field.kind)!;
    if (!kind.signs.includes(sign)) throw new Error(`"${field.name}" is ${kind.about}: "${sign}" does not go with it, only ${kind.signs.join(" ")}`);
    return { is: "compare", field: field.name, sign, values: given.map((value) => this.#value(field, sign, value)) };
  }

  #value(field: Field, sign: string, { text, quoted }: Given): Value {
    if (field.kind === "choice") return this.#choice(field, text);
    if (field.kind === "buffer") {
      const match = BUFFER.exec(text);
      if (!match) throw this.#wrong(field, text);
      return [Number(match[1]), match[2] === undefined ? -1 : Number(match[2])];
    }
    if (!NUMBERS.includes(field.kind)) return text;
    const dots = text.indexOf("..");
    const low = dots < 0 ? text : text.slice(0, dots);
    if (field.kind === "run" && (quoted || !this.#isValue(field, low)) && EQUAL.includes(sign)) return text;
    if (dots >= 0) {
      if (!EQUAL.includes(sign)) throw new Error(`"${sign}" takes one number, not "${text}"`);
      return [this.#number(field, low)[0], this.#number(field, text.slice(dots + 2))[0]];
    }
    const [number, half] = this.#number(field, text);
    return sign === ":" ? [number - half, number + half] : [number, number];
  }

  #choice(field: Field, text: string): string {
    const lower = text.toLowerCase();
    let chosen = field.choices.find((choice) => choice.toLowerCase() === lower);
    if (chosen === undefined && field.name === "decision" && Object.hasOwn(this.table.words, lower)) chosen = this.table.words[lower];
    if (chosen !== undefined) return chosen;
    const guess = meant(/[A-Z]/.test(field.choices[0]) ? text.toUpperCase() : lower, field.choices);
    throw new Error(`there is no ${field.name} "${text}"${guess}; there are ${field.choices.join(", ")}`);
  }

  /** A number, and half of its last written digit. */
  #number(field: Field, text: string): [number, number] {
    const match = NUMBER.exec(text);
    if (!match || !this.#isValue(field, text)) throw this.#wrong(field, text);
    const unit = match[4].toLowerCase() || "b";
    const scale = this.#scale.get(unit)!;
    const decimals = match[3] ?? "";
    const number = Number(`${match[2].replaceAll(",", "")}.${decimals || "0"}`) * scale;
    return [match[1] ? -number : number, unit === "b" ? 0 : scale / 2 / 10 ** decimals.length];
  }

  #wrong(field: Field, text: string): Error {
    return new Error(`"${field.name}" is ${this.table.kinds.find((k) => k.name === field.kind)!.about}, not "${text}"`);
  }
}

export function read(table: QueryTable, text: string): Query { return new Reader(table, text).whole(); }
