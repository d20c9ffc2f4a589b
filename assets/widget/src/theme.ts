// Light or dark: what the person set, else what the notebook uses, else what the system prefers.

export type Theme = "auto" | "light" | "dark";

function ofHost(): "light" | "dark" | null {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  if (vscodeThemeKind) return /dark|high-contrast$/.test(vscodeThemeKind) ? "dark" : "light";
  return null;
}

/** Sets data-theme on `root`, and data-host when the notebook's own colours may be used; tells when it changed. */
export function follow(root: HTMLElement, wanted: () => Theme, changed: () => void, signal: AbortSignal): () => void {
  const prefers = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const apply = () => {
    const host = ofHost();
    const auto = wanted() === "auto";
    const theme = auto ? host ?? (prefers?.matches ? "dark" : "light") : wanted();
    if (root.dataset.theme === theme && root.dataset.host === (auto && host ? "notebook" : "page")) return;
    root.dataset.theme = theme;
    root.dataset.host = auto && host ? "notebook" : "page";
    changed();
  };
  prefers?.addEventListener("change", apply, { signal });
  // watching attributes is not listening to the page's events; another theme of the same kind has other colours
  const watch = new MutationObserver(() => { apply(); changed(); });
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"] });
  signal.addEventListener("abort", () => watch.disconnect());
  apply();
  return apply;
}
