import { describe, expect, test } from "vitest";
import { decode, unpack } from "../src/wire.js";
import { zip } from "./encode.js";
import { branches, llama } from "./mock.js";

describe("a payload", () => {
  test("comes back from its compressed bytes with every column aligned and as long as told", async () => {
    const raw = llama(2, 3);
    const p = (await decode(new DataView((await zip(raw)).buffer)))!;
    expect(p.steps).toBe(3 * 59);
    expect(p.step.out.length).toBe(p.steps + 1);
    expect(p.step.live).toBeInstanceOf(Float64Array);
    expect(p.out.storage.length).toBe(p.step.out[p.steps]);
    expect(p.frame.bind[p.frames]).toBe(p.bind.value.length);
  });

  test("of no bytes is nothing, not an error", async () => {
    expect(await decode(new Uint8Array())).toBeNull();
    expect(await decode(null)).toBeNull();
  });

  test("may begin anywhere in a larger buffer", async () => {
    const packed = await zip(branches());
    const larger = new Uint8Array(packed.length + 5);
    larger.set(packed, 5);
    expect((await decode(new DataView(larger.buffer, 5)))!.title).toBe("branches");
  });

  test("saved before ops had notes has none", () => {
    const p = unpack(branches());
    expect(p.step.note).toHaveLength(0);
    expect(p.strings[p.step.note[0]]).toBeUndefined();
  });

  test("cut short is refused in words", async () => {
    const packed = await zip(branches());
    await expect(decode(packed.slice(0, 200))).rejects.toThrow("part of them is missing");
  });

  test("of a newer format is refused with a word on what to do", () => {
    const text = new TextEncoder().encode(JSON.stringify({ format: 2, columns: {} }));
    const raw = new ArrayBuffer(4 + text.length);
    new DataView(raw).setUint32(0, text.length, true);
    new Uint8Array(raw).set(text, 4);
    expect(() => unpack(raw)).toThrow(/format 2.*update kvviz/);
  });

  test("that lacks a column is refused by the column's name", () => {
    const text = new TextEncoder().encode(JSON.stringify({ format: 1, columns: {} }));
    const raw = new ArrayBuffer(4 + text.length);
    new DataView(raw).setUint32(0, text.length, true);
    new Uint8Array(raw).set(text, 4);
    expect(() => unpack(raw)).toThrow("no column frame.graph");
  });
});
