// The picture of a hidden pair, from the header's table of shapes: on the page in its colours, and as a file of its own.
import { svg } from "./dom.js";
import { pairState, pairText } from "./hiddenpairs.js";
import type { Payload } from "./wire.js";

function shapes(p: Payload, pair: number): SVGElement[] {
  const state = pairState(p, pair);
  return p.hazards!.picture.shapes.filter(([, , , when]) => !when || when === state).map(([tag, attributes, field]) => {
    const content = field.startsWith("=") ? field.slice(1) : field && pairText(p, pair, field);
    return tag === "path" && field ? svg("path", { ...attributes, d: content }) : svg(tag, attributes, ...(content ? [content] : []));
  });
}

/** As part of the page, which has its colours, and above it headline and sentence. */
export function picture(p: Payload, pair: number): SVGElement {
  const { size: [w, h], head } = p.hazards!.picture;
  return svg("svg", { viewBox: `0 ${head} ${w} ${h - head}`, class: "kv-pair-picture", role: "img", "aria-label": pairText(p, pair, "headline") }, ...shapes(p, pair));
}

/** As a document; `theme`: the one ground that it is for, else it follows the reader's. */
export function pictureText(p: Payload, pair: number, theme?: "light" | "dark"): string {
  const { size: [width, height], styles: [light, dark], font } = p.hazards!.picture;
  const style = theme ? (theme === "dark" ? dark : light) : `${light}@media (prefers-color-scheme:dark){${dark}}`;
  const out = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": font, role: "img" },
    svg("title", {}, pairText(p, pair, "headline")), svg("style", {}, style), ...shapes(p, pair));
  return new XMLSerializer().serializeToString(out);
}
