// The table of the query language, which travels in the payload's header; see kvviz/query/grammar.py.
export interface Field { name: string; kind: string; about: string; aliases: string[]; sorts: boolean; choices: string[] }
export interface QueryTable {
  longest: number; deepest: number;
  fields: Field[];
  kinds: { name: string; about: string; signs: string[] }[];
  words: Record<string, string>; // for decisions
  units: Record<string, number>;
  examples: string[];
}
