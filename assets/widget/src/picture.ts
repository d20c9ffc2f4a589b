// A picture of the page without a server: the whole widget inside an SVG, cropped to a pane, and that SVG as PNG, including
// style sheet, colours and canvases. Copied if the clipboard is allowed, else saved.
import { el, svg } from "./dom.js";

const SCALE = 2;
const NO_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g;

/** The widget's rules, wherever the host put its style sheet. */
function sheet(root: HTMLElement): string {
  const home = root.getRootNode() as Document | ShadowRoot;
  const texts: string[] = [];
  for (const list of new Set([...home.styleSheets, ...document.styleSheets])) {
    // the source text: the parsed rules lose `font` with a variable
    const own = list.ownerNode instanceof HTMLStyleElement ? list.ownerNode.textContent ?? "" : "";
    if (own) {
      if (own.includes(".kvviz")) texts.push(own);
      continue;
    }
    let rules: CSSRuleList;
    try {
      rules = list.cssRules;
    } catch {
      continue; // of another origin
    }
    for (const rule of rules) if (rule.cssText.includes(".kvviz")) texts.push(rule.cssText);
  }
  return texts.join("\n");
}

/** Copy what a clone lacks: canvases, scroll positions, and input values. */
function carry(from: Element, to: Element): void {
  const pairs: [Element, Element][] = [[from, to]];
  const [a, b] = [from.querySelectorAll("*"), to.querySelectorAll("*")];
  a.forEach((node, i) => pairs.push([node, b[i]]));
  for (const [node, copy] of pairs) {
    if (node.scrollTop || node.scrollLeft) {
      for (const child of copy.children as unknown as HTMLElement[]) child.style.transform = `translate(${-node.scrollLeft}px, ${-node.scrollTop}px)`;
    }
    if (node instanceof HTMLInputElement) copy.setAttribute(node.type === "checkbox" ? "data-checked" : "value", node.value);
    if (node instanceof HTMLSelectElement) copy.querySelectorAll("option").forEach((option, i) => option.toggleAttribute("selected", i === node.selectedIndex));
  }
  for (const [node, copy] of pairs) {
    if (!(node instanceof HTMLCanvasElement)) continue;
    const { width, height } = node.getBoundingClientRect();
    const image = el("img", { src: node.width && node.height ? node.toDataURL() : "", alt: "", class: copy.getAttribute("class"), style: copy.getAttribute("style") });
    image.style.width = `${width}px`;
    image.style.height = `${height}px`;
    if (getComputedStyle(node).position === "absolute") Object.assign(image.style, { position: "absolute", left: `${node.offsetLeft}px`, top: `${node.offsetTop}px` });
    copy.replaceWith(image);
  }
}

/** `part`: the visible part; `root`: the element with the colours. */
export function toSvg(root: HTMLElement, part: HTMLElement): string {
  const whole = root.getBoundingClientRect();
  const cut = part.getBoundingClientRect();
  const copy = root.cloneNode(true) as HTMLElement;
  carry(root, copy);
  for (const gone of copy.querySelectorAll(".kv-pop, script, [data-kv-still]")) gone.remove();
  const colours = getComputedStyle(root);
  for (const list of [...colours]) if (list.startsWith("--kv-")) copy.style.setProperty(list, colours.getPropertyValue(list));
  Object.assign(copy.style, { width: `${whole.width}px`, height: `${whole.height}px`, margin: "0", contentVisibility: "visible" });
  const [width, height] = [Math.ceil(cut.width), Math.ceil(cut.height)];
  const body = el("div", { xmlns: "http://www.w3.org/1999/xhtml" }, el("style", {}, sheet(root)), copy);
  const out = svg("svg", { width, height, viewBox: `${cut.left - whole.left} ${cut.top - whole.top} ${width} ${height}` },
    svg("foreignObject", { x: 0, y: 0, width: whole.width, height: whole.height }, body));
  return new XMLSerializer().serializeToString(out).replace(NO_XML, "");
}

export async function toPng(text: string): Promise<Blob> {
  const image = new Image();
  // a blob would taint the canvas
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = el("canvas", { width: image.naturalWidth * SCALE, height: image.naturalHeight * SCALE });
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("this browser could not create the picture")))));
}

export function save(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  const link = el("a", { href, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/** Returns what was done; `name`: of the file if the clipboard is not allowed. */
export async function copy(blob: Blob | Promise<Blob>, type: "text/plain" | "image/png", name: string): Promise<string> {
  try {
    await navigator.clipboard.write([new ClipboardItem({ [type]: blob })]);
    return "copied";
  } catch {
    save(await blob, name);
    return `this page may not write to the clipboard: saved as ${name}`;
  }
}
