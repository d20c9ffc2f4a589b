// A table that is seen, as GitHub Markdown: the rows that are in the page.

const cell = (text: string) => text.replace(/\s+/g, " ").trim().replace(/[\\|]/g, "\\$&").replace(/</g, "&lt;");

/** The first table of a pane that is in sight; null where there is none. */
export function tableText(pane: HTMLElement): string | null {
  const table = [...pane.querySelectorAll("table")].find((one) => one.offsetHeight > 0);
  const rows = [...(table?.rows ?? [])].filter((row) => !row.classList.contains("kv-gap") && row.offsetHeight > 0)
    .map((row) => [...row.cells].filter((one) => one.offsetWidth > 0).map((one) => cell(one.innerText)));
  if (rows.length < 2) return null;
  const width = Math.max(...rows.map((row) => row.length));
  const lines = rows.map((row) => `| ${[...row, ...Array<string>(width - row.length).fill("")].join(" | ")} |`);
  return [lines[0], `|${" --- |".repeat(width)}`, ...lines.slice(1), ""].join("\n");
}
