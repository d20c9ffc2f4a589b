import { describe, expect, test } from "vitest";
import { missed } from "../src/missed.js";
import type { Report } from "../src/wire.js";
import { branches, llama } from "./mock.js";
import { trace } from "./traces.js";

describe("the missed list", () => {
  const t = trace(llama(2, 8));
  const list = missed(t);

  test("has every missed step exactly once, under its node", () => {
    const steps = list.flatMap((m) => m.steps).sort((a, b) => a - b);
    const flagged = [...Array(t.p.steps).keys()].filter((i) => t.p.step.flags[i] & t.p.flag.missed);
    expect(steps).toEqual(flagged);
    for (const m of list) for (const s of m.steps) expect(t.p.step.node[s]).toBe(m.node);
  });

  test("is ranked by the bytes that its runs cost together", () => {
    expect(list.length).toBeGreaterThan(2);
    for (let i = 1; i < list.length; i++) expect(list[i - 1].bytes).toBeGreaterThanOrEqual(list[i].bytes);
    const total = list.reduce((n, m) => n + m.bytes, 0);
    const spent = list.flatMap((m) => m.steps).reduce((n, s) => n + t.p.step.alloc[s], 0);
    expect(total).toBe(spent);
  });

  test("gives all reasons of the step that cost most", () => {
    for (const m of list) {
      expect(m.steps).toContain(m.step);
      expect(m.reasons).toHaveLength(t.p.step.block[m.step + 1] - t.p.step.block[m.step]);
      for (const r of m.reasons) {
        expect(r.code).toMatch(/^[A-Z_]+$/);
        expect(r.message).not.toBe("");
        expect(t.p.graphs[m.graph].values).toContain(r.value);
      }
    }
  });

  test("keeps nodes of different graphs apart although their numbers are equal", () => {
    const two = missed(trace(branches(2)));
    expect(new Set(two.map((m) => m.graph)).size).toBe(2);
  });

  test("is the report's where there is one, and is filled up from the columns", () => {
    const told = [{ ...list[3], bytes: 1e9, effect: 64, fixes: [{ label: "donate x", sentence: "", code: "", saves: 1 }] }];
    const report: Report = { steps: t.p.steps, missed: told, total: list.length, held: [], held_rest: "", caches: [], peak: { bytes: 0, step: null, groups: [] } };
    const merged = missed(t, report);
    expect(merged[0]).toBe(told[0]);
    expect(merged).toHaveLength(list.length);
    expect(merged.slice(1)).toEqual(list.filter((m) => m.node !== list[3].node));
    expect(missed(t, { ...report, total: 1 })).toEqual(told);
  });
});
