// Modules import only downwards: none reaches itself again, by types neither.
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

type Imports = Map<string, string[]>;

function sources(): Imports {
  const folders = ["../src/", "../lessons/"].map((folder) => new URL(folder, import.meta.url));
  return new Map(folders.flatMap((folder) => readdirSync(folder).filter((file) => file.endsWith(".ts")).map((file): [string, string[]] => {
    const text = readFileSync(new URL(file, folder), "utf8");
    return [file, [...text.matchAll(/(?:from\s*|import\s*\(?\s*)"\.\.?\/(?:src\/)?([\w-]+)\.js"/g)].map((found) => `${found[1]}.ts`)];
  })));
}

/** Modules that import each other in a ring, the first one told again at the end; empty where there is none. */
function cycle(imports: Imports): string[] {
  const over = new Set<string>();
  const walk = (file: string, way: string[]): string[] => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
    if (over.has(file)) return [];
    for (const next of imports.get(file) ?? []) {
      const found = walk(next, [...way, file]);
      if (found.length) return found;
    }
    over.add(file);
    return [];
  };
  for (const file of imports.keys()) {
    const found = walk(file, []);
    if (found.length) return found;
  }
  return [];
}

test("no module imports itself by way of others", () => {
  const imports = sources();
  // given imports that are all found
  expect(imports.size).toBeGreaterThan(50);
  for (const wanted of imports.values()) for (const file of wanted) expect([...imports.keys()]).toContain(file);
  // then
  expect(cycle(imports)).toEqual([]);
});

test("a ring is found and told", () => {
  const ring: Imports = new Map([["a.ts", ["d.ts", "b.ts"]], ["b.ts", ["c.ts"]], ["c.ts", ["b.ts"]], ["d.ts", []]]);
  expect(cycle(ring)).toEqual(["b.ts", "c.ts", "b.ts"]);
});
