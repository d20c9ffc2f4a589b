import { describe, expect, test } from "vitest";
import { FORMAT, open, read, unpack, type Codes, type Header } from "../src/wire.js";
import { CODES } from "./codes.js";
import { pack, zip, type Tables } from "./encode.js";
import { branches, llama } from "./mock.js";

const decode = async (bytes: DataView | Uint8Array | null) => {
  const raw = await read(bytes);
  return raw && unpack(raw);
};

/** The same bytes with other tables of codes. */
function patched(raw: ArrayBuffer, codes: Codes): ArrayBuffer {
  const { header, column } = open<Header>(raw);
  const { columns, ...rest } = header;
  const tables: Tables = Object.fromEntries(Object.keys(columns).map((name) => [name, Array.from(column(name))]));
  return pack({ ...rest, codes }, tables);
}

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

  test("cut short is refused in words", async () => {
    const packed = await zip(branches());
    await expect(decode(packed.slice(0, 200))).rejects.toThrow("part of them is missing");
  });

  const bare = (header: object) => {
    const text = new TextEncoder().encode(JSON.stringify({ columns: {}, ...header }));
    const raw = new ArrayBuffer(4 + text.length);
    new DataView(raw).setUint32(0, text.length, true);
    new Uint8Array(raw).set(text, 4);
    return raw;
  };

  test("of another format is refused with a word on what to do", () => {
    expect(() => unpack(bare({ format: FORMAT + 1 }))).toThrow(/newer kvviz.*update kvviz/);
    expect(() => unpack(bare({ format: FORMAT - 1 }))).toThrow(/older kvviz.*run the cell again/);
  });

  test("that lacks a column is refused by the column's name", () => {
    expect(() => unpack(bare({ format: FORMAT, codes: CODES }))).toThrow("no column frame.graph");
  });

  test("that lacks a code that the page acts upon is refused by its name", () => {
    const t = unpack(branches());
    expect(t.flag.missed).toBe(1 << CODES.flag.indexOf("missed"));
    const without = { ...CODES, flag: CODES.flag.filter((name) => name !== "missed") };
    expect(() => unpack(patched(branches(), without))).toThrow("no code missed");
  });

  test("with codes that the page does not know is read, its numbers as its own tables say", () => {
    const p = unpack(patched(branches(), { ...CODES, flag: ["odd", ...CODES.flag], origin: ["lent", ...CODES.origin] }));
    expect(p.flag.inPlace).toBe(2 << CODES.flag.indexOf("in_place"));
    expect(p.codes.origin[p.from.weights]).toBe("weights");
  });
});
