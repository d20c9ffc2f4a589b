// Payloads that look like real ones: a small llama decode, a model with an If and a Loop, and a graph of 2,000 nodes.
import { Simulation, type Kind, type Spec } from "./simulate.js";

type Sized = (length: number) => number[];
function node(scope: string, op: string, name: string, ins: string[], out: string, kind: Kind, size: Sized): Spec {
  return { name: `/${scope}/${name}`, op, scope, ins, outs: [out], kind, size };
}

function layer(i: number, x: string, past: () => number): { specs: Spec[]; out: string } {
  const a = `layers.${i}/self_attn`, m = `layers.${i}/mlp`, v = (s: string) => `l${i}.${s}`;
  const hid: Sized = (n) => [1, n, 64], kv: Sized = (n) => [1, n, 32];
  const q4: Sized = (n) => [1, 4, n, 16], k4: Sized = (n) => [1, 2, n, 16];
  const all: Sized = (n) => [1, 2, past() + n, 16], score: Sized = (n) => [1, 4, n, past() + n];
  const specs = [
    node(a, "RMSNormalization", "input_norm", [x, "w.norm"], v("n"), "new", hid),
    node(a, "MatMul", "q_proj", [v("n"), `w.${i}.q`], v("q"), "new", hid),
    node(a, "MatMul", "k_proj", [v("n"), `w.${i}.k`], v("k"), "new", kv),
    node(a, "MatMul", "v_proj", [v("n"), `w.${i}.v`], v("v"), "new", kv),
    node(a, "Reshape", "q_heads", [v("q")], v("q4"), "view", q4),
    node(a, "Reshape", "k_heads", [v("k")], v("k4"), "view", k4),
    node(a, "Reshape", "v_heads", [v("v")], v("v4"), "view", k4),
    node(a, "Rotary", "q_rope", [v("q4"), "cos"], v("qr"), "in place", q4),
    node(a, "Rotary", "k_rope", [v("k4"), "cos"], v("kr"), "in place", k4),
    node(a, "Concat", "k_cache", [`past_key_values.${i}.key`, v("kr")], `present.${i}.key`, "append", all),
    node(a, "Concat", "v_cache", [`past_key_values.${i}.value`, v("v4")], `present.${i}.value`, "append", all),
    node(a, "MatMul", "scores", [v("qr"), `present.${i}.key`], v("s"), "new", score),
    node(a, "Add", "mask", [v("s"), "mask"], v("sm"), "in place", score),
    node(a, "Softmax", "softmax", [v("sm")], v("p"), "in place", score),
    node(a, "MatMul", "context", [v("p"), `present.${i}.value`], v("c"), "new", q4),
    node(a, "Transpose", "merge", [v("c")], v("ct"), "new", (n) => [1, n, 4, 16]),
    node(a, "Reshape", "flat", [v("ct")], v("cf"), "view", hid),
    node(a, "MatMul", "o_proj", [v("cf"), `w.${i}.o`], v("o"), "new", hid),
    node(a, "Add", "residual", [x, v("o")], v("x1"), "in place", hid),
    node(m, "RMSNormalization", "post_norm", [v("x1"), "w.norm"], v("n2"), "new", hid),
    node(m, "MatMul", "gate_proj", [v("n2"), `w.${i}.g`], v("g"), "new", (n) => [1, n, 176]),
    node(m, "MatMul", "up_proj", [v("n2"), `w.${i}.u`], v("u"), "new", (n) => [1, n, 176]),
    node(m, "Sigmoid", "act", [v("g")], v("sg"), "in place", (n) => [1, n, 176]),
    node(m, "Mul", "silu", [v("g"), v("sg")], v("si"), "in place", (n) => [1, n, 176]),
    node(m, "Mul", "gated", [v("si"), v("u")], v("h"), "in place", (n) => [1, n, 176]),
    node(m, "MatMul", "down_proj", [v("h"), `w.${i}.d`], v("d"), "new", hid),
    node(m, "Add", "residual", [v("x1"), v("d")], v("x2"), "in place", hid),
  ];
  return { specs, out: v("x2") };
}

export const PROMPT = "once upon a time there was a brave owl named rosa .".split(" ");
const TOLD = "rosa lived in a castle by the sea with her old friend the fox and they told stories until the moon was high".split(" ");

export function llama(layers = 2, runs = 8): ArrayBuffer {
  const sim = new Simulation();
  let past = 0;
  const specs: Spec[] = [
    node("embed", "Gather", "tokens", ["w.embed", "input_ids"], "x0", "new", (n) => [1, n, 64]),
    node("embed", "Cos", "cos", ["position_ids"], "cos", "new", (n) => [1, n, 16]),
    node("embed", "Where", "mask", ["attention_mask"], "mask", "new", (n) => [1, 1, n, past + n]),
  ];
  let x = "x0";
  const names: [string, string][] = [];
  for (let i = 0; i < layers; i++) {
    const l = layer(i, x, () => past);
    specs.push(...l.specs);
    x = l.out;
    for (const part of ["key", "value"]) names.push([`past_key_values.${i}.${part}`, `present.${i}.${part}`]);
  }
  specs.push(node("head", "RMSNormalization", "norm", [x, "w.norm"], "xn", "new", (n) => [1, n, 64]));
  specs.push(node("head", "MatMul", "lm_head", ["xn", "w.embed"], "logits", "new", (n) => [1, n, 118]));
  const ins = ["input_ids", "position_ids", "attention_mask", ...names.map(([a]) => a)];
  sim.graph("tiny_llama", "main", null, ins, ["logits", ...names.map(([, b]) => b)], specs);
  sim.caches = names.map(([input, output]) => ({
    layer: Number(/\d+/.exec(input)?.[0] ?? -1), role: input.replace(/.*\./, ""),
    name: output.replace("present", "past_key_values"), input, output, protocol: "growing", axis: 2, given: [0, 0], capacity: [], valid: [], copied: [], written: [], storage: [],
  }));
  for (const text of PROMPT) sim.story.push({ text, run: null, prompt: true });
  let env = new Map<string, { storage: number; gen: number; shape: number[] }>();
  const rows = (n: number) => (n <= 16 ? 16 : Math.ceil(n / 8) * 8);
  for (let r = 0; r < runs; r++) {
    const length = r ? 1 : PROMPT.length;
    const given = new Map(["input_ids", "position_ids", "attention_mask"].map((v) => [v, { storage: sim.storage(8 * length, "caller", v, -1), gen: 0, shape: [1, length] }]));
    for (const [a, b] of names) given.set(a, env.get(b) ?? { storage: sim.storage(0, "caller", a, -1), gen: 0, shape: [1, 2, 0, 16] });
    const before = names.map(([a]) => given.get(a)!.storage);
    env = sim.run(r ? `decode ${r}` : "prefill", given, length, TOLD[r % TOLD.length], (v) => r > 0 && v.startsWith("past"), () => rows(past + length));
    past += length;
    sim.caches.forEach((c, i) => {
      const s = env.get(c.output)!.storage;
      c.capacity.push(sim.t["storage.capacity"][s] / 128);
      c.valid.push(past);
      c.copied.push(s === before[i] ? 0 : (past - length) * 128);
      c.written.push(128 * length + (s === before[i] ? 0 : (past - length) * 128));
      c.storage.push(s);
    });
  }
  return sim.payload("tiny llama");
}

/** Main with an If (one branch taken per run) and a Loop of three turns; `live` leaves the end open. */
export function branches(runs = 3, live = false): ArrayBuffer {
  const sim = new Simulation();
  const s: Sized = () => [1, 8, 16];
  const n = (op: string, name: string, ins: string[], out: string, kind: Kind = "new") => node("", op, name, ins, out, kind, s);
  const main: Spec[] = [
    n("Less", "less", ["x", "w.limit"], "flag"), n("Mul", "scale", ["x", "w.scale"], "y"),
    { ...n("If", "choose", ["flag"], "z", "control"), captures: ["y"] },
    { ...n("Loop", "repeat", ["z"], "r", "control"), captures: ["y"] },
    n("Add", "sum", ["r", "y"], "out", "in place"),
  ];
  sim.graph("branches", "main", null, ["x"], ["out"], main);
  const then = sim.graph("then", "then_branch", [0, 2], ["y"], ["t2"], [n("Relu", "relu", ["y"], "t0", "in place"), n("Exp", "exp", ["t0"], "t1", "in place"), n("Add", "add", ["t1", "y"], "t2", "in place")]);
  const other = sim.graph("else", "else_branch", [0, 2], ["y"], ["e1"], [n("Neg", "neg", ["y"], "e0", "in place"), n("Abs", "abs", ["e0"], "e1", "in place")]);
  const loop = sim.graph("body", "body", [0, 3], ["z", "y"], ["b1"], [n("Mul", "mul", ["z", "y"], "b0"), n("Tanh", "tanh", ["b0"], "b1", "in place")]);
  main[3].bodies = [{ graph: loop, times: 3 }];
  for (let r = 0; r < runs; r++) {
    main[2].bodies = [{ graph: r % 2 ? other : then }];
    sim.run(`run ${r}`, new Map([["x", { storage: sim.storage(512, "caller", "x", -1), gen: 0, shape: [1, 8, 16] }]]), 1, null, () => false, () => 0);
  }
  if (!live) return sim.payload("branches");
  sim.undo();
  const last = sim.t["frame.graph"].lastIndexOf(0);
  return sim.payload("branches", { frame: last, frontier: [{ node: 4, alloc: 0, frees: 512 }] });
}
