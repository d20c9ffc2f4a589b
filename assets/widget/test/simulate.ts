// A toy runtime that records what a real one would: enough memory accounting to make payloads that hold together.
import { bit, code, CODES, QUERY } from "./codes.js";
import { draw, pack, type Tables } from "./encode.js";
import type { Block, Cache, Graph, Header, Node, Run, Word } from "../src/wire.js";

export type Kind = "new" | "in place" | "view" | "append" | "control";
export interface Spec {
  name: string; op: string; scope: string; ins: string[]; outs: string[];
  kind?: Kind;
  size: (length: number) => number[]; // shape of every output
  bodies?: { graph: number; times?: number }[]; // the branch or body taken
  captures?: string[];
}
interface Entry { storage: number; gen: number; shape: number[] }

const bytes = (shape: number[]) => 4 * shape.reduce((a, b) => a * b, 1);

function stackOf(scope: string): Block["stack"] {
  const found = /layers\.(\d+)/.exec(scope);
  return found && ["layer", Number(found[1])];
}

export class Simulation {
  strings: string[] = [""];
  graphs: (Graph & { specs: Spec[] })[] = [];
  drawings: Header["drawings"] = [];
  t: Tables = {};
  runs: Run[] = [];
  caches: Cache[] = [];
  story: Word[] = [];
  private seen = new Map([["", 0]]);
  private held = new Map<number, number>(); // storage -> live values
  private live = 0;
  private weight = new Map<string, number>();

  private col(name: string): number[] { return (this.t[name] ??= []); }
  str(text: string): number {
    if (!this.seen.has(text)) this.seen.set(text, this.strings.push(text) - 1);
    return this.seen.get(text)!;
  }

  graph(name: string, kind: Graph["kind"], parent: Graph["parent"], inputs: string[], outputs: string[], specs: Spec[]): number {
    const values: string[] = [];
    const at = new Map<string, number>();
    const value = (v: string) => { if (!v) return -1; if (!at.has(v)) at.set(v, values.push(v) - 1); return at.get(v)!; };
    inputs.forEach(value);
    const nodes = specs.map((s): Node => [s.name, s.op, s.scope, s.ins.map(value), s.outs.map(value), (s.captures ?? []).map(value)]);
    const made = new Set(nodes.flatMap((n) => n[4]));
    const weights = values.map((_, i) => i).filter((i) => !made.has(i) && !inputs.includes(values[i]) && /^w\./.test(values[i]));
    const blocks: Block[] = [];
    nodes.forEach((n, i) => {
      const last = blocks[blocks.length - 1];
      if (last && last.path === n[2]) last.nodes.push(i);
      else blocks.push({ path: n[2], title: n[2].replaceAll("/", " · ").replace("layers.", "layer ") || name, nodes: [i], drawing: -1, alike: 1, stack: stackOf(n[2]) });
    });
    const known = new Map<string, Block[]>();
    for (const b of blocks) {
      const key = b.nodes.map((n) => nodes[n][1] + nodes[n][3].length).join();
      const alike = known.get(key) ?? [];
      known.set(key, [...alike, b]);
      b.drawing = alike[0]?.drawing ?? this.drawings.push(draw(nodes, b.nodes, (v) => !weights.includes(v))) - 1;
    }
    for (const same of known.values()) for (const b of same) b.alike = same.length;
    const layer = specs.map((s) => Number(/layers\.(\d+)/.exec(s.name)?.[1] ?? -1));
    const told = specs.map((s) => s.name.replace(/.*layers\.\d+\//, ""));
    const roles = [...new Set(told)];
    this.graphs.push({
      name, kind, parent, nodes, values, weights, blocks, specs, roles, layer,
      role: told.map((r) => roles.indexOf(r)), names: specs.map((s) => s.name.replace(/.*\//, "")), called: values,
      inputs: inputs.map(value), outputs: outputs.map(value), order: nodes.map((_, i) => i),
    });
    return this.graphs.length - 1;
  }

  storage(capacity: number, origin: string, name: string, born: number): number {
    this.col("storage.capacity").push(capacity);
    this.col("storage.origin").push(code("origin", origin));
    this.col("storage.name").push(this.str(name));
    this.col("storage.born").push(born);
    this.live += capacity;
    return this.col("storage.freed").push(-1) - 1;
  }
  get steps(): number { return this.col("step.node").length; }

  private frame(graph: number, parent: number, node: number, iteration: number, run: number, env: Map<string, Entry>, how: (v: string) => string): number {
    const g = this.graphs[graph];
    const id = this.col("frame.graph").push(graph) - 1;
    this.col("frame.parent").push(parent);
    this.col("frame.node").push(node);
    this.col("frame.iteration").push(iteration);
    this.col("frame.run").push(run);
    const at = parent >= 0 ? `${this.graphs[this.t["frame.graph"][parent]].nodes[node][0]}[${g.kind}${iteration >= 0 ? `:${iteration}` : ""}]` : "main";
    this.col("frame.label").push(this.str(at));
    this.col("frame.bind").push(this.col("bind.value").length);
    g.values.forEach((v, i) => {
      if (g.weights.includes(i) && !this.weight.has(v)) this.weight.set(v, this.storage(4 * 64 * 64, "weights", v, -1));
      const e = g.weights.includes(i) ? { storage: this.weight.get(v)!, gen: 0, shape: [64, 64] } : env.get(v);
      if (!e) return;
      this.col("bind.value").push(i);
      this.col("bind.storage").push(e.storage);
      this.col("bind.gen").push(e.gen);
      this.col("bind.how").push(code("binding", g.weights.includes(i) ? "weight" : how(v)));
      this.col("bind.offset").push(0);
      this.col("bind.bytes").push(bytes(e.shape));
      this.col("bind.info").push(this.str(`float32 [${e.shape}]`));
    });
    return id;
  }

  /** One run of graph 0; `given` are the caller's arrays, `capacity` the rows that an appended cache may hold. */
  run(label: string, given: Map<string, Entry>, length: number, word: string | null, donated: (v: string) => boolean, room: (v: string) => number): Map<string, Entry> {
    const first = this.steps;
    const k = this.runs.length;
    const env = new Map(given);
    const main = this.frame(0, -1, -1, -1, k, env, (v) => (donated(v) ? "donated" : "borrowed"));
    this.body(main, 0, env, length, donated, room);
    const sum = (c: string) => this.t[c].slice(first).reduce((a, b) => a + b, 0);
    this.runs.push({
      first, last: this.steps, from: first, steps: this.steps - first, label, token: word === null ? null : 17 + k, text: word ?? "",
      peak: Math.max(...this.t["step.live"].slice(first)), copied: sum("step.copied"), written: sum("step.written"), allocated: sum("step.alloc"),
    });
    if (word !== null) this.story.push({ text: word, run: k, prompt: false });
    // the caller's arrays go with the run
    for (const { storage } of given.values()) {
      if (this.t["storage.origin"][storage] !== code("origin", "caller") || this.t["storage.freed"][storage] >= 0) continue;
      this.t["storage.freed"][storage] = this.steps - 1;
      this.live -= this.t["storage.capacity"][storage];
      this.col("free.storage").push(storage);
    }
    return env;
  }

  private body(frame: number, graph: number, env: Map<string, Entry>, length: number, owned: (v: string) => boolean, room: (v: string) => number): void {
    const g = this.graphs[graph];
    const uses = new Map<string, number[]>();
    g.specs.forEach((s, i) => [...s.ins, ...(s.captures ?? [])].forEach((v) => uses.set(v, [...(uses.get(v) ?? []), i])));
    const outer = new Set(env.keys());
    const kept = (v: string) => g.outputs.includes(g.values.indexOf(v));
    g.specs.forEach((s, i) => {
      const shape = s.size(length);
      const first = env.get(s.ins[0]);
      const later = (uses.get(s.ins[0]) ?? []).filter((u) => u > i);
      let how = "new", flags = 0, alloc = 0, copied = 0, blockers: [string, string, string][] = [];
      for (const b of s.bodies ?? []) {
        for (let it = 0; it < (b.times ?? 1); it++) {
          const child = this.frame(b.graph, frame, i, b.times ? it : -1, this.runs.length, env, () => "captured by reference");
          this.body(child, b.graph, new Map(env), length, () => false, room);
        }
        flags |= bit("control");
      }
      const step = this.steps;
      this.col("step.out").push(this.col("out.value").length);
      this.col("step.block").push(this.col("block.code").length);
      this.col("step.free").push(this.col("free.storage").length);
      const mine = first && (!outer.has(s.ins[0]) || owned(s.ins[0]));
      const fits = first && (s.kind !== "append" || room(s.ins[0]) * 128 <= this.t["storage.capacity"][first.storage]);
      if ((s.kind === "in place" || s.kind === "append") && first) {
        if (later.length) blockers.push(["NOT_LAST_USE", g.specs[later[0]].name, `${g.specs[later[0]].op} ${g.specs[later[0]].name} still reads ${s.ins[0]}.`]);
        if (!mine) blockers.push(["BORROWED_INPUT", "the caller", `${s.ins[0]} belongs to the caller, who did not donate it.`]);
        if (!fits) blockers.push(["NO_CAPACITY", "axis 2", `${s.ins[0]} has no room left on axis 2.`]);
        how = blockers.length ? "new" : s.kind;
        flags |= bit(blockers.length ? "missed" : "in_place");
      } else if (s.kind === "view" && first) { how = "view"; flags |= bit("view"); }
      if (s.op === "Rotary" && i % 7 === 0) flags |= bit("foreign");
      for (const [j, v] of s.outs.entries()) {
        let e: Entry;
        if (how === "view") e = { ...first!, shape };
        else if (how !== "new") e = { storage: first!.storage, gen: first!.gen + 1, shape };
        else {
          const capacity = s.kind === "append" ? Math.max(bytes(shape), room(v) * 128) : bytes(shape);
          e = { storage: this.storage(capacity, "run", v, step), gen: 0, shape };
          alloc += capacity;
          if (s.kind === "append" && first) copied = bytes(first.shape);
        }
        env.set(v, e);
        this.held.set(e.storage, (this.held.get(e.storage) ?? 0) + 1);
        this.col("out.value").push(g.nodes[i][4][j]);
        this.col("out.storage").push(e.storage);
        this.col("out.gen").push(e.gen);
        this.col("out.how").push(code("how", how));
        this.col("out.offset").push(0);
        this.col("out.bytes").push(bytes(shape));
        this.col("out.info").push(this.str(`float32 [${shape}]`));
      }
      const taken = how === "in place" || how === "append";
      const b0 = first ? `B${first.storage}` : "its input";
      const said = how === "append" ? `appended ${length} row(s) to ${b0} in place; nothing was copied` : how === "in place" ? `overwrote ${b0} in place`
        : how === "view" ? `made a view of ${b0}; no bytes moved` : blockers.length ? `copied: ${blockers[0][2]}` : `wrote ${bytes(shape)} bytes to a new buffer`;
      for (const [code, culprit, message] of blockers) {
        this.col("block.code").push(this.str(code));
        this.col("block.input").push(0);
        this.col("block.culprit").push(this.str(culprit));
        this.col("block.message").push(this.str(message));
        this.col("block.bytes").push(alloc);
      }
      this.col("step.live").push(this.live);
      for (const v of new Set(s.ins)) {
        const e = env.get(v);
        if (!e || kept(v) || outer.has(v) || (uses.get(v) ?? []).some((u) => u > i)) continue;
        const left = (this.held.get(e.storage) ?? 1) - 1;
        this.held.set(e.storage, left);
        if (left > 0 || this.t["storage.freed"][e.storage] >= 0 || this.t["storage.origin"][e.storage] !== code("origin", "run")) continue;
        this.t["storage.freed"][e.storage] = step;
        this.live -= this.t["storage.capacity"][e.storage];
        this.col("free.storage").push(e.storage);
      }
      if (!taken) flags |= bit("run");
      if (copied) flags |= bit("copied");
      if (![...CODES.outcome, "control"].some((name) => flags & bit(name))) flags |= bit("new");
      this.col("step.frame").push(frame);
      this.col("step.node").push(i);
      this.col("step.flags").push(flags);
      this.col("step.taken").push(taken ? 1 : 0);
      this.col("step.alloc").push(alloc);
      this.col("step.copied").push(copied);
      this.col("step.written").push(how === "view" ? 0 : how === "append" ? 128 * length : bytes(shape));
      this.col("step.sentence").push(this.str(`${s.op} ${said}.`));
      this.col("step.note").push(0);
      this.col("step.end").push(this.str(said));
      this.col("step.rule").push(this.str(taken ? "last use, owned by this run, same shape and type" : blockers.length ? "an input that is read again may not be overwritten" : ""));
    });
  }

  /** Takes the last step back, for a trace whose end is open. */
  undo(): void {
    const starts: [string, string[]][] = [
      ["step.out", ["value", "storage", "gen", "how", "offset", "bytes", "info"].map((c) => `out.${c}`)],
      ["step.block", ["code", "input", "culprit", "message", "bytes"].map((c) => `block.${c}`)],
      ["step.free", ["free.storage"]],
    ];
    for (const [offsets, columns] of starts) {
      const from = this.t[offsets].pop()!;
      for (const c of columns) this.col(c).length = Math.min(this.col(c).length, from);
    }
    for (const c of ["frame", "node", "flags", "taken", "live", "alloc", "copied", "written", "sentence", "rule", "note"]) this.t[`step.${c}`].pop();
    const run = this.runs[this.runs.length - 1];
    run.last = this.steps;
    run.steps = run.last - run.first;
  }

  payload(title: string, live: Header["live"] = null): ArrayBuffer {
    for (const c of ["out", "block", "free"]) this.col(`step.${c}`).push((this.t[`${c}.${c === "out" ? "value" : c === "block" ? "code" : "storage"}`] ?? []).length);
    this.col("frame.bind").push(this.col("bind.value").length);
    for (const c of ["block.code", "block.input", "block.culprit", "block.message", "block.bytes", "free.storage", "grow.storage", "grow.step", "grow.bytes"]) this.col(c);
    return pack({
      codes: CODES, query: QUERY, title, policy: { name: "ideal", about: "in place whenever memory safety allows" }, total: this.steps, strings: this.strings,
      graphs: this.graphs.map(({ specs: _, ...g }) => g), drawings: this.drawings, runs: this.runs, story: this.story, caches: this.caches,
      live,
    }, this.t);
  }
}
