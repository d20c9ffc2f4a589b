// What else a report found: caches, storages held too long, and whose bytes made the peak.
import { button, el } from "./dom.js";
import { fixBox } from "./fixbox.js";
import { bytes, count } from "./format.js";
import type { Context } from "./lazypane.js";

const NAMES = 3; // of a group at the peak

export function findings({ store, ask }: Context, signal: AbortSignal): Node[] {
  const r = store.report;
  if (!r) return [];
  const parts: Node[] = [];
  if (r.total > r.missed.length) {
    parts.push(el("p.kv-soft", {}, `Fixes are shown for the worst op of each kind, and for the first ${count(r.missed.length)} of ${count(r.total)} nodes. `,
      button("More", "Diagnose more of them", "more-missed", () => void ask({ do: "report", from: r.missed.length }), signal)));
  }
  if (r.caches.length) parts.push(el("h4", {}, "Caches"));
  r.caches.forEach(({ text, fix }, cache) => {
    parts.push(el("p", { "data-kv": "cache-finding" }, text));
    if (fix) parts.push(fixBox(fix, { cache }, store, ask, signal));
  });
  if (r.held.length) {
    parts.push(el("h4", {}, "Held too long"), el("ul.kv-held", {}, ...r.held.map((h) => el("li", { "data-kv": "held-row", "data-id": h.storage, "data-step": h.last, title: `${h.last < 0 ? "Not used by any step" : `Last used by step ${h.last}`}, ${h.freed < 0 ? "never freed" : `freed by step ${h.freed}`}` },
      el("div", {}, el("code", {}, `B${h.storage}`), el("b", {}, h.name), (h.layers ?? 1) > 1 ? el("span.kv-soft", {}, ` × ${count(h.layers!)} layers`) : "", el("span.kv-num", { title: h.times > 1 ? `${bytes(h.bytes)} of it in this one` : "" }, bytes(h.all ?? h.bytes))), el("p.kv-soft", {}, h.reason + (h.times > 1 ? `, and ${count(h.times - 1)} more like it` : ""))))));
  }
  if (r.held_rest) parts.push(el("p.kv-soft", {}, `${r.held.length ? "And" : "Held too long:"} ${r.held_rest}.`));
  parts.push(el("h4", {}, `At the peak: ${bytes(r.peak.bytes)}${r.peak.step === null ? "" : `, step ${count(r.peak.step)}`}`), el("ul.kv-shares", {}, ...r.peak.groups.map((g) => {
    const share = el("i");
    share.style.width = `${(100 * g.bytes) / Math.max(1, r.peak.bytes)}%`;
    const more = g.count - Math.min(g.names.length, NAMES);
    return el("li", {}, el("b", {}, g.group), el("span.kv-num", {}, bytes(g.bytes)), el("span.kv-share", {}, share),
      el("span.kv-soft", { title: g.names.join(", ") }, `${g.names.slice(0, NAMES).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`));
  })));
  return parts;
}
