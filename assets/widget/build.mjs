// Bundles src/*.ts and src/*.css into kvviz/widget/static: an ES module for each of what is loaded apart, and one style sheet.
// `--watch` rebuilds on change; the output is committed, so that nobody needs Node to install kvviz.
import { readFile, stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const LIMIT = 120_000; // bytes: a module is stored once per widget in a saved notebook
const MODULES = { kvviz: "widget", planner: "planner", cache: "caches", lists: "listpanes", query: "query", steps: "table", palette: "palette", map: "mappane", graph: "graph", values: "values", share: "share", address: "address", lanes: "lanewidget", clock: "clockpane", hazards: "hazards", tour: "tour", ask: "askwidget", lesson: "lessoncell", lessonpage: "lessonpage" };

// Sphinx themes and their like style what lies inside an article by selectors of up to nine classes: an id is above all of them.
const apart = (root) => ({
  name: "apart",
  setup: (build) => build.onLoad({ filter: /\.css$/ }, async ({ path }) => ({
    contents: (await readFile(path, "utf8")).replace(/\.kvviz(?![-\w])/g, `${root}:not(#_)`),
    loader: "css",
  })),
});

const options = {
  entryPoints: [
    ...Object.entries(MODULES).map(([out, name]) => ({ in: here(`src/${name}.ts`), out })),
    { in: here("src/style.css"), out: "kvviz" },
  ],
  outdir: here("../../kvviz/widget/static"),
  entryNames: "[name]",
  bundle: true,
  format: "esm",
  target: ["es2022", "chrome114", "firefox115", "safari16.4"],
  charset: "utf8",
  minify: !process.argv.includes("--plain"),
  plugins: [apart(".kvviz")],
  legalComments: "none",
  logLevel: "warning",
};
// A question, and a picture in steps, stand by themselves, many on a page: they have the same colours under classes of their own.
const alone = ["ask", "lesson"].map((name) => ({ ...options, entryPoints: [{ in: here(`src/${name}.css`), out: name }], plugins: [apart(`.kv-${name}`)] }));

if (process.argv.includes("--watch")) {
  for (const one of [options, ...alone]) await (await esbuild.context(one)).watch();
} else {
  for (const one of [options, ...alone]) await esbuild.build(one);
  for (const name of [...Object.keys(MODULES).map((out) => `${out}.js`), "kvviz.css", "ask.css", "lesson.css"]) {
    const { size } = await stat(`${options.outdir}/${name}`);
    console.log(`${name} ${(size / 1000).toFixed(1)} kB`);
    if (size > LIMIT) throw new Error(`${name} is over ${LIMIT / 1000} kB`);
    const text = await readFile(`${options.outdir}/${name}`, "utf8");
    if (/https?:\/\/(?!www\.w3\.org)/.test(text)) throw new Error(`${name} names an outside address`);
  }
}
