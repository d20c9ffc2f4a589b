// The memories of a device by address at the cursor: which buffers lie there, and how long the largest free part is.
import { clock, type Clock } from "./clockdata.js";
import { el, say } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { Palette } from "./mapcolours.js";
import { lives } from "./mapdata.js";
import type { Trace } from "./replay.js";
import type { Store } from "./store.js";

/** `bytes`: what it takes, which is more than the tensor has where its pages are dealt out to banks. */
export interface Block { address: number; bytes: number; storage: number }
/** Of one arena: what lies there, by address. `room`: bytes of it; `free`: of the largest block that nobody holds. */
export interface Arena { space: string; name: string; room: number; banks: number; blocks: Block[]; held: number; free: number }

/** Arenas of which it is known how large they are, as they are at a step. */
export function arenas(t: Trace, step: number): Arena[] {
  const { p } = t;
  const l = lives(t);
  const found = Array.from(p.arena.space, (space, i): Arena => ({ space: p.strings[space], name: p.strings[p.arena.name[i]], room: p.arena.bytes[i], banks: p.arena.banks[i], blocks: [], held: 0, free: 0 }));
  for (let k = 0; k < l.n; k++) {
    if (l.from[k] > step || l.to[k] <= step) continue;
    const s = l.storage[k];
    const address = p.storage.address[s] ?? -1;
    const arena = address < 0 ? undefined : found.find((one) => one.space === p.strings[p.storage.space[s]] && one.name === p.strings[p.storage.arena[s]]);
    arena?.blocks.push({ address, bytes: p.storage.taken[s] ?? l.bytes[k], storage: s });
  }
  for (const one of found) {
    one.blocks.sort((a, b) => a.address - b.address);
    let end = 0;
    for (const block of one.blocks) {
      one.held += block.bytes;
      one.free = Math.max(one.free, block.address - end);
      end = Math.max(end, block.address + block.bytes);
    }
    one.free = Math.max(one.free, one.room - end);
  }
  return found;
}

export class BanksCard {
  readonly root = el("section.kv-clock-banks", { "aria-label": "Memory by address", "data-kv": "banks" });
  #rows: { canvas: HTMLCanvasElement; text: HTMLElement }[] = [];

  update(store: Store, c: Clock | null): void {
    const all = c && clock(store.t) ? arenas(store.t, Math.max(0, store.cursor)) : [];
    this.root.hidden = !all.length;
    if (this.#rows.length !== all.length) {
      this.#rows = all.map(() => ({ canvas: el("canvas", { "aria-hidden": "true" }), text: el("p") }));
      this.root.replaceChildren(el("h4", {}, "By address, now"), ...this.#rows.flatMap(({ canvas, text }) => [text, canvas]));
    }
    all.forEach((arena, i) => {
      const { canvas, text } = this.#rows[i];
      const banks = arena.banks > 1 ? `, the same in each of ${count(arena.banks)} banks` : "";
      say(text, `${arena.name}: ${plural(arena.blocks.length, "buffer")} of ${bytes(arena.held)} in ${bytes(arena.room)}${banks}; largest contiguous free part ${bytes(arena.free)}`);
      const end = arena.blocks.reduce((most, block) => Math.max(most, block.address + block.bytes), 0);
      paint(canvas, arena, Math.min(arena.room, end * 1.15 || arena.room), store);
    });
  }
}

/** Blocks up to `top`: of a memory that is nearly empty the rest is not drawn. */
function paint(canvas: HTMLCanvasElement, arena: Arena, top: number, store: Store): void {
  const width = canvas.clientWidth;
  if (!width) return;
  const ratio = globalThis.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(14 * ratio)];
  const brush = canvas.getContext("2d");
  if (!brush) return;
  const palette = new Palette(canvas);
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  brush.fillStyle = palette.token("--kv-ground");
  brush.fillRect(0, 0, width, 14);
  const { selection, now } = store;
  for (const block of arena.blocks) {
    const x = (block.address / top) * width;
    const lit = (selection?.kind === "storage" && selection.id === block.storage) || now.lit.storages.has(block.storage);
    brush.fillStyle = lit ? palette.token("--kv-accent") : palette.mixed("--kv-view", 0.4);
    brush.fillRect(x, 0, Math.max(1, (block.bytes / top) * width - (block.bytes * width > 3 * top ? 0.7 : 0)), 14);
  }
}
