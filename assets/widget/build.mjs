// Bundles src and lessons into kvviz/widget/static: a script for each page, one for each part that is loaded on demand, and one
// style sheet. `--watch` rebuilds on change; the output is committed, so that nobody needs Node to install kvviz.
import { readFile, stat, watch, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const SRC = fileURLToPath(new URL("src", import.meta.url));
const OUT = fileURLToPath(new URL("../../kvviz/widget/static", import.meta.url));
const LIMIT = 120_000; // bytes: a page's script is stored once per widget in a saved notebook
const PAGES = { kvviz: "widget", planner: "planner", ask: "../lessons/askwidget", lesson: "../lessons/lesson", lessonpage: "../lessons/lessonpage", start: "filestart" };
const PARTS = { cache: "cacheview", lists: "listpanes", query: "query", steps: "table", palette: "palette", map: "mappane", graph: "graph", values: "values", share: "share", address: "address", lanes: "lanewidget", clock: "clockpane", hazards: "hazards", tour: "tour" };

const IMPORT = /^import (?:\{([^}]*)\} from |[^"]* from )?"\.\/(\w+)\.js"/gm;

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

/** Names that a file and those under it import as values, by file; `known`: files that are not looked into. */
async function imports(entry, known = new Map()) {
  const all = new Map([[entry, new Set()]]);
  for (const file of all.keys()) {
    if (known.has(file)) continue;
    const { code } = await esbuild.transform(await readFile(join(SRC, `${file}.ts`), "utf8"), { loader: "ts", target: "es2022" });
    for (const [, names, from] of code.matchAll(IMPORT)) {
      if (!all.has(from)) all.set(from, new Set());
      for (const name of names?.split(",") ?? [null]) all.get(from).add(name && name.trim().split(" as ")[0]);
    }
  }
  return all;
}

/** What the page shares: `shared` becomes an object of these. */
const sharing = (names) => ({
  name: "shared",
  setup: (build) => {
    build.onResolve({ filter: /^shared$/ }, ({ path }) => ({ path, namespace: path }));
    build.onLoad({ filter: /./, namespace: "shared" }, () => ({
      contents: `FILE("shared");${names.map(([file, name], i) => `import { ${name} as shared${i} } from "./${file}.js";`).join("")}
        export const shared = { ${names.map((_, i) => `shared${i}`).join(", ")} };`,
      resolveDir: SRC,
    }));
    // a call that nobody can do without says where a file begins
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => ({
      contents: `FILE("${basename(path, ".ts")}");${await readFile(path, "utf8")}`, loader: "ts",
    }));
  },
});

/**
 * The page and its parts, cut from one bundle, so that everything has the same short name in all of them, which packs best. A part is a
 * function of what it shares with the page and of a callback that takes its default export; see src/modules.ts.
 */
async function debuggerAndParts() {
  const own = await imports(PAGES.kvviz);
  const parts = Object.entries(PARTS);
  const under = await Promise.all(parts.map(([, entry]) => imports(entry, own)));
  const needs = under.map((found) => [...found].flatMap(([file, names]) => (own.has(file) ? [...names].map((name) => [file, name]) : [])));
  const names = [...new Map(needs.flat().map((each) => [each.join(), each])).values()];
  const entries = [PAGES.kvviz, ...parts.map(([, entry]) => entry)];
  const { outputFiles: [{ text }] } = await esbuild.build({
    ...options,
    write: false,
    stdin: { contents: `${entries.map((entry, i) => `import entry${i} from "./${entry}.js";`).join("")}FILE("");use(${entries.map((_, i) => `entry${i}`)});`, resolveDir: SRC },
    plugins: [sharing(names)],
  });
  const [before, ...pieces] = text.split(/FILE\("(\w*)"\)[,;]\n?/);
  const files = Object.fromEntries(pieces.flatMap((name, i) => (i % 2 ? [] : [[name, pieces[i + 1]]])));
  const defaults = /use\(([^)]*)\)/.exec(files[""])[1].split(/, ?/);
  const object = files.shared.match(/\{([^}]*)\}/)[1].split(",").map((pair) => pair.split(":").pop().trim());
  files.shared = files.shared.replace(/\{[^}]*\}/, `{${[...new Set(object)]}}`);
  const short = new Map(names.map((each, i) => [each.join(), object[i]]));
  const textOf = (some) => Object.keys(files).filter((file) => some.has(file)).map((file) => files[file]).join("");
  own.set("shared");
  await writeFile(join(OUT, "kvviz.js"), `${before}${textOf(own)}export{${defaults[0]} as default};\n`);
  await Promise.all(parts.map(([out], i) => {
    const given = [...new Set(needs[i].map((each) => short.get(each.join())))];
    const mine = new Map([...under[i]].filter(([file]) => !own.has(file)));
    return writeFile(join(OUT, `${out}.js`), `export default ({${given}},done)=>{${textOf(mine)}done(${defaults[i + 1]})};\n`);
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
  await page("start", { format: "iife" });
  await sheet("style.css", "kvviz", ".kvviz");
  // A question, and a picture in steps, stand by themselves, many on a page: they have the same colours under classes of their own.
  for (const name of ["ask", "lesson"]) await sheet(`../lessons/${name}.css`, name, `.kv-${name}`);
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
  const follow = async (folder) => {
    for await (const _ of watch(folder)) await build().catch((error) => console.error(String(error)));
  };
  await Promise.all([SRC, join(SRC, "../lessons")].map(follow));
}
