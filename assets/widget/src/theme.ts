// Light or dark: what the person set, else what the host says of itself, else how light it is behind the widget.
import { el } from "./dom.js";

export type Theme = "auto" | "light" | "dark";

// Where hosts say it: VS Code, marimo and Sphinx themes, Colab, and classes of many more.
const MARKS = ["data-vscode-theme-kind", "data-theme", "theme", "class"];

/** What the host's own marks say, as a word of CSS would; null where there are none. */
function marked({ body, documentElement }: Document): boolean | null {
  const words = [body, documentElement].flatMap((node) => MARKS.map((name) => node.getAttribute(name))).join(" ");
  // a word as a whole: `dark:bg-black` is a rule of the page, not its state
  const kind = / (?:vscode-|theme-)?(dark|light|high-contrast(?:-light)?)(?:-theme|-mode)? /.exec(` ${words} `)?.[1];
  return kind ? /dark|trast$/.test(kind) : null;
}

/** Whether it is dark behind the widget: all backgrounds around it, painted over each other. */
function darkBehind(root: HTMLElement, prefersDark: boolean): boolean {
  const brush = el("canvas").getContext("2d", { willReadFrequently: true })!;
  const paint = (color: string) => {
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
  };
  const around: string[] = [];
  for (let node = root.parentNode; node; node = node.parentNode ?? (node as ShadowRoot).host) {
    if (node instanceof Element) around.unshift(getComputedStyle(node).backgroundColor);
  }
  // the page itself: nothing shows through but in a frame
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  paint((/dark/.test(scheme) ? prefersDark || !/light/.test(scheme) : prefersDark && self !== top) ? "#000" : "#fff");
  around.forEach(paint);
  const [r, g, b] = brush.getImageData(0, 0, 1, 1).data;
  return 3 * r + 6 * g + b < 1280;
}

/** Sets data-theme on `root`, and data-host where the host's own colours may be used; tells when it changed. */
export function follow(root: HTMLElement, wanted: () => Theme, changed: () => void, signal: AbortSignal): () => void {
  const prefers = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const { body, documentElement } = document;
  let last = "";
  const apply = () => {
    const { jpThemeLight, vscodeThemeKind } = body.dataset;
    const auto = wanted() === "auto";
    const dark = () => (jpThemeLight ? jpThemeLight === "false" : marked(document) ?? darkBehind(root, !!prefers?.matches));
    root.dataset.theme = auto ? (dark() ? "dark" : "light") : wanted();
    // other hosts may well have Jupyter's variables, but of the light theme, as ipywidgets brings them along
    root.dataset.host = auto && jpThemeLight ? "notebook" : auto && vscodeThemeKind ? "vscode" : "page";
    // another theme of the same kind has other colours
    const { color, backgroundColor } = getComputedStyle(root);
    const now = root.dataset.theme + color + backgroundColor;
    if (now !== last) changed();
    last = now;
  };
  prefers?.addEventListener("change", apply, { signal });
  // watching attributes is not listening to the page's events
  const watch = new MutationObserver(apply);
  for (const node of [body, documentElement]) {
    watch.observe(node, { attributes: true, attributeFilter: [...MARKS, "style", "data-jp-theme-light", "data-jp-theme-name"] });
  }
  signal.addEventListener("abort", () => watch.disconnect());
  apply();
  return apply;
}
