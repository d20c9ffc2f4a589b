// What changed is put into what was there.
import { expect, test } from "vitest";
import { patch } from "../src/wire.js";

const bytes = (...list: number[]) => Uint8Array.from(list).buffer;

/** Pieces of an earlier array of bytes (start, length) and new ones (-1, the bytes), as kvviz/view/payload_delta.py writes them. */
function change(was: number, size: number, pieces: [number, number | number[]][]): ArrayBuffer {
  const fresh = pieces.flatMap(([, what]) => (Array.isArray(what) ? what : []));
  const head = [was, size, pieces.length, ...pieces.flatMap(([at, what]) => [at, Array.isArray(what) ? what.length : what])];
  return Uint8Array.of(...new Uint8Array(Int32Array.from(head).buffer), ...fresh).buffer;
}

test("a later payload is made of pieces of the earlier one and of what is new", () => {
  const old = bytes(1, 2, 3, 4, 5, 6);
  const made = patch(old, change(6, 8, [[0, 2], [-1, [9, 8, 7]], [3, 1], [-1, [0]], [5, 1]]));
  expect([...new Uint8Array(made)]).toEqual([1, 2, 9, 8, 7, 4, 0, 6]);
  expect([...new Uint8Array(old)]).toEqual([1, 2, 3, 4, 5, 6]);
});

test("what changed in another payload is refused", () => {
  expect(() => patch(bytes(1, 2, 3), change(4, 4, [[0, 4]]))).toThrow("another recording");
});
