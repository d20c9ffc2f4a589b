// What changed is put into what was there.
import { expect, test } from "vitest";
import { open, type Header } from "../src/wire.js";
import { pack } from "./encode.js";

const OLD = pack({ title: "old", total: 6, story: [{ text: "a" }, { text: "b" }] } as never, { "step.node": [1, 2, 3, 4, 5], "step.live": [6] });
/** Of six entries: the middle of a column, the end of another one, a column that is new, the end of a list. */
const CHANGE = pack({ title: "new", story: [{ text: "c" }], fronts: { story: 1 }, base: 6 } as never,
  { "step.node": [9, 8, 7], "step.live": [16, 26], "free.storage": [3] }, { "step.node": [1, 2], "step.live": [1, 0], "free.storage": [0, 0] });

test("a later payload is what stays of the earlier one, with what is new between", () => {
  const { header, column } = open<Header>(OLD, CHANGE);
  expect([...column("step.node")]).toEqual([1, 9, 8, 7, 4, 5]);
  expect([...column("step.live")]).toEqual([6, 16, 26]);
  expect([...column("free.storage")]).toEqual([3]);
  expect([header.title, header.total, header.story.map((word) => word.text)]).toEqual(["new", 6, ["a", "c"]]);
  expect([...open<Header>(OLD).column("step.node")]).toEqual([1, 2, 3, 4, 5]);
});

test("what changed in another payload is refused", () => {
  expect(() => open<Header>(pack({ title: "other" } as never, { "step.node": [1] }), CHANGE)).toThrow("another recording");
});
