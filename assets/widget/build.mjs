// Bundles src/*.ts and src/*.css into kvviz/widget/static: a script for each page, one for each part that is loaded on demand, and one
// style sheet. `--watch` rebuilds on change; the output is committed, so that nobody needs Node to install kvviz.
import { readFile, stat, watch } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const SRC = fileURLToPath(new URL("src", import.meta.url));
const OUT = fileURLToPath(new URL("../../kvviz/widget/static", import.meta.url));
const LIMIT = 120_000; // bytes: a page's script is stored once per widget in a saved notebook
const PAGES = { kvviz: "widget", planner: "planner", ask: "askwidget", lesson: "lessoncell", lessonpage: "lessonpage", unpack: "unpack" };
const PARTS = { cache: "caches", lists: "listpanes", query: "query", steps: "table", palette: "palette", map: "mappane", graph: "graph", values: "values", share: "share", address: "address", lanes: "lanewidget", clock: "clockpane", hazards: "hazards", tour: "tour" };

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

/** Imports of values: names by file. */
async function imports(file) {
  const { code } = await esbuild.transform(await readFile(join(SRC, file), "utf8"), { loader: "ts", target: "es2022" });
  return [...code.matchAll(/import (?:\{([^}]*)\}|\w+) from "\.\/(\w+)\.js"/g)].map(([, names = "", from]) => (
    [`${from}.ts`, names.split(",").map((name) => name.trim().split(" as ")[0]).filter(Boolean)]
  ));
}

/** Names that `entry` and the files under it need of the files in `known`, by file. */
async function namesOf(entry, known) {
  const files = new Set([entry]);
  const names = new Map();
  for (const file of files) {
    for (const [from, some] of await imports(file)) {
      if (!known.has(from)) files.add(from);
      else names.set(from, new Set([...(names.get(from) ?? []), ...some]));
    }
  }
  return names;
}

/** Other contents for some files. */
const instead = (contents) => ({
  name: "instead",
  setup: (build) => {
    build.onResolve({ filter: /^(\.\/\w+\.js|shared)$/ }, ({ path }) => {
      const name = basename(path, ".js");
      return name in contents ? { path: name, namespace: "instead" } : null;
    });
    build.onLoad({ filter: /./, namespace: "instead" }, ({ path }) => ({ contents: contents[path], resolveDir: SRC }));
  },
});

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

/**
 * The page and its parts. What both need is in the page alone: a part is a function of it (`shared`) and of a callback that takes the
 * part's default export; see src/modules.ts.
 */
async function debuggerAndParts() {
  const known = await shared();
  const given = new Map(); // [file, its name there] by name in `shared`
  const key = (file, name) => ((given.get(name) ?? [file])[0] === file ? name : `${name}_${basename(file, ".ts")}`);
  for (const [out, entry] of Object.entries(PARTS)) {
    const names = await namesOf(`${entry}.ts`, known);
    const taken = (file, name) => {
      given.set(key(file, name), [file, name]);
      return `${key(file, name)}: ${name}`;
    };
    const text = (names) => `export const { ${names.join(", ")} } = shared;`;
    const contents = [...names].map(([file, some]) => [basename(file, ".ts"), text([...some].map((name) => taken(file, name)))]);
    await esbuild.build({
      ...options,
      stdin: { contents: `import part from "./${entry}.js"; done(part);`, resolveDir: SRC, sourcefile: out },
      entryNames: out,
      banner: { js: "export default (shared, done) => {" },
      footer: { js: "};" },
      plugins: [instead(Object.fromEntries(contents))],
    });
  }
  const all = [...given].map(([as, [file, name]]) => `import { ${name} as ${as} } from "./${basename(file, ".ts")}.js";`);
  const text = `${all.join("\n")}\nexport const shared = { ${[...given.keys()].join(", ")} };`;
  await page("kvviz", { plugins: [instead({ shared: text })] });
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
