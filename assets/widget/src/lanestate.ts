// The state that the panes of lanes share: opened recordings, the shown lane, the compared lanes.
import { ensure } from "./arrays.js";
import { scaleOf } from "./timeline.js";
import { count } from "./format.js";
import { buildIndex, findStep, numberOf, type Trace } from "./replay.js";
import { executed } from "./select.js";
import { piece, read, unpack, type Ints, type Payload } from "./wire.js";
import type { Context } from "./lazypane.js";
import { align, common, decided, groups, partner, unlike, type Group, type LaneInfo, type LaneSource } from "./pair.js";

/** `moved`: steps of `b` that run in another order than in `a`. */
export interface Comparison { a: Trace; b: Trace; to: Ints; back: Ints; groups: Group[]; infos: [LaneInfo, LaneInfo]; moved: Set<number> }

export class LaneState {
  comparison: Comparison | null = null;
  #opened = new Map<number, { raw: unknown; p: Payload }>();
  #pair: [number, number] | null = null;
  #listeners: (() => void)[] = [];
  #turn = 0;
  #drawn: number; // the lane that the page draws
  #raw: unknown; // the page's own payload, as it was last seen

  constructor(private context: Context, readonly source: LaneSource) {
    this.#drawn = this.main;
    this.#raw = source.get("payload");
    source.changed(() => void this.#follow());
    void this.#follow();
  }

  get list(): LaneInfo[] { return this.source.get("lanes") ?? []; }
  get shown(): number { return this.source.get("lane") ?? 0; }
  get main(): number { return this.source.get("main") ?? 0; }
  info(id: number): LaneInfo | undefined { return this.list.find((lane) => lane.id === id); }
  letter(id: number): string { return String.fromCharCode(65 + this.list.findIndex((lane) => lane.id === id)); }
  listen(call: () => void): void { this.#listeners.push(call); }
  #changed(): void { for (const call of this.#listeners) call(); }

  async payload(id: number): Promise<Payload> {
    const packed = id === this.main ? this.source.get("payload") : this.source.get("branches");
    const late = id === this.main ? [this.source.get("edge"), this.source.get("latest")] : [];
    const known = this.#opened.get(id);
    if (known && known.raw === packed && !late.some((bytes) => bytes?.byteLength)) return known.p;
    const raws = await Promise.all((id === this.main ? [packed, ...late] : [piece(packed, String(id))]).map(read));
    const [raw, ...changes] = raws;
    if (!raw) throw new Error("this page came without that lane");
    const p = unpack(raw, ...changes);
    this.#opened.set(id, { raw: packed, p });
    return p;
  }

  /** Show a lane at the present op, or at a step by its number; `model`: as Python does. */
  async show(id: number, step: number | null = null, who: "person" | "model" = "person"): Promise<void> {
    const { store } = this.context;
    const mine = ++this.#turn;
    if (id === this.#drawn && step !== null) return store.go(step);
    const p = await this.payload(id);
    if (mine !== this.#turn) return;
    const { t, cursor, selection } = store;
    const next: Trace = { p, x: buildIndex(p) };
    const at = who === "model" ? this.source.get("cursor") : step ?? numberOf(next, partner(align(t.p, p), cursor).step);
    if (selection && !(selection.kind === "node" && name(t, selection) === name(next, selection))) store.select(null);
    else if (selection?.step !== undefined) store.select({ ...selection, step: undefined });
    this.#drawn = id;
    this.source.show(id, p, at, who);
    this.#changed();
  }

  /** Follow a change of lanes by Python, and drop comparisons with closed lanes. */
  async #follow(): Promise<void> {
    const ids = this.list.map((lane) => lane.id);
    for (const id of this.#opened.keys()) if (!ids.includes(id)) this.#opened.delete(id);
    if (this.#pair && !this.#pair.every((id) => ids.includes(id))) this.stop();
    this.#changed();
    const raw = this.source.get("payload");
    // the page itself draws a new payload of the shown lane
    if (raw !== this.#raw && this.shown === this.main) this.#drawn = this.main;
    this.#raw = raw;
    if (this.shown !== this.#drawn) await this.show(this.shown, null, "model");
    else if (this.#pair) await this.compare(...this.#pair);
  }

  /** Update the comparison after the page has drawn another recording. */
  redrawn(): void {
    const { p } = this.context.store.t;
    const c = this.comparison;
    if (c && this.#pair?.includes(this.#drawn) && c.a.p !== p && c.b.p !== p) void this.compare(...this.#pair);
  }

  async #trace(id: number): Promise<Trace> {
    if (id === this.#drawn) return this.context.store.t;
    const p = await this.payload(id);
    return { p, x: buildIndex(p) };
  }

  async compare(first: number, second: number): Promise<void> {
    const infos = [this.info(first), this.info(second)];
    if (!infos[0] || !infos[1]) return;
    const { store } = this.context;
    this.#pair = [first, second];
    const [a, b] = await Promise.all([this.#trace(first), this.#trace(second)]);
    if (this.#pair[0] !== first || this.#pair[1] !== second) return;
    const [to, back] = [align(a.p, b.p), align(b.p, a.p)];
    const runs = infos[1].of === first ? infos[1].runs : Math.min(a.p.runs.length, b.p.runs.length);
    const order = infos[1].of === first ? infos[1].order : null;
    const moved = new Set((order?.moved ?? []).map((step) => findStep(b, step).step));
    this.comparison = { a, b, to, back, groups: groups(a, b, to, runs), infos: infos as [LaneInfo, LaneInfo], moved };
    store.scale = common(scaleOf(a), scaleOf(b));
    store.versus = {
      names: [this.letter(first), this.letter(second)],
      badge: (t, step) => {
        const side = t.p === a.p ? 0 : t.p === b.p ? 1 : -1;
        if (side < 0) return null;
        const other = (side ? back : to)[step];
        const steps = side ? [other, step] : [step, other];
        if (steps[0] >= 0 && steps[1] >= 0 && !unlike(a, steps[0], b, steps[1])) {
          return moved.has(steps[1]) ? [`step ${count(numberOf(a, steps[0]))}`, `step ${count(numberOf(b, steps[1]))}`] : null;
        }
        return [steps[0] < 0 ? "not run" : decided(a, steps[0]), steps[1] < 0 ? "not run" : decided(b, steps[1])];
      },
    };
    store.relook();
    this.#changed();
  }

  stop(): void {
    this.#pair = this.comparison = null;
    this.context.store.versus = this.context.store.scale = null;
    this.context.store.relook();
    this.#changed();
  }

  /** Go to a step of a compared lane, in the shown lane if it has the step. */
  async go(a: number, b: number): Promise<void> {
    const c = this.comparison;
    if (!c) return;
    const { store } = this.context;
    const side = this.shown === c.infos[1].id ? 1 : 0;
    const steps = [a, b];
    const to = steps[side] >= 0 ? side : 1 - side;
    const t = to ? c.b : c.a;
    const step = steps[to];
    await this.show(c.infos[to].id, numberOf(t, step));
    const place = findStep(store.t, numberOf(t, step)).step;
    if (place >= 0) store.select(executed(store.t, place));
  }
}

function name({ p }: Trace, s: { id: number; graph?: number }): string | undefined { return p.graphs[s.graph ?? 0]?.nodes[s.id]?.[0]; }

const states = new WeakMap<object, LaneState>();
export function stateOf(context: Context): LaneState {
  const { lanes } = context;
  if (!lanes) throw new Error("this page has no lanes");
  return ensure(states, lanes, () => new LaneState(context, lanes));
}
