// Bundles src/*.ts and src/*.css into kvviz/widget/static: a script for each page, one for each part that is loaded on demand, and one
// style sheet. `--watch` rebuilds on change; the output is committed, so that nobody needs Node to install kvviz.
import { readFile, stat, watch, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const SRC = fileURLToPath(new URL("src", import.meta.url));
const OUT = fileURLToPath(new URL("../../kvviz/widget/static", import.meta.url));
const LIMIT = 120_000; // bytes: a page's script is stored once per widget in a saved notebook
const PAGES = { kvviz: "widget", planner: "planner", ask: "askwidget", lesson: "lessoncell", lessonpage: "lessonpage", unpack: "unpack" };
const PARTS = { cache: "caches", lists: "listpanes", query: "query", steps: "table", palette: "palette", map: "mappane", graph: "graph", values: "values", share: "share", address: "address", lanes: "lanewidget", clock: "clockpane", hazards: "hazards", tour: "tour" };

const IMPORT = /import (?:\{([^}]*)\}|\w+) from "\.\/(\w+)\.js";?\n?/g;

const options = {
  outdir: OUT,
  bundle: true,
  format: "esm",
  target: ["es2022", "chrome114", "firefox115", "safari16.4"],
  charset: "utf8",
  minify: !process.argv.includes("--plain"),
  logLevel: "warning",
};

// Sphinx themes and their like style what lies inside an article by selectors of up to nine classes: an id is above all of them.
const apart = (root) => ({
  name: "apart",
  setup: (build) => build.onLoad({ filter: /\.css$/ }, async ({ path }) => ({
    contents: (await readFile(path, "utf8")).replace(/\.kvviz(?![-\w])/g, `${root}:not(#_)`),
    loader: "css",
  })),
});

/** A file as JavaScript, and what it imports of others: `[file, [name there, name here]…]`. */
async function read(name) {
  const { code } = await esbuild.transform(await readFile(join(SRC, name), "utf8"), { loader: "ts", target: "es2022" });
  const found = [...code.matchAll(IMPORT)].map(([, names = "", from]) => (
    [`${from}.ts`, names.split(",").filter((each) => each.trim()).map((each) => {
      const [there, here = there] = each.trim().split(" as ");
      return [there, here];
    })]
  ));
  return { code, found };
}

/** Files of which the page itself uses more than half. */
async function shared() {
  const { metafile } = await page("kvviz", { metafile: true, write: false, external: ["shared"] });
  const [{ inputs }] = Object.values(metafile.outputs);
  const used = Object.entries(inputs).map(async ([path, { bytesInOutput }]) => {
    const name = basename(path);
    const { code } = await esbuild.transform(await readFile(join(SRC, name), "utf8"), { loader: "ts", minify: true, format: "esm" });
    return bytesInOutput > code.length / 2 ? [name] : [];
  });
  return new Set((await Promise.all(used)).flat());
}

/** What `entry` and the files under it need of the files in `known`: `"file name"`. */
async function needs(entry, known) {
  const files = new Set([entry]);
  const all = new Set();
  for (const file of files) {
    for (const [from, names] of (await read(file)).found) {
      if (!known.has(from)) files.add(from);
      else for (const [there] of names) all.add(`${from} ${there}`);
    }
  }
  return all;
}

/**
 * The page and its parts. What both need is in the page alone: a part is a function of it (`shared`) and of a callback that takes the
 * part's default export; see src/modules.ts. It has the same short names in all of them, which packs best.
 */
async function debuggerAndParts() {
  const known = await shared();
  const needed = await Promise.all(Object.values(PARTS).map((entry) => needs(`${entry}.ts`, known)));
  const all = [...new Set(needed.flatMap((names) => [...names]))];
  const imported = all.map((each, i) => `import { ${each.split(" ")[1]} as shared${i} } from "./${each.split(".")[0]}.js";`);
  const object = `export const shared = { ${all.map((_, i) => `shared${i}`).join(", ")} };`;
  await page("kvviz", {
    plugins: [{
      name: "shared",
      setup: (build) => {
        build.onResolve({ filter: /^shared$/ }, ({ path }) => ({ path, namespace: path }));
        build.onLoad({ filter: /./, namespace: "shared" }, () => ({ contents: [...imported, object].join("\n"), resolveDir: SRC }));
      },
    }],
  });
  const short = new Map();
  const text = await readFile(join(OUT, "kvviz.js"), "utf8");
  const given = new RegExp(`\\{\\s*${all.map((_, i) => `shared${i}(?:: ?([\\w$]+))?`).join(",\\s*")}\\s*\\}`);
  await writeFile(join(OUT, "kvviz.js"), text.replace(given, (_, ...found) => {
    all.forEach((each, i) => short.set(each, found[i] ?? `shared${i}`));
    return `{${[...new Set(short.values())].join(",")}}`;
  }));
  if (short.size < all.length) throw new Error("what the page shares with its parts is not found in its script");

  // each has a name of its own until locals have theirs
  const free = {
    name: "free",
    setup: (build) => build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const { code, found } = await read(basename(path));
      const define = Object.fromEntries(found.filter(([from]) => known.has(from)).flatMap(
        ([from, names]) => names.map(([there, here]) => [here, `shared${all.indexOf(`${from} ${there}`)}`]),
      ));
      const own = code.replace(IMPORT, (text, _, from) => (known.has(`${from}.ts`) ? "" : text));
      return { contents: (await esbuild.transform(own, { define })).code };
    }),
  };
  await Promise.all(Object.entries(PARTS).map(async ([out, entry], i) => {
    const names = [...new Set([...needed[i]].map((each) => short.get(each)))].join(",");
    await esbuild.build({
      ...options,
      // what stands here is no name of a local
      stdin: { contents: `import part from "./${entry}.js"; done(part,${names});`, resolveDir: SRC, sourcefile: out },
      entryNames: out,
      banner: { js: `export default ({${names}},done)=>{` },
      footer: { js: "};" },
      plugins: [free],
    });
    const text = await readFile(join(OUT, `${out}.js`), "utf8");
    const named = text.replace(/\bshared(\d+)\b/g, (_, i) => short.get(all[i])).replace(/\bdone\(([\w$]+),[^)]*\)/, "done($1)");
    await writeFile(join(OUT, `${out}.js`), named);
  }));
}

function page(name, more = {}) {
  return esbuild.build({ ...options, entryPoints: [{ in: join(SRC, `${PAGES[name]}.ts`), out: name }], ...more });
}

/** `root`: the class that all rules start at. Comments with `!` mark the rules of a part; see kvviz/view/page_modules.py. */
function sheet(entry, out, root) {
  return esbuild.build({ ...options, entryPoints: [{ in: join(SRC, entry), out }], legalComments: "inline", plugins: [apart(root)] });
}

async function build() {
  await debuggerAndParts();
  for (const name of ["planner", "ask", "lesson", "lessonpage"]) await page(name);
  await page("unpack", { format: "iife", globalName: "unpack", footer: { js: "unpack = unpack.default;" } });
  await sheet("style.css", "kvviz", ".kvviz");
  // A question, and a picture in steps, stand by themselves, many on a page: they have the same colours under classes of their own.
  for (const name of ["ask", "lesson"]) await sheet(`${name}.css`, name, `.kv-${name}`);
  for (const name of [...Object.keys({ ...PAGES, ...PARTS }).map((out) => `${out}.js`), "kvviz.css", "ask.css", "lesson.css"]) {
    const { size } = await stat(join(OUT, name));
    console.log(`${name} ${(size / 1000).toFixed(1)} kB`);
    if (size > LIMIT) throw new Error(`${name} is over ${LIMIT / 1000} kB`);
    const text = await readFile(join(OUT, name), "utf8");
    if (/https?:\/\/(?!www\.w3\.org)/.test(text)) throw new Error(`${name} names an outside address`);
  }
}

await build();
if (process.argv.includes("--watch")) {
  for await (const _ of watch(SRC)) await build().catch((error) => console.error(String(error)));
}
