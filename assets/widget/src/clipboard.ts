// To the clipboard where the page may write there, else to a file.
import { el } from "./dom.js";

export function save(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  const link = el("a", { href, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** What was done, in words; `name`: of the file that it becomes without permission. */
export async function copy(blob: Blob | Promise<Blob>, type: "text/plain" | "image/png", name: string): Promise<string> {
  try {
    await navigator.clipboard.write([new ClipboardItem({ [type]: blob })]);
    return "copied";
  } catch {
    save(await blob, name);
    return `this page may not write to the clipboard: saved as ${name}`;
  }
}
