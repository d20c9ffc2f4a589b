// What Python reads of queries and finds by them, the page must say after it; written by tests/view/query_cases.py.
import { describe, expect, test } from "vitest";
import type { Query } from "../src/modules.js";
import { find, OF_NODE, OF_STEP, test as tester } from "../src/query.js";
import { read as readQuery } from "../src/queryread.js";
import { QUERY } from "./codes.js";
import { bytes, golden } from "./traces.js";

interface Cases { read: Record<string, Query | string>; found: Record<string, Record<string, number[]>> }
const cases = JSON.parse(new TextDecoder().decode(await bytes("../queries.json.gz"))) as Cases;

/** How many, a sum over all in their order, and the first of them. */
function summed(places: Int32Array): number[] {
  let total = 0;
  places.forEach((place, i) => (total = (total + (i + 1) * (place + 1)) % 1_000_003));
  return [places.length, total, ...places.subarray(0, 6)];
}

test("there are many cases, of many traces, and malformed ones", () => {
  const all = Object.values(cases.read);
  expect(all.length).toBeGreaterThan(300);
  expect(all.filter((told) => typeof told === "string").length).toBeGreaterThan(60);
  expect(Object.keys(cases.found).length).toBeGreaterThanOrEqual(10);
});

test("queries are read as Python reads them, and refused in the same words", () => {
  const told = (text: string) => {
    try {
      return readQuery(QUERY, text);
    } catch (error) {
      return (error as Error).message;
    }
  };
  for (const [text, wanted] of Object.entries(cases.read)) expect([text, told(text)]).toEqual([text, wanted]);
});

test("the page knows how to ask for every field of the table, and for no other", () => {
  expect([...Object.keys(OF_NODE), ...Object.keys(OF_STEP)].sort()).toEqual(QUERY.fields.map((f) => f.name).sort());
});

describe.each(Object.keys(cases.found))("of %s", async (name) => {
  const t = await golden(name);
  const { p } = t;

  test("queries find the steps that they find in Python, in the same order", () => {
    for (const [text, wanted] of Object.entries(cases.found[name])) {
      expect([text, summed(find(t, readQuery(p.query, text)))]).toEqual([text, wanted]);
    }
  });

  test("a step that a query without a limit finds is one that it matches, and no other", () => {
    for (const text of Object.keys(cases.found[name]).filter((text) => !text.includes("limit")).slice(0, 60)) {
      const query = readQuery(p.query, text);
      const hit = tester(t, query);
      const matched = Array.from({ length: p.steps }, (_, i) => i).filter(hit);
      expect([text, Array.from(find(t, query)).sort((a, b) => a - b)]).toEqual([text, matched]);
    }
  });
});
