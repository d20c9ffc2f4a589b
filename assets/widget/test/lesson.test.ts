import { expect, test } from "vitest";
import { readNumber, scoreCode } from "../lessons/lessongrade.js";

test("a number is read in each way that people write it", () => {
  const spelled = ["85", " 85 ", "85 rows", "85 rows.", "about 85", "row 85", "13 + 72", "13+72 = 85", "13 + 1*72", "13 + 1 × 72", "13 + 72 x 1", "170 / 2", "100 − 15", "85.0", "= 85", "rows: 85"];
  expect(spelled.map((text) => [text, readNumber(text)])).toEqual(spelled.map((text) => [text, 85]));
  expect(["3,577", "3 577", "3’577", "3_577", "3577 rows"].map(readNumber)).toEqual([3577, 3577, 3577, 3577, 3577]);
  expect(["", "many", "12 13 14", "1..2", "13 +", "(1", "alert(1)"].map(readNumber)).toEqual([null, null, null, null, null, null, null]);
});

test("a code has a figure for each question and letters that depend on all of it", () => {
  expect(scoreCode("story", [2, 1, 0])).toMatch(/^story-210-[A-Z]{2}$/);
  expect(new Set([[2, 1, 0], [1, 2, 0], [2, 0, 1], [0, 1, 2]].map((marks) => scoreCode("story", marks).slice(-2))).size).toBe(4);
});
