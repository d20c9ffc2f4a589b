import { describe, expect, test } from "vitest";
import { parse, write } from "../src/address.js";
import { code, filled } from "../src/share.js";
import type { Template } from "../src/wire.js";

describe("Markdown", () => {
  test("keeps names from becoming markup, as Python does", () => {
    // the cases of tests/view/test_markdown.py
    expect([code("`a"), code("a``"), code(" "), code("a|b"), code("")]).toEqual(["`` `a ``", "``` a`` ```", "`   `", "`a\\|b`", ""]);
    expect(filled([["", [], ["{x}"]]], { x: "a|b_c <b> @me #1" })).toBe("a\\|b_c \\<b\\> @<!-- -->me #<!-- -->1\n");
  });

  test("leaves out a line without its fact, and a table without lines", () => {
    const template: Template[] = [["", ["| a |"], ["| {x} |", "| {y} {x} |"]], ["", ["| b |"], ["| {y} |"]], ["z", ["h"], ["{n|code}"]]];
    expect(filled(template, { x: "1", y: "", z: [{ n: "p" }, { n: "" }] })).toBe("| a |\n| 1 |\n\nh\n`p`\n\n");
  });
});

describe("an address", () => {
  test("is read as it was written", () => {
    for (const place of [{ step: 3619, sel: "B345", query: "", list: "", finding: [2, 181] as [number, number] }, { step: -1, sel: "/a b/c&d=e#f", query: "op:Concat layer:3 %", list: "caches" }, { step: null, sel: "", query: "", list: "" }]) {
      expect(parse(`#${write(place)}`)).toEqual(place);
    }
  });

  test("that makes no sense names nothing", () => {
    expect(parse("#step=1e9&sel")).toEqual({ step: null, sel: "", query: "", list: "" });
    expect(parse("#step=1;2")).toEqual({ step: null, sel: "", query: "", list: "" });
  });
});
