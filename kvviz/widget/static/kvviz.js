// src/dom.ts
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === void 0 || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
}
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function mark(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}
function set(node, property, value) {
  if (node.style.getPropertyValue(property) !== value) node.style.setProperty(property, value);
}
function button(text, title2, kv, click, signal, keys2) {
  const node = el("button", { type: "button", title: title2, "data-kv": kv, "aria-keyshortcuts": keys2 }, text);
  node.addEventListener("click", click, { signal });
  return node;
}
function hit(event, kv) {
  return event.target?.closest(`[data-kv="${kv}"]`) ?? null;
}
function reveal(wishes) {
  const moves = [];
  for (const { box, node, middle } of wishes) {
    if (!node.isConnected) continue;
    const outer = box.getBoundingClientRect();
    const inner = node.getBoundingClientRect();
    if (inner.top < outer.top + 4 || inner.bottom > outer.bottom - 4) {
      const at2 = middle ? outer.height * 0.4 : inner.top < outer.top ? 8 : outer.height - inner.height - 8;
      const by = inner.top - outer.top - at2;
      if (box.scrollHeight > box.clientHeight) moves.push(() => box.scrollTop += by);
    }
    for (let at2 = node.parentElement; at2 && box.contains(at2); at2 = at2.parentElement) {
      if (at2 instanceof SVGElement || at2.scrollWidth <= at2.clientWidth) continue;
      const edge = at2.getBoundingClientRect();
      const by = inner.left - edge.left - (edge.width - inner.width) / 2;
      const sideways = at2;
      const margin = Math.min(40, edge.width / 8);
      if (inner.left < edge.left + margin || inner.right > edge.right - margin) moves.push(() => sideways.scrollLeft += by);
      break;
    }
  }
  for (const move of moves) move();
}

// src/format.ts
var whole = new Intl.NumberFormat("en-US");
function count(n) {
  return whole.format(n);
}
function bytes(n) {
  if (Math.abs(n) < 1e4) return `${whole.format(n)} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    n /= 1e3;
    if (Math.abs(n) < 999.5 || unit === "GB") return `${n.toPrecision(3).replace(/e.*/, "")} ${unit}`;
  }
  return "";
}
function signed(n) {
  return n === null ? "" : n < 0 ? `−${bytes(-n)}` : `+${bytes(n)}`;
}
function buffer(p, storage, gen = 0) {
  if (storage < 0) return "–";
  if (p.storage.origin[storage] === 0) return "W";
  return gen > 0 ? `B${storage}.${gen}` : `B${storage}`;
}
function shape(info) {
  const at2 = info.indexOf("[");
  return at2 < 0 ? info : info.slice(at2);
}
function opName(op) {
  return op.replace(/^.*\./, "");
}
var known = /* @__PURE__ */ new WeakMap();
function shortName(g, node) {
  let names = known.get(g);
  if (!names) known.set(g, names = shortNames(g));
  return names[node] ?? "";
}
function shortNames(g) {
  const names = [];
  const numbers = [];
  const one = (n, home) => {
    const [name, op, scope] = g.nodes[n];
    const parts = name.split(/[/:]+/).filter(Boolean);
    const last = parts.pop() ?? "";
    const literal = opName(op).replace(/[^\w]/g, "\\$&");
    const match = new RegExp(`^(?:node_)?${literal}(?:_node)?(?:_(\\d+))?$`, "i").exec(last);
    const around = parts.pop() ?? "";
    numbers[n] = match?.[1] === void 0 ? "" : `#${match[1]}`;
    names[n] = !match ? last : around !== home && scope.split("/").includes(around) ? around : "";
  };
  g.nodes.forEach((_, n) => one(n, ""));
  for (const block of g.blocks) {
    const home = block.path.split("/").pop() ?? "";
    const seen = /* @__PURE__ */ new Map();
    for (const n of block.nodes) {
      one(n, home);
      const key = `${g.nodes[n][1]} ${names[n]}`;
      seen.set(key, (seen.get(key) ?? 0) + 1);
    }
    for (const n of block.nodes) {
      if (!names[n] || seen.get(`${g.nodes[n][1]} ${names[n]}`) > 1) names[n] = `${names[n]} ${numbers[n]}`.trim();
    }
  }
  return names;
}
function shortValue(name) {
  const mark2 = name.includes("/") ? "/" : ".";
  const parts = name.split(mark2).filter(Boolean);
  return parts.length > 2 ? parts.slice(-2).join(mark2) : name;
}
function plural(n, word) {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}

// src/caches.ts
var HEIGHT = 30;
var CachesPane = class {
  constructor(host, store, signal) {
    this.host = host;
    this.store = store;
    const heads = [["", "cache"], ["", "kept"], ["", "rows valid / reserved"], ["kv-num", "written"], ["kv-num", "copied"], ["", "buffer"], ["", "rows over runs"]];
    host.append(el("div", { class: "kv-scroll" }, el(
      "table",
      { class: "kv-table kv-caches", "aria-label": "Caches in the present run" },
      el("thead", {}, el("tr", {}, ...heads.map(([c, text]) => el("th", { scope: "col", class: c }, text)))),
      this.#body
    )));
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "cache-row");
      if (row) store.select({ kind: "cache", id: Number(row.dataset.id) });
    }, { signal });
    const watch = new ResizeObserver(() => {
      const shown = host.clientWidth > 0;
      if (shown !== this.#shown) {
        this.#shown = shown;
        this.#draw();
        this.#fill();
      }
    });
    watch.observe(host);
    signal.addEventListener("abort", () => watch.disconnect());
  }
  host;
  store;
  #body = el("tbody");
  #rows = [];
  #shown = false;
  update(change) {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      this.#rows = p.caches.map((c, i) => this.#make(c, i));
      this.#body.replaceChildren(...this.#rows.map((r) => r.root));
      if (!this.#rows.length) this.#body.append(el("tr", {}, el("td", { colspan: 7, class: "kv-none" }, "This model keeps no cache.")));
    }
    if (change.payload || change.look) this.#draw();
    if (change.cursor || change.payload || change.selection) this.#fill();
  }
  #fill() {
    if (!this.#shown) return;
    const { store } = this;
    const { p } = store.t;
    const { run: run2, lit } = store.now;
    this.#rows.forEach((row, i) => {
      const c = p.caches[i];
      const told = c.capacity[run2] ? run2 : run2 - 1;
      const before = run2 > 0 ? c.valid[run2 - 1] ?? 0 : 0;
      const valid = c.valid[told] ?? 0;
      const capacity = c.capacity[told] ?? 0;
      say(row.valid, `${valid === before ? count(valid) : `${count(before)} → ${count(valid)}`} / ${count(capacity)}`);
      set(row.bar, "--kv-before", String(capacity ? before / capacity : 0));
      set(row.bar, "--kv-valid", String(capacity ? valid / capacity : 0));
      say(row.written, bytes(c.written[run2] ?? 0));
      say(row.copied, bytes(c.copied[run2] ?? 0));
      mark(row.copied, "data-bad", c.copied[run2] ? 1 : null);
      mark(row.copied, "data-zero", c.copied[run2] ? null : 1);
      const storage = c.storage[told] ?? -1;
      say(row.where, buffer(p, storage));
      row.now.style.left = `${(run2 + 0.5) / Math.max(1, p.runs.length) * 100}%`;
      const chosen = store.selection?.kind === "cache" && store.selection.id === i;
      mark(row.root, "data-lit", chosen || lit.storages.has(storage) ? 1 : null);
    });
  }
  #make(c, i) {
    const valid = el("span", { class: "kv-rows" });
    const bar = el("i", { class: "kv-meter" });
    const written = el("td", { class: "kv-num" });
    const copied = el("td", { class: "kv-num" });
    const where = el("td", { class: "kv-id" });
    const strip = el("canvas");
    const now = el("i", { class: "kv-now" });
    const holder = el("div", { class: "kv-strip", title: "across: runs; up: rows. Dark: written in that run, plain: valid, pale: reserved, orange: copied again" }, strip, now);
    const root2 = el(
      "tr",
      { "data-kv": "cache-row", "data-id": i, title: `${c.input} → ${c.output}, axis ${c.axis}` },
      el("td", {}, c.name),
      el("td", { class: "kv-soft" }, c.protocol),
      el("td", {}, el("div", { class: "kv-fillrow" }, valid, bar)),
      written,
      copied,
      where,
      el("td", {}, holder)
    );
    return { root: root2, valid, bar, written, copied, where, strip, now };
  }
  #draw() {
    const { p } = this.store.t;
    if (!this.#shown) return;
    const style = getComputedStyle(this.host);
    const colour = (name) => style.getPropertyValue(name).trim() || "#888";
    const [reserved, valid, fresh, again] = ["--kv-view-pale", "--kv-view-mid", "--kv-view", "--kv-missed-mid"].map(colour);
    const most = Math.max(1, ...p.caches.flatMap((c) => c.capacity));
    this.#rows.forEach((row, i) => {
      const c = p.caches[i];
      const context = row.strip.getContext("2d");
      const width = Math.floor(row.strip.clientWidth);
      if (!context || !width) return;
      const ratio = globalThis.devicePixelRatio || 1;
      row.strip.width = width * ratio;
      row.strip.height = HEIGHT * ratio;
      context.scale(ratio, ratio);
      const runs = Math.max(1, c.capacity.length);
      const gap = width / runs > 5 ? 1 : 0;
      for (let r = 0; r < runs; r++) {
        const x = r / runs * width;
        const w = Math.max(0.5, width / runs - gap);
        const cell = (from, to, fill2) => {
          if (to <= from) return;
          context.fillStyle = fill2;
          context.fillRect(x, HEIGHT - to / most * HEIGHT, w, Math.max(1, (to - from) / most * HEIGHT));
        };
        const before = r > 0 ? c.valid[r - 1] : 0;
        cell(c.valid[r], c.capacity[r], reserved);
        cell(0, Math.min(before, c.valid[r]), c.copied[r] > 0 ? again : valid);
        cell(before, c.valid[r], fresh);
      }
    });
  }
};

// src/arrays.ts
function group(keys2, buckets) {
  const start = new Int32Array(buckets + 1);
  for (let i = 0; i < keys2.length; i++) if (keys2[i] >= 0) start[keys2[i] + 1]++;
  for (let k = 0; k < buckets; k++) start[k + 1] += start[k];
  const ids = new Int32Array(start[buckets]);
  const next = start.slice(0, buckets);
  for (let i = 0; i < keys2.length; i++) if (keys2[i] >= 0) ids[next[keys2[i]]++] = i;
  return { start, ids };
}
function upper(sorted, x, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = from + to >> 1;
    if (sorted[middle] <= x) from = middle + 1;
    else to = middle;
  }
  return from;
}

// src/index.ts
var KEY = 512;
function indexGraph(g) {
  const producer = new Int32Array(g.values.length).fill(-1);
  const readers = g.values.map(() => []);
  const waits = g.nodes.map(() => []);
  const block = new Int32Array(g.nodes.length).fill(-1);
  const output = new Uint8Array(g.values.length);
  for (const n of g.order) for (const v of g.nodes[n][4]) if (v >= 0) producer[v] = n;
  for (const n of g.order) {
    for (const v of /* @__PURE__ */ new Set([...g.nodes[n][3], ...g.nodes[n][5]])) {
      if (v < 0) continue;
      readers[v].push(n);
      if (producer[v] >= 0 && !waits[n].includes(producer[v])) waits[n].push(producer[v]);
    }
  }
  g.blocks.forEach((b, i) => b.nodes.forEach((n) => block[n] = i));
  for (const v of g.outputs) output[v] = 1;
  return { producer, readers, waits, block, output };
}
function owners(offsets, entries) {
  const owner = new Int32Array(entries);
  for (let i = 0, at2 = 0; i + 1 < offsets.length; i++) for (; at2 < offsets[i + 1]; at2++) owner[at2] = i;
  return owner;
}
function lifetimes(p, x) {
  const born = p.storage.born.slice();
  const freed = p.storage.freed.map((step) => step < 0 ? p.steps : step);
  for (let s = 0; s < p.storages; s++) {
    const origin = p.storage.origin[s];
    if (origin === 0 || born[s] >= 0 && p.storage.freed[s] >= 0) continue;
    let from = x.outs.start[s] < x.outs.start[s + 1] ? x.outStep[x.outs.ids[x.outs.start[s]]] : p.steps;
    let to = -1;
    for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) {
      const f = x.bindFrame[x.binds.ids[i]];
      from = Math.min(from, x.first[f] > 0 ? x.first[f] : -1);
      to = Math.max(to, p.runs[p.frame.run[f]]?.last ?? p.steps);
    }
    if (born[s] < 0) born[s] = from;
    if (p.storage.freed[s] < 0 && to >= 0 && (origin === 1 || origin === 2)) freed[s] = to;
  }
  return { born, freed };
}
function keyframes(p, born, freed) {
  const byBirth = group(born.map((cursor) => cursor + 1), p.steps + 2).ids;
  const birth = byBirth.map((s) => born[s]);
  const keys2 = [];
  let alive2 = [];
  let next = 0;
  for (let cursor = -1; cursor < p.steps; cursor += KEY) {
    while (next < byBirth.length && birth[next] <= cursor) alive2.push(byBirth[next++]);
    alive2 = alive2.filter((s) => freed[s] > cursor);
    keys2.push(Int32Array.from(alive2));
  }
  return { keys: keys2, byBirth, birth };
}
function buildIndex(p) {
  const { frame, step, out: out2 } = p;
  const depth = new Int32Array(p.frames);
  const first = new Int32Array(p.frames).fill(p.steps);
  const last = new Int32Array(p.frames).fill(-1);
  const run2 = new Int32Array(p.steps);
  for (let f = 0; f < p.frames; f++) depth[f] = frame.parent[f] < 0 ? 0 : depth[frame.parent[f]] + 1;
  let peak = -1;
  for (let i = 0; i < p.steps; i++) {
    run2[i] = frame.run[step.frame[i]];
    if (peak < 0 || step.live[i] > step.live[peak]) peak = i;
    for (let f = step.frame[i]; f >= 0 && last[f] < i; f = frame.parent[f]) {
      if (first[f] > i) first[f] = i;
      last[f] = i;
    }
  }
  let weights = 0;
  for (let s = 0; s < p.storages; s++) if (p.storage.origin[s] === 0) weights += p.storage.capacity[s];
  const base = {
    graphs: p.graphs.map(indexGraph),
    depth,
    first,
    last,
    run: run2,
    peak,
    weights,
    steps: group(step.frame, p.frames),
    outStep: owners(step.out, out2.value.length),
    blockStep: owners(step.block, p.block.code.length),
    outs: group(out2.storage, p.storages),
    binds: group(p.bind.storage, p.storages),
    bindFrame: owners(frame.bind, p.bind.value.length)
  };
  const { born, freed } = lifetimes(p, base);
  return { ...base, born, freed, ...keyframes(p, born, freed) };
}

// src/wire.ts
var FLAG = { inPlace: 1, foreign: 2, missed: 4, control: 8, view: 16 };
var ORIGINS = ["weights", "caller", "donated", "run", "pool"];
var OUT_HOW = ["new", "in place", "view", "append", "pool"];
var BIND_HOW = ["weight", "borrowed", "donated", "captured by reference", "captured by value", "passed"];
var GROUPS = {
  frame: ["graph", "parent", "node", "iteration", "run", "label", "bind"],
  bind: ["value", "storage", "gen", "how", "offset", "bytes", "info"],
  storage: ["capacity", "origin", "name", "born", "freed"],
  step: ["frame", "node", "flags", "taken", "live", "alloc", "copied", "written", "sentence", "rule", "out", "block", "free"],
  out: ["value", "storage", "gen", "how", "offset", "bytes", "info"],
  block: ["code", "input", "culprit", "message", "bytes"],
  free: ["storage"]
};
async function gunzip(bytes2) {
  const stream = new Blob([bytes2]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}
function view(raw, start, name, entry) {
  if (!entry) throw new Error(`the payload has no column ${name}`);
  const [type, offset, length] = entry;
  return type === "d" ? new Float64Array(raw, start + offset, length) : new Int32Array(raw, start + offset, length);
}
function unpack(raw) {
  const size = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, size)));
  if (header.format !== 1) throw new Error(`format ${header.format} is newer than this page; update kvviz`);
  const start = Math.ceil((4 + size) / 8) * 8;
  const columns = {};
  for (const [group2, names] of Object.entries(GROUPS)) {
    columns[group2] = {};
    for (const name of names) {
      const full = `${group2}.${name}`;
      columns[group2][name] = view(raw, start, full, header.columns[full]);
    }
  }
  const typed = columns;
  return {
    ...header,
    ...typed,
    steps: typed.step.node.length,
    frames: typed.frame.graph.length,
    storages: typed.storage.capacity.length
  };
}
async function decode(bytes2) {
  if (!bytes2 || bytes2.byteLength === 0) return null;
  return unpack(await gunzip(new Uint8Array(bytes2.buffer, bytes2.byteOffset, bytes2.byteLength)));
}

// src/replay.ts
function runAt({ p, x }, cursor) {
  if (p.steps === 0) return p.live ? p.frame.run[p.live.frame] : 0;
  return x.run[Math.max(0, Math.min(cursor, p.steps - 1))];
}
function root({ p }, f) {
  while (p.frame.parent[f] >= 0) f = p.frame.parent[f];
  return f;
}
function atEdge({ p }, cursor) {
  return p.live !== null && cursor >= p.steps - 1;
}
function frameAt(t, cursor) {
  const { p, x } = t;
  if (atEdge(t, cursor) && (cursor < 0 || p.frame.run[p.live.frame] === x.run[cursor])) return p.live.frame;
  if (cursor < 0) return p.steps ? root(t, p.step.frame[0]) : 0;
  return p.step.frame[Math.min(cursor, p.steps - 1)];
}
function frontierFrame(t, cursor) {
  const { p, x } = t;
  if (atEdge(t, cursor)) return p.live.frame;
  const here = frameAt(t, cursor);
  if (x.steps.start[here + 1] > x.steps.start[here] && x.steps.ids[x.steps.start[here + 1] - 1] > cursor) return here;
  if (cursor + 1 >= p.steps) return -1;
  const next = p.step.frame[cursor + 1];
  return p.frame.run[next] === p.frame.run[here] ? next : root(t, next);
}
function stack({ p }, f) {
  const frames = [];
  for (let at2 = f; at2 >= 0; at2 = p.frame.parent[at2]) frames.unshift(at2);
  return frames;
}
var nodeSteps = /* @__PURE__ */ new WeakMap();
function stepsOf({ p, x }, f) {
  let known2 = nodeSteps.get(x);
  if (!known2) nodeSteps.set(x, known2 = /* @__PURE__ */ new Map());
  let steps = known2.get(f);
  if (!steps) {
    if (known2.size > 32) known2.clear();
    steps = new Int32Array(p.graphs[p.frame.graph[f]].nodes.length).fill(-1);
    for (let i = x.steps.start[f]; i < x.steps.start[f + 1]; i++) steps[p.step.node[x.steps.ids[i]]] = x.steps.ids[i];
    known2.set(f, steps);
  }
  return steps;
}
function ready(t, f, cursor) {
  const g = t.p.frame.graph[f];
  const steps = stepsOf(t, f);
  const ran = (n) => steps[n] >= 0 && steps[n] <= cursor;
  return t.p.graphs[g].order.filter((n) => !ran(n) && t.x.graphs[g].waits[n].every(ran));
}
function freedBytes({ p }, step) {
  let bytes2 = 0;
  for (let i = p.step.free[step]; i < p.step.free[step + 1]; i++) bytes2 += p.storage.capacity[p.free.storage[i]];
  return bytes2;
}
function frontier(t, cursor) {
  const f = frontierFrame(t, cursor);
  if (f < 0) return [];
  if (atEdge(t, cursor)) return t.p.live.frontier.map((c) => ({ ...c, step: -1 }));
  const steps = stepsOf(t, f);
  return ready(t, f, cursor).map((node) => {
    const step = steps[node];
    return step < 0 ? { node, step, alloc: null, frees: null } : { node, step, alloc: t.p.step.alloc[step], frees: freedBytes(t, step) };
  });
}
function outcome(flags) {
  if (flags & FLAG.inPlace) return "inplace";
  if (flags & FLAG.missed) return "copied";
  if (flags & FLAG.foreign) return "foreign";
  return flags & FLAG.view ? "view" : "done";
}
function nodeStates(t, f, cursor) {
  const steps = stepsOf(t, f);
  const states = Array.from(steps, (s) => s >= 0 && s <= cursor ? outcome(t.p.step.flags[s]) : "pending");
  if (frontierFrame(t, cursor) === f) for (const n of frontier(t, cursor)) states[n.node] = "frontier";
  if (cursor >= 0 && t.p.step.frame[cursor] === f) states[t.p.step.node[cursor]] = "running";
  return states;
}
var places = /* @__PURE__ */ new WeakMap();
function placesOf({ p, x }, f) {
  let known2 = places.get(x);
  if (!known2) places.set(x, known2 = /* @__PURE__ */ new Map());
  let at2 = known2.get(f);
  if (!at2) {
    if (known2.size > 32) known2.clear();
    at2 = new Int32Array(p.graphs[p.frame.graph[f]].values.length);
    for (let b = p.frame.bind[f]; b < p.frame.bind[f + 1]; b++) if (p.bind.value[b] >= 0) at2[p.bind.value[b]] = -(b + 1);
    for (let i = x.steps.start[f]; i < x.steps.start[f + 1]; i++) {
      const step = x.steps.ids[i];
      for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) if (p.out.value[o] >= 0) at2[p.out.value[o]] = o + 1;
    }
    known2.set(f, at2);
  }
  return at2;
}
function placeOf(t, f, value, cursor) {
  const at2 = value < 0 ? 0 : placesOf(t, f)[value];
  if (at2 === 0) return null;
  if (at2 < 0) return { from: "bind", entry: -at2 - 1, storage: t.p.bind.storage[-at2 - 1], gen: t.p.bind.gen[-at2 - 1] };
  if (t.x.outStep[at2 - 1] > cursor) return null;
  return { from: "out", entry: at2 - 1, storage: t.p.out.storage[at2 - 1], gen: t.p.out.gen[at2 - 1] };
}
function alive({ p, x }, cursor) {
  const key = Math.min(Math.floor((cursor + 1) / KEY), x.keys.length - 1);
  const found = [];
  if (key < 0) return found;
  for (const s of x.keys[key]) if (x.freed[s] > cursor) found.push(s);
  for (let i = upper(x.birth, -1 + key * KEY); i < p.storages && x.birth[i] <= cursor; i++) {
    if (x.freed[x.byBirth[i]] > cursor) found.push(x.byBirth[i]);
  }
  return found;
}
function outsUntil({ x }, s, cursor) {
  let from = x.outs.start[s];
  let to = x.outs.start[s + 1];
  while (from < to) {
    const middle = from + to >> 1;
    if (x.outStep[x.outs.ids[middle]] <= cursor) from = middle + 1;
    else to = middle;
  }
  return from;
}
function lastOut(t, s, cursor) {
  const end = outsUntil(t, s, cursor);
  return end > t.x.outs.start[s] ? t.x.outs.ids[end - 1] : -1;
}
function generation(t, s, cursor) {
  const { p, x } = t;
  const out2 = lastOut(t, s, cursor);
  let gen = out2 < 0 ? 0 : p.out.gen[out2];
  for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) {
    const b = x.binds.ids[i];
    if (x.first[x.bindFrame[b]] - 1 <= cursor && p.bind.gen[b] > gen) gen = p.bind.gen[b];
  }
  return gen;
}
function valuesIn(t, s, cursor, frames) {
  const { p, x } = t;
  const gen = generation(t, s, cursor);
  const held = [];
  const add = (frame, value, place) => {
    if (value < 0) return;
    const g = x.graphs[p.frame.graph[frame]];
    const steps = stepsOf(t, frame);
    const readers = g.readers[value].filter((n) => steps[n] < 0 || steps[n] > cursor).length;
    held.push({ frame, value, place, readers, output: g.output[value] === 1 });
  };
  for (let i = x.binds.start[s]; i < x.binds.start[s + 1]; i++) {
    const b = x.binds.ids[i];
    if (p.bind.gen[b] === gen && frames.includes(x.bindFrame[b])) {
      add(x.bindFrame[b], p.bind.value[b], { from: "bind", entry: b, storage: s, gen });
    }
  }
  for (let i = outsUntil(t, s, cursor) - 1; i >= x.outs.start[s] && p.out.gen[x.outs.ids[i]] === gen; i--) {
    const o = x.outs.ids[i];
    if (frames.includes(p.step.frame[x.outStep[o]])) {
      add(p.step.frame[x.outStep[o]], p.out.value[o], { from: "out", entry: o, storage: s, gen });
    }
  }
  return held;
}

// src/debug.ts
function depthAt(t, cursor) {
  return cursor < 0 ? 0 : t.x.depth[t.p.step.frame[cursor]];
}
function scan(t, from, by, hit2) {
  for (let i = from; i >= 0 && i < t.p.steps; i += by) if (hit2(i)) return i;
  return null;
}
function into({ p }, cursor) {
  return cursor + 1 < p.steps ? cursor + 1 : null;
}
function over(t, cursor) {
  const depth = depthAt(t, cursor);
  return scan(t, cursor + 1, 1, (i) => depthAt(t, i) <= depth);
}
function back(t, cursor) {
  const depth = depthAt(t, cursor);
  return scan(t, cursor - 1, -1, (i) => depthAt(t, i) <= depth) ?? -1;
}
function out(t, cursor) {
  const depth = depthAt(t, cursor);
  if (depth > 0) return scan(t, cursor + 1, 1, (i) => depthAt(t, i) < depth);
  let at2 = over(t, cursor);
  if (at2 === null) return null;
  const { p, x } = t;
  const frame = p.step.frame[at2];
  const block = x.graphs[p.frame.graph[frame]].block;
  const here = block[p.step.node[at2]];
  for (let next = over(t, at2); next !== null; next = over(t, next)) {
    if (p.step.frame[next] !== frame || block[p.step.node[next]] !== here) break;
    at2 = next;
  }
  return at2;
}
function address({ p }, f) {
  const parts = [];
  for (let at2 = f; at2 >= 0; at2 = p.frame.parent[at2]) parts.push(`${p.frame.graph[at2]}:${p.frame.node[at2]}:${p.frame.iteration[at2]}`);
  return parts.join("/");
}
function inRun(t, cursor, run2) {
  const { p } = t;
  const target = p.runs[run2];
  if (!target || target.first >= p.steps) return null;
  const end = Math.min(target.last, p.steps) - 1;
  if (cursor < 0) return end;
  const node = p.step.node[cursor];
  const graph = p.frame.graph[p.step.frame[cursor]];
  const where = address(t, p.step.frame[cursor]);
  for (let i = target.first; i <= end; i++) {
    const f = p.step.frame[i];
    if (p.step.node[i] === node && p.frame.graph[f] === graph && address(t, f) === where) return i;
  }
  return end;
}
function nextRun(t, cursor) {
  return inRun(t, cursor, cursor < 0 ? 0 : runAt(t, cursor) + 1);
}
function previousRun(t, cursor) {
  const run2 = runAt(t, cursor);
  return run2 > 0 ? inRun(t, cursor, run2 - 1) ?? -1 : -1;
}
function storageId(text) {
  if (typeof text === "number") return text;
  const match = /^b?(\d+)(\.\d+)?$/i.exec(text.trim());
  return match ? Number(match[1]) : NaN;
}
var DECISIONS = ["missed", "in_place", "run", "copied", "view", "foreign"];
function predicate({ p }, b) {
  const node = (i) => p.graphs[p.frame.graph[p.step.frame[i]]].nodes[p.step.node[i]];
  const text = String(b.value).toLowerCase();
  switch (b.kind) {
    case "node":
      return (i) => node(i)[0].toLowerCase() === text;
    case "op":
      return (i) => node(i)[1].toLowerCase() === text;
    case "buffer": {
      const s = storageId(b.value);
      return (i) => {
        for (let o = p.step.out[i]; o < p.step.out[i + 1]; o++) if (p.out.storage[o] === s) return true;
        for (let k = p.step.free[i]; k < p.step.free[i + 1]; k++) if (p.free.storage[k] === s) return true;
        return false;
      };
    }
    case "decision":
      switch (text) {
        case "copied":
          return (i) => p.step.copied[i] > 0;
        case "run":
          return (i) => !(p.step.flags[i] & FLAG.inPlace);
        default: {
          const flag = { missed: FLAG.missed, in_place: FLAG.inPlace, view: FLAG.view, foreign: FLAG.foreign }[text] ?? 0;
          return (i) => (p.step.flags[i] & flag) !== 0;
        }
      }
    default:
      return () => false;
  }
}
function run(t, cursor, by, breakpoints) {
  const tests = breakpoints.filter((b) => b.enabled).map((b) => ({ b, hit: predicate(t, b) }));
  let stop2 = null;
  const at2 = scan(t, cursor + by, by, (i) => {
    stop2 = tests.find(({ hit: hit2 }) => hit2(i))?.b ?? null;
    return stop2 !== null;
  });
  return at2 === null ? { cursor: by > 0 ? t.p.steps - 1 : -1, by: null } : { cursor: at2, by: stop2 };
}
function clamp({ p }, cursor) {
  return Math.max(-1, Math.min(Math.round(cursor), p.steps - 1));
}
function placeName(t, cursor) {
  const { p, x } = t;
  const f = frameAt(t, cursor);
  const g = p.frame.graph[f] ?? 0;
  const node = cursor >= 0 && p.step.frame[cursor] === f ? p.step.node[cursor] : -1;
  const block = node < 0 ? void 0 : p.graphs[g].blocks[x.graphs[g].block[node]];
  return block?.title ?? "";
}

// src/select.ts
var NOTHING = { nodes: /* @__PURE__ */ new Set(), storages: /* @__PURE__ */ new Set(), values: /* @__PURE__ */ new Set() };
function same(a, b) {
  return a === b || !!a && !!b && a.kind === b.kind && a.id === b.id && (a.graph ?? -1) === (b.graph ?? -1);
}
function touched(t, step) {
  const { p } = t;
  const f = p.step.frame[step];
  const inputs = p.graphs[p.frame.graph[f]].nodes[p.step.node[step]][3];
  const reads = inputs.map((v) => placeOf(t, f, v, step - 1)?.storage ?? -1).filter((s) => s >= 0);
  const writes = Array.from(p.out.storage.subarray(p.step.out[step], p.step.out[step + 1]));
  return { reads, writes };
}
function storageOf(t, s, frame, cursor) {
  if (s.kind === "storage") return s.id;
  if (s.kind === "cache") return t.p.caches[s.id]?.storage[runAt(t, cursor)] ?? -1;
  for (const f of stack(t, frame)) {
    if (t.p.frame.graph[f] === (s.graph ?? 0)) return placeOf(t, f, s.id, t.p.steps)?.storage ?? -1;
  }
  return -1;
}
function light(t, s, frame, cursor) {
  if (!s || frame >= t.p.frames) return NOTHING;
  const { p, x } = t;
  const lit = { nodes: /* @__PURE__ */ new Set(), storages: /* @__PURE__ */ new Set(), values: /* @__PURE__ */ new Set() };
  const graph = p.frame.graph[frame];
  const g = p.graphs[graph];
  const steps = stepsOf(t, frame);
  if (s.kind === "node") {
    if (s.graph !== void 0 && s.graph !== graph) return lit;
    lit.nodes.add(s.id);
    const node = g.nodes[s.id];
    if (!node) return lit;
    for (const v of [...node[3], ...node[4]]) if (v >= 0) lit.values.add(v);
    if (steps[s.id] >= 0) {
      const { reads, writes } = touched(t, steps[s.id]);
      for (const b of [...reads, ...writes]) if (p.storage.origin[b] !== 0) lit.storages.add(b);
    }
    return lit;
  }
  if (s.kind === "value" && (s.graph ?? 0) === graph) {
    lit.values.add(s.id);
    for (const n of x.graphs[graph].readers[s.id] ?? []) lit.nodes.add(n);
    const maker = x.graphs[graph].producer[s.id] ?? -1;
    if (maker >= 0) lit.nodes.add(maker);
  }
  const storage = storageOf(t, s, frame, cursor);
  if (storage < 0) return lit;
  lit.storages.add(storage);
  if (p.storage.origin[storage] === 0 || s.kind === "value") return lit;
  for (let v = 0; v < g.values.length; v++) {
    if (placeOf(t, frame, v, p.steps)?.storage !== storage) continue;
    lit.values.add(v);
    const maker = x.graphs[graph].producer[v];
    if (maker >= 0) lit.nodes.add(maker);
    for (const n of x.graphs[graph].readers[v]) lit.nodes.add(n);
  }
  return lit;
}
function describe({ p }, s) {
  switch (s.kind) {
    case "node":
      return p.graphs[s.graph ?? 0]?.nodes[s.id]?.[0] ?? "node";
    case "value":
      return p.graphs[s.graph ?? 0]?.values[s.id] ?? "value";
    case "cache":
      return p.caches[s.id]?.name ?? "cache";
    default:
      return p.storage.origin[s.id] === 0 ? "weights" : `B${s.id}`;
  }
}

// src/commands.ts
var NEEDS_KERNEL = "recorded: needs a running kernel";
var Commands = class {
  constructor(store, ask, flushTraits) {
    this.store = store;
    this.ask = ask;
    this.flushTraits = flushTraits;
  }
  store;
  ask;
  flushTraits;
  #timer;
  next() {
    this.#go(over(this.store.t, this.store.cursor), { do: "over" });
  }
  into() {
    this.#go(into(this.store.t, this.store.cursor), { do: "into" });
  }
  out() {
    this.#go(out(this.store.t, this.store.cursor), { do: "out" });
  }
  back() {
    this.store.seek(back(this.store.t, this.store.cursor));
  }
  nextRun() {
    this.#go(nextRun(this.store.t, this.store.cursor), { do: "next_decode" });
  }
  previousRun() {
    this.store.seek(previousRun(this.store.t, this.store.cursor));
  }
  first() {
    this.store.seek(-1);
  }
  last() {
    this.store.seek(this.store.t.p.steps - 1);
  }
  toRun(run2) {
    const to = inRun(this.store.t, this.store.cursor, run2);
    if (to !== null) this.store.seek(to);
  }
  continue() {
    const { store } = this;
    if (store.breakpoints.some((b) => b.enabled && b.kind === "condition")) {
      this.flushTraits();
      if (this.ask({ do: "continue", cursor: store.cursor })) return store.tell("asked the kernel to continue …");
    }
    const stop2 = run(store.t, store.cursor, 1, store.breakpoints);
    if (!stop2.by && store.t.p.live) return this.#go(null, { do: "continue" });
    this.#stopped(stop2, "nothing stops here: end of the recording");
  }
  reverse() {
    this.#stopped(run(this.store.t, this.store.cursor, -1, this.store.breakpoints), "back at the beginning");
  }
  #stopped(stop2, otherwise) {
    this.store.seek(stop2.cursor);
    this.store.tell(stop2.by ? `stopped at breakpoint: ${label(stop2.by)}` : otherwise);
  }
  #go(to, message) {
    const { store } = this;
    if (to !== null) return store.seek(to);
    store.seek(store.t.p.steps - 1);
    if (!store.t.p.live) return store.tell("end of the recording: everything has run");
    this.flushTraits();
    store.tell(this.ask(message) ? "asked the kernel …" : NEEDS_KERNEL);
  }
  /** Run this node next; a person may only choose where nothing has been recorded yet. */
  choose(node) {
    const { store } = this;
    const { next, choices } = store.now;
    if (!choices.some((c) => c.node === node)) return store.tell("this op cannot run next: an input of it is missing, or it has run");
    if (!atEdge(store.t, store.cursor)) {
      const step = choices.find((c) => c.node === node).step;
      store.tell(`recorded: this op ran as step ${step}; another order can be chosen at the live end or with kvviz.debug`);
      return;
    }
    this.flushTraits();
    store.tell(this.ask({ do: "choose", node, frame: next }) ? "asked the kernel …" : NEEDS_KERNEL);
  }
  /** Explain the decision at the selected node, or at the cursor, in the status line. */
  why() {
    const { store } = this;
    const { p } = store.t;
    const chosen = store.selection?.kind === "node" && (store.selection.graph ?? store.now.graph) === store.now.graph;
    const step = chosen ? stepsOf(store.t, store.now.frame)[store.selection.id] : store.cursor;
    if (step === void 0 || step < 0) return store.tell("it has not run here, so nothing was decided yet");
    const rule = p.strings[p.step.rule[step]];
    store.tell(`step ${step}: ${p.strings[p.step.sentence[step]]}${rule ? ` Rule: ${rule}.` : ""}`);
  }
  /** Add a breakpoint, or take it away when there is one just like it. */
  toggle(kind, value) {
    const list = this.store.breakpoints;
    const rest = list.filter((b) => b.kind !== kind || String(b.value) !== String(value));
    this.store.setBreakpoints(rest.length < list.length ? rest : [...list, { kind, value, enabled: true }]);
  }
  toggleSelected() {
    const wanted = breakpointFor(this.store);
    if (!wanted) return this.store.tell("select a node or a buffer first");
    this.toggle(wanted.kind, wanted.value);
  }
  play() {
    if (this.#timer !== void 0) return this.pause();
    this.#timer = setInterval(() => {
      const to = over(this.store.t, this.store.cursor);
      if (to === null) this.pause();
      else this.store.seek(to);
    }, 220);
    this.store.tell("playing; Space stops");
  }
  pause() {
    clearInterval(this.#timer);
    this.#timer = void 0;
  }
};
function label(b) {
  if (b.kind === "buffer") return `buffer B${storageId(b.value)}`;
  if (b.kind === "decision") return `decision ${b.value}`;
  return `${b.kind} ${b.value}`;
}
function breakpointFor(store) {
  const { p } = store.t;
  const s = store.selection;
  if (s?.kind === "storage" || s?.kind === "cache") {
    const id = s.kind === "cache" ? p.caches[s.id]?.storage[store.now.run] ?? -1 : s.id;
    return id < 0 ? null : { kind: "buffer", value: id, text: `B${id}` };
  }
  if (s?.kind === "node") {
    const name = describe(store.t, s);
    return { kind: "node", value: name, text: name };
  }
  if (store.cursor < 0) return null;
  const node = p.graphs[p.frame.graph[p.step.frame[store.cursor]]].nodes[p.step.node[store.cursor]];
  return { kind: "node", value: node[0], text: node[0] };
}

// src/frontier.ts
var MOST = 60;
var FrontierPane = class {
  constructor(host, store, commands, signal) {
    this.store = store;
    host.append(el("header", {}, this.#head, this.#hint), this.#list);
    this.#list.addEventListener("click", (event) => {
      const run2 = hit(event, "run-next");
      const row = hit(event, "frontier-row");
      if (run2) commands.choose(Number(run2.dataset.node));
      else if (row) store.select({ kind: "node", id: Number(row.dataset.node), graph: Number(row.dataset.graph) });
    }, { signal });
    this.#list.addEventListener("dblclick", (event) => {
      const row = hit(event, "frontier-row");
      if (row) commands.choose(Number(row.dataset.node));
    }, { signal });
  }
  store;
  #head = el("h3", {}, "Frontier");
  #hint = el("span", { class: "kv-hint" });
  #list = el("ul", { class: "kv-list", "aria-label": "Ops that can run now" });
  update(change) {
    if (change.cursor || change.payload) this.#fill();
    if (change.cursor || change.payload || change.selection) this.#light();
  }
  #fill() {
    const { store } = this;
    const { p } = store.t;
    const { now } = store;
    const edge = atEdge(store.t, store.cursor);
    const graph = p.frame.graph[now.next] ?? 0;
    const g = p.graphs[graph];
    const ran = now.next < 0 ? -1 : this.#nextNode();
    say(this.#head, now.choices.length ? `Frontier ${count(now.choices.length)}` : "Frontier");
    const place = now.next >= 0 && now.next !== now.frame ? this.#place() : "";
    say(this.#hint, now.next < 0 ? "everything has run" : place || (edge ? "choose one to run it next" : "can run now"));
    const rows = now.choices.slice(0, MOST).map((c) => {
      const op = opName(g.nodes[c.node][1]);
      const row = el(
        "li",
        {
          "data-kv": "frontier-row",
          "data-node": c.node,
          "data-graph": graph,
          "data-step": c.step,
          "data-next": c.node === ran ? 1 : null,
          title: c.step >= 0 ? `${g.nodes[c.node][0]}: ran as step ${c.step}` : g.nodes[c.node][0]
        },
        el("span", { class: "kv-what" }, el("span", { class: "kv-op" }, op), el("span", { class: "kv-name" }, shortName(g, c.node))),
        el("span", { class: "kv-num", title: "allocates", "data-zero": c.alloc === 0 ? 1 : null }, signed(c.alloc)),
        el("span", { class: "kv-num kv-free", title: "frees" }, c.frees ? signed(-c.frees) : "")
      );
      if (edge) row.append(el("button", { type: "button", "data-kv": "run-next", "data-node": c.node, title: "Run this op next (Enter)" }, "Run next"));
      return row;
    });
    if (now.choices.length > MOST) rows.push(el("li", { class: "kv-none" }, `${now.choices.length - MOST} more`));
    this.#list.replaceChildren(...rows);
  }
  /** The node that the recording ran next in the frontier's frame. */
  #nextNode() {
    const { store } = this;
    let best = -1;
    for (const c of store.now.choices) if (c.step >= 0 && (best < 0 || c.step < best)) best = c.step;
    return best < 0 ? -1 : store.t.p.step.node[best];
  }
  #place() {
    const { p } = this.store.t;
    const { now } = this.store;
    const run2 = p.frame.run[now.next];
    if (run2 !== p.frame.run[now.frame]) return `${p.runs[run2]?.label ?? "the next run"} begins`;
    return `in ${p.strings[p.frame.label[now.next]] || "main"}`;
  }
  #light() {
    const { now, selection } = this.store;
    for (const row of this.#list.querySelectorAll('[data-kv="frontier-row"]')) {
      const mine = Number(row.dataset.graph) === now.graph && now.lit.nodes.has(Number(row.dataset.node));
      mark(row, "data-lit", mine ? "1" : null);
      mark(row, "aria-selected", selection?.kind === "node" && mine ? "true" : null);
    }
  }
};

// src/drawing.ts
var LETTER = {
  pending: "",
  frontier: "○",
  running: "▶︎",
  done: "",
  inplace: "↺",
  copied: "⚠︎",
  view: "v",
  foreign: "f"
};
var STATE_WORDS = {
  pending: "not run",
  frontier: "can run next",
  running: "just ran",
  done: "done",
  inplace: "ran in place",
  copied: "ran, could have been in place",
  view: "made a view",
  foreign: "ran on a foreign kernel"
};
var Ruler = class {
  constructor(family) {
    this.family = family;
  }
  family;
  #context = document.createElement("canvas").getContext("2d");
  #known = /* @__PURE__ */ new Map();
  width(text, font) {
    const key = font + text;
    let w = this.#known.get(key);
    if (w === void 0) {
      if (!this.#context) return text.length * 6.5;
      this.#context.font = `${font} ${this.family}`;
      this.#known.set(key, w = this.#context.measureText(text).width);
    }
    return w;
  }
  /** The text, or as much of it as fits before an ellipsis; "" when not even two letters do. */
  fit(text, font, room) {
    if (this.width(text, font) <= room) return text;
    let low = 0;
    let high = text.length - 1;
    while (low < high) {
      const middle = low + high + 1 >> 1;
      if (this.width(`${text.slice(0, middle)}…`, font) <= room) low = middle;
      else high = middle - 1;
    }
    return low < 2 ? "" : `${text.slice(0, low)}…`;
  }
};
function path(points) {
  let d = `M${points[0]} ${points[1]}`;
  for (let i = 2; i + 3 < points.length; i += 2) {
    const [x0, y0, x, y, x1, y1] = points.slice(i - 2, i + 4);
    const before = Math.hypot(x - x0, y - y0) || 1;
    const after = Math.hypot(x1 - x, y1 - y) || 1;
    const r = Math.min(9, before / 2, after / 2);
    const at2 = (k, ax, ay) => `${(x + (ax - x) * r / k).toFixed(1)} ${(y + (ay - y) * r / k).toFixed(1)}`;
    d += `L${at2(before, x0, y0)}Q${x} ${y} ${at2(after, x1, y1)}`;
  }
  return `${d}L${points[points.length - 2]} ${points[points.length - 1]}`;
}
var OP = "600 12px";
var SMALL = "400 10.5px";
var DrawingView = class {
  constructor(store, graph, block, drawing, ruler) {
    this.store = store;
    this.graph = graph;
    this.block = block;
    this.drawing = drawing;
    this.ruler = ruler;
    const lines = svg("g", { class: "kv-edges" });
    const stubs = svg("g", { class: "kv-stubs" });
    const boxes = svg("g");
    drawing.edges.forEach(([from, to, points]) => {
      const line = svg("path", { d: path(points), "data-edge": "future" });
      lines.append(line);
      this.#edges.push({ el: line, from, to, shown: "future" });
    });
    block.nodes.forEach((node, i) => boxes.append(this.#box(node, i)));
    this.#edges.forEach((e, i) => {
      this.#boxes[e.from]?.edges.push(i);
      this.#boxes[e.to]?.edges.push(i);
    });
    for (const stub of drawing.stubs) stubs.append(this.#stub(stub));
    this.root = svg("svg", {
      viewBox: `0 0 ${drawing.w} ${drawing.h}`,
      width: drawing.w,
      height: drawing.h,
      class: "kv-drawing",
      role: "graphics-document",
      "aria-label": block.title
    }, lines, stubs, boxes);
    this.root.style.setProperty("--kv-w", `${drawing.w}px`);
  }
  store;
  graph;
  block;
  drawing;
  ruler;
  root;
  #boxes = [];
  #edges = [];
  #box(node, i) {
    const g = this.store.t.p.graphs[this.graph];
    const [name, op] = g.nodes[node];
    const [x, y, w, h] = this.drawing.boxes[i];
    const pad = 8;
    const type = opName(op);
    const two = h >= 30;
    const line = two ? y + h / 2 - 4 : y + h / 2 + 4;
    const letter = svg("text", { class: "kv-mk", x: x + w - 6, y: line, "text-anchor": "end" });
    const opText = this.ruler.fit(type, OP, w - 2 * pad - 14) || type.slice(0, 3);
    const left = w - 2 * pad - 14 - this.ruler.width(opText, OP) - 5;
    const full = shortName(g, node);
    const cut = this.ruler.fit(full, SMALL, left);
    const short = cut === full || cut.length > 5 ? cut : "";
    const label2 = svg("text", { class: "kv-op", x: x + pad, y: line }, opText);
    if (short) label2.append(svg("tspan", { class: "kv-short", dx: 5 }, short));
    const second = svg("text", { class: "kv-mk", x: x + w - 6, y: y + h / 2 + 11, "text-anchor": "end" });
    const info = svg("text", { class: "kv-shape", x: x + pad, y: y + h / 2 + 11 });
    const group2 = svg("g", {
      class: "kv-node",
      "data-kv": "graph-node",
      "data-node": node,
      "data-graph": this.graph,
      "data-state": "pending",
      role: "graphics-symbol",
      "aria-label": `${op} ${name}`
    }, svg("title", {}, `${op}  ${name}`), svg("rect", { x, y, width: w, height: h, rx: 5 }), label2, letter);
    if (two) group2.append(info, second);
    this.#boxes.push({ g: group2, mark: letter, second, shape: info, room: w - 2 * pad, state: "", edges: [], name: `${op} ${name}` });
    return group2;
  }
  #stub([box, side, x, y, slot]) {
    const g = this.store.t.p.graphs[this.graph];
    const node = g.nodes[this.block.nodes[box]];
    const value = (side === "in" ? [...node[3], ...node[5]] : node[4])[slot] ?? -1;
    const [bx, by, w, h] = this.drawing.boxes[box];
    const name = g.values[value] ?? "";
    const cache = this.store.t.p.caches.findIndex((c) => c.input === name || c.output === name);
    const inside = Math.max(bx + 4, Math.min(x, bx + w - 4));
    return svg(
      "g",
      { class: "kv-stub", "data-value": value, "data-cache": cache < 0 ? null : cache },
      svg("title", {}, side === "in" ? `from elsewhere: ${name}` : `used elsewhere: ${name}`),
      svg("path", { d: `M${x} ${y}L${inside} ${side === "in" ? by : by + h}` }),
      svg("circle", { cx: x, cy: y, r: cache < 0 ? 2 : 4 })
    );
  }
  /** Show states by node of the graph; `steps` tells which step ran each node in the shown frame. */
  sync(states, steps, cursor, newFrame) {
    const { p } = this.store.t;
    const stale = /* @__PURE__ */ new Set();
    this.#boxes.forEach((box, i) => {
      const node = this.block.nodes[i];
      if (newFrame) this.#shape(box, steps[node]);
      const state = states[node];
      if (state === box.state && state !== "running") return;
      box.state = state;
      mark(box.g, "data-state", state);
      mark(box.g, "aria-label", `${box.name}, ${STATE_WORDS[state]}`);
      const flags = state === "running" ? p.step.flags[steps[node]] ?? 0 : 0;
      say(box.mark, LETTER[state]);
      say(box.second, state === "running" ? LETTER[outcome(flags)] : "");
      for (const e of box.edges) stale.add(e);
    });
    if (newFrame) this.#edges.forEach((_, e) => stale.add(e));
    for (const e of stale) this.#edge(e, states, steps, cursor);
  }
  #shape(box, step) {
    const { p } = this.store.t;
    const first = step >= 0 ? p.step.out[step] : 0;
    const info = step >= 0 && p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    say(box.shape, this.ruler.fit(shape(info), SMALL, box.room));
    say(box.g.firstElementChild, `${box.name}${info ? `
${info}` : ""}`);
  }
  #edge(at2, states, steps, cursor) {
    const edge = this.#edges[at2];
    const from = this.block.nodes[edge.from];
    const to = this.block.nodes[edge.to];
    const ran = (n) => steps[n] >= 0 && steps[n] <= cursor;
    let kind = !ran(from) ? "future" : ran(to) ? "past" : "ready";
    if (ran(to)) {
      const { p } = this.store.t;
      const nodes = p.graphs[this.graph].nodes;
      const own = nodes[to][3].some((v, slot) => p.step.taken[steps[to]] >> slot & 1 && nodes[from][4].includes(v));
      if (own) kind = "own";
    }
    if (states[to] === "running") kind += " now";
    if (kind === edge.shown) return;
    edge.shown = kind;
    mark(edge.el, "data-edge", kind);
  }
  light(nodes, values) {
    this.#boxes.forEach((box, i) => mark(box.g, "data-lit", nodes.has(this.block.nodes[i]) ? "1" : null));
    for (const stub of this.root.querySelectorAll(".kv-stub")) {
      mark(stub, "data-lit", values.has(Number(stub.dataset.value)) ? "1" : null);
    }
  }
  box(node) {
    return this.#boxes[this.block.nodes.indexOf(node)]?.g ?? null;
  }
};
function plainList(count2) {
  return el("div", { class: "kv-plain" }, `${count2} ops, not drawn; see the table of steps`);
}

// src/card.ts
var Card = class {
  constructor(store, graph, index, ruler) {
    this.store = store;
    this.graph = graph;
    this.index = index;
    this.ruler = ruler;
    const block = store.t.p.graphs[graph].blocks[index];
    this.nodes = block.nodes;
    const alike = block.alike > 1 ? el("span", { class: "kv-alike", title: `${plural(block.alike, "block")} with this drawing` }, `×${block.alike} alike`) : "";
    this.#head = el(
      "button",
      { type: "button", class: "kv-card-head", "data-kv": "block", "data-id": index, "aria-expanded": "false", title: block.path },
      el("span", { class: "kv-caret", "aria-hidden": "true" }),
      el("span", { class: "kv-title" }, block.title || "graph"),
      alike,
      this.#bad,
      this.#cost,
      this.#count,
      this.#bar
    );
    this.root = el("section", { class: "kv-card", "data-block": index }, this.#head, this.#body);
    const drawing = store.t.p.drawings[block.drawing];
    if (drawing) this.root.style.setProperty("--kv-h", `${drawing.h}px`);
  }
  store;
  graph;
  index;
  ruler;
  root;
  nodes;
  #head;
  #count = el("span", { class: "kv-count" });
  #cost = el("span", { class: "kv-cost" });
  #bad = el("span", { class: "kv-bad" });
  #bar = el("i", { class: "kv-progress" });
  #body = el("div", { class: "kv-card-body" });
  #view = null;
  #open = false;
  #shown = "";
  get open() {
    return this.#open;
  }
  /** Opens or folds; the drawing is made when it is first wanted. */
  setOpen(open, scene) {
    if (open === this.#open) return;
    this.#open = open;
    mark(this.root, "data-open", open ? "1" : null);
    mark(this.#head, "aria-expanded", String(open));
    if (!open) return this.#body.replaceChildren();
    const block = this.store.t.p.graphs[this.graph].blocks[this.index];
    const drawing = this.store.t.p.drawings[block.drawing];
    if (!drawing) return this.#body.append(plainList(this.nodes.length));
    this.#view ??= new DrawingView(this.store, this.graph, block, drawing, this.ruler);
    this.#view.sync(scene.states, scene.steps, scene.cursor, true);
    this.#view.light(scene.lit.nodes, scene.lit.values);
    this.#body.append(this.#view.root);
  }
  sync(scene) {
    const { step } = this.store.t.p;
    let done = 0, cost2 = 0, bad = 0, ready2 = false, here = false;
    for (const n of this.nodes) {
      const s = scene.steps[n];
      if (scene.states[n] === "frontier") ready2 = true;
      if (scene.states[n] === "running") here = true;
      if (s < 0 || s > scene.cursor) continue;
      done++;
      cost2 += step.alloc[s];
      if (step.flags[s] & 4) bad++;
    }
    const shown = `${done} ${cost2} ${bad} ${here} ${ready2}`;
    if (this.#open) this.#view?.sync(scene.states, scene.steps, scene.cursor, scene.newFrame);
    if (shown === this.#shown) return;
    this.#shown = shown;
    say(this.#count, `${done}/${this.nodes.length}`);
    say(this.#cost, cost2 ? `+${bytes(cost2)}` : "");
    say(this.#bad, bad ? `⚠︎ ${bad}` : "");
    set(this.#bar, "--kv-done", String(done / Math.max(1, this.nodes.length)));
    mark(this.root, "data-state", here ? "running" : ready2 ? "frontier" : done === this.nodes.length ? "done" : "pending");
  }
  light(lit) {
    mark(this.root, "data-lit", this.nodes.some((n) => lit.nodes.has(n)) ? "1" : null);
    if (this.#open) this.#view?.light(lit.nodes, lit.values);
  }
  box(node) {
    return this.#open ? this.#view?.box(node) ?? null : null;
  }
  get head() {
    return this.#head;
  }
};

// src/graph.ts
var OPEN_ALL = 60;
var GraphPane = class {
  constructor(host, store, commands, signal) {
    this.store = store;
    this.#ruler = new Ruler(getComputedStyle(host).fontFamily || "sans-serif");
    this.#follow = button("Follow", "Open the block under the cursor and keep it in view", "follow", () => {
      store.follow = !store.follow;
      this.#sync(true);
    }, signal);
    const tools = el(
      "div",
      { class: "kv-tools" },
      this.#follow,
      button("Unfold", "Unfold all blocks", "unfold", () => this.#all(true), signal),
      button("Fold", "Fold all blocks", "fold", () => this.#all(false), signal),
      button("100 %", "Fit the width, or true size (f)", "zoom", () => this.zoom(), signal, "f")
    );
    host.append(el("header", {}, this.#crumbs, tools), this.#list);
    this.#list.addEventListener("click", (event) => {
      const head = hit(event, "block");
      if (head) return this.#toggle(Number(head.dataset.id));
      const node = hit(event, "graph-node");
      if (node) return store.select({ kind: "node", id: Number(node.dataset.node), graph: this.#graph });
      const stub = event.target.closest(".kv-stub");
      if (stub) store.select({ kind: "value", id: Number(stub.dataset.value), graph: this.#graph });
      else store.select(null);
    }, { signal });
    this.#list.addEventListener("dblclick", (event) => {
      const node = hit(event, "graph-node");
      if (node) commands.choose(Number(node.dataset.node));
    }, { signal });
    this.#crumbs.addEventListener("click", (event) => {
      const crumb = hit(event, "crumb");
      if (crumb) store.seek(Number(crumb.dataset.step));
    }, { signal });
  }
  store;
  #cards = [];
  #decks = /* @__PURE__ */ new Map();
  // by graph, so that entering and leaving a body costs nothing
  #kept = /* @__PURE__ */ new Map();
  // blocks that a person opened or folded
  #shut = "";
  // a block that a person folded although the cursor is in it
  #graph = -1;
  #frame = -1;
  #signature = "";
  #list = el("div", { class: "kv-cards" });
  #crumbs = el("nav", { class: "kv-crumbs", "aria-label": "call stack" });
  #follow;
  #ruler;
  update(change) {
    const { store } = this;
    const { graphs, drawings } = store.t.p;
    if (change.payload) {
      const signature = JSON.stringify([graphs, drawings]);
      if (signature !== this.#signature) {
        this.#signature = signature;
        this.#kept.clear();
        this.#decks.clear();
        this.#graph = -1;
        const few = graphs.reduce((n, g) => n + g.order.length, 0) <= OPEN_ALL;
        if (few) graphs.forEach((g, i) => g.blocks.forEach((_, b) => this.#kept.set(`${i}:${b}`, true)));
      }
    }
    if (change.payload || change.cursor) this.#sync(change.payload);
    if (change.selection || change.payload) this.#light();
  }
  #scene(newFrame) {
    const { now, t, cursor } = this.store;
    return { states: now.states, steps: stepsOf(t, now.frame), cursor, lit: now.lit, newFrame };
  }
  #sync(fresh) {
    const { store } = this;
    const { now, t } = store;
    if (now.frame >= t.p.frames) return;
    let changed = fresh || now.frame !== this.#frame;
    if (now.graph !== this.#graph) {
      this.#graph = now.graph;
      this.#cards = this.#decks.get(now.graph) ?? t.p.graphs[now.graph].blocks.map((_, i) => new Card(store, now.graph, i, this.#ruler));
      this.#decks.set(now.graph, this.#cards);
      this.#list.replaceChildren(...this.#cards.map((c) => c.root));
      this.#list.scrollTop = 0;
      changed = true;
      this.#light();
    }
    this.#frame = now.frame;
    const scene = this.#scene(changed);
    const node = this.#focusNode();
    const here = t.x.graphs[now.graph].block[node] ?? -1;
    if (`${now.graph}:${here}` !== this.#shut) this.#shut = "";
    for (const card2 of this.#cards) {
      const key = `${now.graph}:${card2.index}`;
      const open = store.follow && card2.index === here && key !== this.#shut || (this.#kept.get(key) ?? false);
      card2.setOpen(open, scene);
      card2.sync(scene);
    }
    mark(this.#follow, "aria-pressed", String(store.follow));
    if (changed) this.#path();
    const card = this.#cards[here];
    if (store.follow && card) store.reveal(this.#list, card.box(node) ?? card.head, true);
  }
  /** The node to keep in view: the one that just ran, else the first that can. */
  #focusNode() {
    const { now, cursor, t } = this.store;
    if (cursor >= 0 && t.p.step.frame[cursor] === now.frame) return t.p.step.node[cursor];
    return now.next === now.frame ? now.choices[0]?.node ?? -1 : -1;
  }
  #light() {
    for (const card2 of this.#cards) card2.light(this.store.now.lit);
    const s = this.store.selection;
    if (s?.kind !== "node" || (s.graph ?? this.#graph) !== this.#graph) return;
    const card = this.#cards[this.store.t.x.graphs[this.#graph].block[s.id]];
    if (card) this.store.reveal(this.#list, card.box(s.id) ?? card.head, true);
  }
  #path() {
    const { t, now } = this.store;
    const { p } = t;
    const frames = stack(t, now.frame);
    const parts = [];
    frames.forEach((f, i) => {
      const text = i === 0 ? p.graphs[p.frame.graph[f]].name || "main" : p.strings[p.frame.label[f]];
      if (i > 0) parts.push(el("span", { class: "kv-sep", "aria-hidden": "true" }, "›"));
      const inner = frames[i + 1];
      const back2 = inner === void 0 ? -1 : stepsOf(t, f)[p.frame.node[inner]];
      parts.push(back2 >= 0 ? el("button", { type: "button", "data-kv": "crumb", "data-step": back2, title: `Go to step ${back2}, where ${text} goes on` }, text) : el("span", { class: inner === void 0 ? "kv-here" : "", title: text }, text));
    });
    this.#crumbs.replaceChildren(...parts);
  }
  #toggle(index) {
    const card = this.#cards[index];
    const key = `${this.#graph}:${index}`;
    const open = !card.open;
    this.#kept.set(key, open);
    this.#shut = open ? "" : key;
    card.setOpen(open, this.#scene(false));
  }
  #all(open) {
    for (const card of this.#cards) {
      this.#kept.set(`${this.#graph}:${card.index}`, open);
      card.setOpen(open, this.#scene(false));
    }
    if (!open) this.store.follow = false;
    mark(this.#follow, "aria-pressed", String(this.store.follow));
  }
  zoom() {
    const full = this.#list.dataset.zoom !== "full";
    if (full) this.#list.dataset.zoom = "full";
    else delete this.#list.dataset.zoom;
    const zoom = this.#list.parentElement.querySelector('[data-kv="zoom"]');
    say(zoom, full ? "Fit" : "100 %");
  }
  /** Unfold the block of a node that is to be shown (search, a jump). */
  showNode(node) {
    const index = this.store.t.x.graphs[this.#graph]?.block[node] ?? -1;
    const card = this.#cards[index];
    if (!card) return;
    this.#kept.set(`${this.#graph}:${index}`, true);
    card.setOpen(true, this.#scene(false));
    this.store.reveal(this.#list, card.box(node) ?? card.head, true);
  }
};

// src/keys.ts
var KEYS = [
  ["→ or n", "next op"],
  ["← or p", "previous op"],
  ["i", "into an If, Loop or function"],
  ["o", "out: to the end of this body or block"],
  ["c", "continue to the next breakpoint"],
  ["C", "continue backwards"],
  [". and ,", "same op, next or previous decode step"],
  ["Home, End", "first, last step"],
  ["g", "go to a step by number"],
  ["b", "breakpoint on the selection"],
  ["w", "why? explain the decision"],
  ["Enter", "run the selected frontier op next"],
  ["Space", "play, pause"],
  ["/", "search"],
  ["f", "fit the graph, or true size"],
  ["?", "this help"],
  ["Esc", "clear, close"]
];
function keys(root2, a, signal) {
  const { commands } = a;
  const moves = {
    ArrowRight: () => commands.next(),
    n: () => commands.next(),
    F10: () => commands.next(),
    ArrowLeft: () => commands.back(),
    p: () => commands.back(),
    "Shift+F10": () => commands.back(),
    i: () => commands.into(),
    F11: () => commands.into(),
    o: () => commands.out(),
    "Shift+F11": () => commands.out(),
    c: () => commands.continue(),
    C: () => commands.reverse(),
    ".": () => commands.nextRun(),
    ",": () => commands.previousRun(),
    Home: () => commands.first(),
    End: () => commands.last(),
    g: () => a.toolbar.focusGoto(),
    b: () => commands.toggleSelected(),
    w: () => commands.why(),
    " ": () => commands.play(),
    "/": () => a.search(),
    f: () => a.fit(),
    "?": () => a.help(),
    Escape: () => a.escape()
  };
  root2.addEventListener("keydown", (event) => {
    const target = event.target;
    const tag = target.tagName;
    const range = tag === "INPUT" && target.type === "range";
    const typing = tag === "INPUT" && !range && target.type !== "checkbox" || tag === "SELECT" || tag === "TEXTAREA";
    const { key } = event;
    if (typing) {
      event.stopPropagation();
      if (key === "Escape") {
        a.escape();
        root2.focus({ preventScroll: true });
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (range && /^(Arrow|Home|End|Page)/.test(key)) return event.stopPropagation();
    if ((key === " " || key === "Enter") && tag === "BUTTON") return event.stopPropagation();
    if (key === "Enter" && a.chooseSelected()) return stop(event);
    if (/^Page|^Arrow(Up|Down)$/.test(key)) return event.stopPropagation();
    const move = moves[event.shiftKey && key.startsWith("F") ? `Shift+${key}` : key];
    if (!move) return;
    if (key !== " ") commands.pause();
    stop(event);
    move();
  }, { signal });
}
function stop(event) {
  event.preventDefault();
  event.stopPropagation();
}

// src/help.ts
var BARS = [
  ["weights", "weights, all in one bar W"],
  ["cache", "a cache: dark valid rows, bright written in this run, pale reserved"],
  ["donated", "donated by the caller: the run may overwrite it"],
  ["caller", "borrowed from the caller: read only"],
  ["run", "owned by this run"]
];
var NOTES = [
  "B12 is a buffer; B12.3 is the same buffer after its contents were overwritten three times.",
  "The graph shows the frame of the op that just ran. Stepping on recorded steps asks nobody; past the end the kernel runs more.",
  "Bytes: allocated is new capacity, written is what kernels stored, copied is the part of it that existed already, live is what is held while the op runs. Kernel scratch is not counted."
];
function help() {
  const states = Object.keys(LETTER).map((s) => el("li", {}, el("span", { class: "kv-sample", "data-state": s }, LETTER[s] || " "), STATE_WORDS[s]));
  const bars = BARS.map(([origin, text]) => el("li", { class: "kv-mem-row", "data-origin": origin }, el("span", { class: "kv-track" }, el("i", { class: "kv-fill" })), text));
  return el(
    "div",
    { class: "kv-pop kv-help", role: "dialog", "aria-label": "Help", tabindex: -1, "data-kv": "help-panel" },
    el("div", {}, el("h4", {}, "Keys"), el("dl", {}, ...KEYS.flatMap(([k, text]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, text)]))),
    el("div", {}, el("h4", {}, "Ops"), el("ul", {}, ...states), el("h4", {}, "Buffers"), el("ul", {}, ...bars), ...NOTES.map((n) => el("p", { class: "kv-soft" }, n)))
  );
}

// src/memmap.ts
var MOST2 = 200;
var ORDER = { donated: 0, caller: 1, run: 2, pool: 2, weights: 3 };
var scales = /* @__PURE__ */ new WeakMap();
function scale(t, run2) {
  const { p, x } = t;
  let known2 = scales.get(t);
  if (!known2) scales.set(t, known2 = /* @__PURE__ */ new Map());
  let most = known2.get(run2);
  if (most === void 0) {
    most = 1;
    const see = (s) => {
      if (p.storage.origin[s] !== 0) most = Math.max(most, p.storage.capacity[s]);
    };
    const { first = 0, last = p.steps } = p.runs[run2] ?? {};
    for (let o = p.step.out[first]; o < p.step.out[Math.min(last, p.steps)]; o++) see(p.out.storage[o]);
    for (let b = 0; b < p.bind.value.length; b++) if (p.frame.run[x.bindFrame[b]] === run2) see(p.bind.storage[b]);
    known2.set(run2, most);
  }
  return most;
}
function cachesNow(t, run2, cursor) {
  const { p, x } = t;
  const rows = /* @__PURE__ */ new Map();
  p.caches.forEach((c, cache) => {
    const s = c.storage[run2];
    const before = run2 > 0 ? c.valid[run2 - 1] : 0;
    if (run2 > 0 && c.storage[run2 - 1] >= 0) rows.set(c.storage[run2 - 1], { cache, before, valid: before, capacity: c.capacity[run2 - 1], again: false });
    const out2 = s === void 0 || s < 0 ? -1 : lastOut(t, s, cursor);
    if (out2 >= 0 && x.outStep[out2] >= p.runs[run2].first) {
      rows.set(s, { cache, before, valid: c.valid[run2], capacity: c.capacity[run2], again: before > 0 && c.copied[run2] > 0 });
    }
  });
  return rows;
}
function describe2(t, s, cursor, frames) {
  const { p } = t;
  const held = valuesIn(t, s, cursor, frames);
  const live = held.filter((h) => h.readers > 0 || h.output);
  const shown = live.length ? live : held;
  const names = [...new Set(shown.map((h) => shortValue(p.graphs[p.frame.graph[h.frame]].values[h.value])))];
  const capacity = p.storage.capacity[s] || 1;
  const parts = [];
  for (const h of shown) {
    const [offset, length] = h.place.from === "bind" ? [p.bind.offset[h.place.entry], p.bind.bytes[h.place.entry]] : [p.out.offset[h.place.entry], p.out.bytes[h.place.entry]];
    if (length < capacity && !parts.some(([a, b]) => a === offset / capacity && b === length / capacity)) parts.push([offset / capacity, length / capacity]);
  }
  const label2 = names.length > 1 ? `${names[0]} +${names.length - 1}` : names[0] ?? shortValue(p.strings[p.storage.name[s]]);
  return { label: label2, parts };
}
function memory(t, now, cursor, unfold, keep) {
  const { p, x } = t;
  const frames = stack(t, now.frame);
  const caches = cachesNow(t, now.run, cursor);
  const use = /* @__PURE__ */ new Map();
  const freed = /* @__PURE__ */ new Set();
  if (cursor >= 0) {
    const { reads, writes } = touched(t, cursor);
    for (const s of reads) use.set(s, "read");
    for (const s of writes) use.set(s, "written");
    for (let k = p.step.free[cursor]; k < p.step.free[cursor + 1]; k++) freed.add(p.free.storage[k]);
  }
  const full = scale(t, now.run);
  const held = { weights: x.weights, caller: 0, caches: 0, run: 0 };
  const small = { count: 0, bytes: 0 };
  const more = { count: 0, bytes: 0 };
  const rank = (s) => caches.has(s) ? -1 : ORDER[ORIGINS[p.storage.origin[s]]];
  const there = alive(t, cursor).filter((s) => p.storage.origin[s] !== 0);
  for (const s of there) {
    const of = caches.has(s) ? "caches" : ORIGINS[p.storage.origin[s]] === "caller" || ORIGINS[p.storage.origin[s]] === "donated" ? "caller" : "run";
    held[of] += p.storage.capacity[s];
  }
  const tiny = (s) => rank(s) > 0 && p.storage.capacity[s] < full * 0.02 && !use.has(s) && !keep.has(s);
  const folds = !unfold && there.filter(tiny).length >= 6;
  const all = [...there, ...[...freed].filter((s) => !there.includes(s))].sort((a, b) => rank(a) - rank(b) || a - b);
  const bars = [];
  for (const s of all) {
    const capacity = p.storage.capacity[s];
    const skip = freed.has(s) ? null : folds && tiny(s) ? small : bars.length >= MOST2 && !use.has(s) && !keep.has(s) ? more : null;
    if (skip) {
      skip.count++;
      skip.bytes += capacity;
      continue;
    }
    const gen = generation(t, s, cursor);
    const row = caches.get(s);
    const { label: label2, parts } = row ? { label: shortValue(p.caches[row.cache].name), parts: [] } : describe2(t, s, cursor, frames);
    const written = use.get(s) === "written";
    const flags = written ? p.step.flags[cursor] : 0;
    const state = freed.has(s) ? "freed" : flags & 1 ? "inplace" : flags & 4 ? "copied" : written && x.born[s] === cursor ? "new" : "";
    const rows = row ? `${row.valid !== row.before && row.before > 0 ? `${row.before}→` : ""}${row.valid} / ${row.capacity}` : "";
    const note = state === "freed" ? "freed" : row ? rows : state === "copied" ? "missed" : state === "new" ? "new" : gen > 0 ? `↺ ${gen}×` : "";
    bars.push({
      id: s,
      gen,
      capacity,
      origin: ORIGINS[p.storage.origin[s]],
      cache: row?.cache ?? -1,
      state,
      use: use.get(s) ?? "",
      label: label2,
      note,
      parts,
      again: row?.again ?? false,
      valid: row && row.capacity > 0 ? [Math.min(row.before, row.valid) / row.capacity, row.valid / row.capacity] : null
    });
  }
  return { bars, small, more, held };
}
function title(t, b, cursor) {
  const { p, x } = t;
  const out2 = lastOut(t, b.id, cursor);
  const step = out2 < 0 ? -1 : x.outStep[out2];
  const g = step < 0 ? null : p.graphs[p.frame.graph[p.step.frame[step]]];
  const maker = g ? `
written last in step ${step} by ${opName(g.nodes[p.step.node[step]][1])} ${shortName(g, p.step.node[step])}` : "";
  const owner = { donated: "donated by the caller", caller: "borrowed from the caller", run: "owned by this run", pool: "from the run's pool", weights: "weights" }[b.origin];
  const rows = b.valid ? ` rows valid of those reserved${b.again ? "; the older ones were copied in this run" : ""}` : "";
  return `B${b.id}${b.gen ? `.${b.gen}` : ""} · ${bytes(b.capacity)} · ${owner}${b.gen ? ` · overwritten ${b.gen}×` : ""}
${b.label} ${b.note}${rows}${maker}`;
}

// src/memory.ts
var SIGN = { "": "", inplace: "", copied: "⚠︎", new: "+", freed: "" };
var PARTS = [["weights", "weights"], ["caches", "caches"], ["caller", "caller"], ["run", "run"]];
var idOf = (b) => b.gen > 0 ? `B${b.id}.${b.gen}` : `B${b.id}`;
var MemoryPane = class {
  constructor(host, store, signal) {
    this.store = store;
    host.append(el("header", {}, el("h3", {}, "Buffers"), this.#total), this.#stack, this.#legend, this.#list);
    for (const [key, text] of PARTS) {
      this.#stack.append(el("i", { "data-part": key }));
      this.#legend.append(el("span", { "data-part": key }, el("i", {}), `${text} `, el("b", {})));
    }
    this.#small.addEventListener("click", () => {
      this.#unfold = !this.#unfold;
      this.#draw();
    }, { signal });
    this.#list.addEventListener("pointerover", (event) => {
      const row = hit(event, "storage-bar");
      const bar = row && this.#rows.get(Number(row.dataset.id))?.bar;
      if (bar) row.title = title(store.t, bar, store.cursor);
    }, { signal });
    this.#list.addEventListener("click", (event) => {
      const row = hit(event, "storage-bar");
      const { selection } = store;
      if (!row || row === this.#weights.root) return;
      const id = Number(row.dataset.id);
      store.select(selection?.kind === "storage" && selection.id === id ? null : { kind: "storage", id });
    }, { signal });
  }
  store;
  #total = el("span", { class: "kv-hint" });
  #stack = el("div", { class: "kv-stack", "aria-hidden": "true" });
  #legend = el("div", { class: "kv-legend" });
  #list = el("div", { class: "kv-mem", role: "list", "aria-label": "Buffers" });
  #weights = this.#row();
  #small = el("button", { type: "button", class: "kv-fold", "data-kv": "memory-fold" });
  #more = el("p", { class: "kv-none" });
  #rows = /* @__PURE__ */ new Map();
  #unfold = false;
  /** Buffer, bar, what lies in it, bytes. */
  #row() {
    const id = el("span", { class: "kv-id" });
    const fill2 = el("i", { class: "kv-fill" });
    const label2 = el("span", { class: "kv-label" });
    const note = el("span", { class: "kv-note" });
    const size = el("span", { class: "kv-num" });
    const root2 = el("div", { class: "kv-mem-row", role: "listitem", "data-kv": "storage-bar" }, id, el("span", { class: "kv-track" }, fill2), el("span", { class: "kv-text" }, label2, note), size);
    return { bar: null, root: root2, id, fill: fill2, label: label2, note, size, shown: "" };
  }
  update(change) {
    if (change.payload) this.#rows.clear();
    if (change.cursor || change.payload || change.selection) this.#draw();
  }
  #draw() {
    const { store } = this;
    const { now, t, cursor } = store;
    const m = memory(t, now, cursor, this.#unfold, now.lit.storages);
    const full = scale(t, now.run);
    const total = m.held.weights + m.held.caches + m.held.caller + m.held.run;
    say(this.#total, `${bytes(total)} held after this step`);
    PARTS.forEach(([key], i) => {
      this.#stack.children[i].style.flexGrow = String(m.held[key]);
      say(this.#legend.children[i].lastElementChild, bytes(m.held[key]));
      this.#legend.children[i].hidden = m.held[key] === 0;
    });
    this.#weightsRow(t.x.weights, full);
    const nodes = t.x.weights ? [this.#weights.root] : [];
    let active = null;
    const seen = /* @__PURE__ */ new Set();
    for (const bar of m.bars) {
      let row = this.#rows.get(bar.id);
      if (!row) this.#rows.set(bar.id, row = this.#row());
      this.#show(row, bar, full, now.lit.storages.has(bar.id));
      if (bar.use === "written" && bar.state !== "freed") active = row.root;
      nodes.push(row.root);
      seen.add(bar.id);
    }
    for (const id of this.#rows.keys()) if (!seen.has(id)) this.#rows.delete(id);
    if (m.small.count || this.#unfold) {
      say(this.#small, this.#unfold ? "▾ fold small buffers" : `▸ ${count(m.small.count)} small buffers, ${bytes(m.small.bytes)}`);
      nodes.push(this.#small);
    }
    if (m.more.count) {
      say(this.#more, `${count(m.more.count)} more, ${bytes(m.more.bytes)}`);
      nodes.push(this.#more);
    }
    this.#place(nodes);
    const width = Math.max(3, ...m.bars.map((b) => idOf(b).length));
    set(this.#list, "--kv-digits", String(Math.max(width, 5)));
    if (active) store.reveal(this.#list, active);
  }
  /** Put rows in order, moving only those that are out of place. */
  #place(nodes) {
    nodes.forEach((node, i) => {
      if (this.#list.children[i] !== node) this.#list.insertBefore(node, this.#list.children[i] ?? null);
    });
    while (this.#list.children.length > nodes.length) this.#list.lastElementChild.remove();
  }
  #weightsRow(weights, full) {
    const row = this.#weights;
    mark(row.root, "data-id", "W");
    mark(row.root, "data-origin", "weights");
    say(row.id, "W");
    say(row.label, "all weights");
    say(row.size, bytes(weights));
    row.fill.style.width = `${Math.min(100, weights / full * 100)}%`;
    mark(row.fill, "data-cut", weights > full ? "1" : null);
    row.root.title = `weights, ${bytes(weights)}${weights > full ? "; the bar is cut off" : ""}`;
  }
  #show(row, b, full, lit) {
    const key = JSON.stringify([b, full, lit]);
    if (key === row.shown) return;
    row.shown = key;
    row.bar = b;
    const { root: root2, fill: fill2 } = row;
    mark(root2, "data-id", b.id);
    mark(root2, "data-origin", b.cache >= 0 ? "cache" : b.origin);
    mark(root2, "data-state", b.state || null);
    mark(root2, "data-use", b.use || null);
    mark(root2, "data-lit", lit ? "1" : null);
    say(row.id, idOf(b));
    say(row.label, b.label);
    say(row.note, `${SIGN[b.state]} ${b.note}`.trim());
    say(row.size, bytes(b.capacity));
    mark(fill2, "data-cut", b.capacity > full ? "1" : null);
    fill2.style.width = b.capacity > full ? "100%" : `max(3px, ${(b.capacity / full * 100).toFixed(2)}%)`;
    const inner = [];
    const part = (kind, from, length) => {
      const i = el("i", { "data-part": kind });
      i.style.left = `${from * 100}%`;
      i.style.width = `${length * 100}%`;
      inner.push(i);
    };
    if (b.valid) {
      part(b.again ? "again" : "valid", 0, b.valid[0]);
      part("fresh", b.valid[0], b.valid[1] - b.valid[0]);
    } else for (const [from, length] of b.parts.slice(0, 8)) part("view", from, length);
    fill2.replaceChildren(...inner);
  }
};

// src/menu.ts
var KINDS = [
  ["op", "op type", "Softmax"],
  ["node", "node", "name of a node"],
  ["buffer", "buffer", "B12"],
  ["decision", "decision", "missed"],
  ["condition", "condition (Python)", "step.copied > 1000"]
];
var BreakpointMenu = class {
  constructor(host, store, commands, signal) {
    this.store = store;
    this.commands = commands;
    this.#here = button("", "Toggle a breakpoint on the selection (b)", "breakpoint-selection", () => commands.toggleSelected(), signal, "b");
    const missed2 = button("an op that could be in place is not", "Toggle", "breakpoint-missed", () => commands.toggle("decision", "missed"), signal);
    const add = button("Add", "Add this breakpoint", "breakpoint-add", () => this.#add(), signal);
    this.#names.id = `kv-ops-${Math.random().toString(36).slice(2)}`;
    this.#value.setAttribute("list", this.#names.id);
    this.root = el(
      "div",
      { class: "kv-pop kv-menu", role: "dialog", "aria-label": "Breakpoints", "data-kv": "breakpoint-menu" },
      el("h4", {}, "Continue stops at"),
      this.#list,
      el("h4", {}, "Add"),
      el("div", { class: "kv-rowline" }, this.#here, missed2),
      el("div", { class: "kv-rowline" }, this.#kind, this.#value, this.#names, add)
    );
    this.root.hidden = true;
    host.append(this.root);
    this.#kind.addEventListener("change", () => this.#hint(), { signal });
    this.#value.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#add();
    }, { signal });
    this.#list.addEventListener("change", (event) => {
      const at2 = Number(event.target.dataset.id);
      store.setBreakpoints(store.breakpoints.map((b, i) => i === at2 ? { ...b, enabled: !b.enabled } : b));
    }, { signal });
    this.#list.addEventListener("click", (event) => {
      const gone = hit(event, "breakpoint-remove");
      if (gone) store.setBreakpoints(store.breakpoints.filter((_, i) => i !== Number(gone.dataset.id)));
    }, { signal });
  }
  store;
  commands;
  root;
  #list = el("ul", { "aria-label": "Breakpoints" });
  #here;
  #kind = el("select", { "aria-label": "Kind of breakpoint" });
  #value = el("input", { type: "text", "aria-label": "Stop at" });
  #names = el("datalist");
  toggle() {
    this.root.hidden = !this.root.hidden;
    if (!this.root.hidden) this.#kind.focus({ preventScroll: true });
    else this.root.closest(".kvviz")?.focus({ preventScroll: true });
  }
  /** What may be written for the chosen kind: an example, and a list where there is one. */
  #hint() {
    const kind = this.#kind.value;
    const { graphs } = this.store.t.p;
    this.#value.placeholder = KINDS.find(([k]) => k === kind)?.[2] ?? "";
    const known2 = kind === "decision" ? DECISIONS : kind === "op" || kind === "node" ? [...new Set(graphs.flatMap((g) => g.order.map((n) => g.nodes[n][kind === "op" ? 1 : 0])))].sort() : [];
    this.#names.replaceChildren(...known2.slice(0, 500).map((value) => el("option", { value })));
  }
  #add() {
    const kind = this.#kind.value;
    const text = this.#value.value.trim() || (kind === "decision" ? "missed" : "");
    if (!text) return;
    if (kind === "decision" && !DECISIONS.includes(text)) return this.store.tell(`decisions are ${DECISIONS.join(", ")}`);
    if (kind === "buffer" && Number.isNaN(storageId(text))) return this.store.tell(`${text} is not a buffer; write B12`);
    this.commands.toggle(kind, kind === "buffer" ? storageId(text) : text);
    this.#value.value = "";
    if (kind === "condition") this.store.tell("a condition is looked at by the kernel");
  }
  update(change) {
    const { store } = this;
    if (change.payload) {
      const kinds = store.t.p.breakpoint_kinds;
      this.#kind.replaceChildren(...KINDS.filter(([k]) => kinds.includes(k)).map(([k, text]) => el("option", { value: k }, text)));
      this.#hint();
    }
    if (change.breakpoints) {
      const rows = store.breakpoints.map((b, i) => el(
        "li",
        { "data-kv": "breakpoint", "data-id": i },
        el("label", { title: label(b) }, el("input", { type: "checkbox", "data-id": i, checked: b.enabled }), el("span", {}, label(b))),
        el("button", { type: "button", "data-kv": "breakpoint-remove", "data-id": i, "aria-label": `Remove ${label(b)}` }, "✕")
      ));
      this.#list.replaceChildren(...rows.length ? rows : [el("li", { class: "kv-none" }, "nothing yet")]);
    }
    if (change.selection || change.cursor || change.payload) {
      const here = breakpointFor(store);
      this.#here.disabled = !here;
      say(this.#here, here ? `${here.text}` : "no selection");
    }
  }
};

// src/missed.ts
function cost({ p }, step) {
  let block = -1;
  for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
    if (block < 0 || p.block.bytes[k] > p.block.bytes[block]) block = k;
  }
  const bytes2 = block < 0 ? 0 : p.block.bytes[block];
  return { bytes: bytes2 > 0 ? bytes2 : p.step.alloc[step], block };
}
function missed(t) {
  const { p } = t;
  const groups = /* @__PURE__ */ new Map();
  for (let i = 0; i < p.steps; i++) {
    if (!(p.step.flags[i] & FLAG.missed)) continue;
    const graph = p.frame.graph[p.step.frame[i]];
    const key = graph * 2 ** 24 + p.step.node[i];
    let entry = groups.get(key);
    if (!entry) groups.set(key, entry = { graph, node: p.step.node[i], steps: [], bytes: 0, message: "", code: "", worst: -1 });
    const { bytes: bytes2, block } = cost(t, i);
    entry.steps.push(i);
    entry.bytes += bytes2;
    if (bytes2 > entry.worst) {
      entry.worst = bytes2;
      entry.message = block < 0 ? p.strings[p.step.rule[i]] : p.strings[p.block.message[block]];
      entry.code = block < 0 ? "" : p.strings[p.block.code[block]];
    }
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes || a.steps[0] - b.steps[0]);
}
function occurrence(m, cursor) {
  return m.steps.find((s) => s > cursor) ?? m.steps[0];
}

// src/missedpane.ts
var MOST3 = 300;
var MissedPane = class {
  constructor(host, store, signal) {
    this.store = store;
    const columns = [["kv-num", "bytes"], ["", "op"], ["", "name"], ["", "block"], ["kv-num", "times"], ["", "blocked by"], ["", "why"]];
    host.append(el("div", { class: "kv-scroll" }, el(
      "table",
      { class: "kv-table kv-missed", "aria-label": "Missed in-place ops" },
      el("thead", {}, el("tr", {}, ...columns.map(([c, text]) => el("th", { scope: "col", class: c }, text)))),
      this.#body
    )));
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "missed-row");
      if (!row) return;
      const m = this.#list[Number(row.dataset.id)];
      store.seek(occurrence(m, store.cursor));
      store.select({ kind: "node", id: m.node, graph: m.graph });
    }, { signal });
  }
  store;
  #list = [];
  #body = el("tbody");
  get count() {
    return this.#list.length;
  }
  update(change) {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      this.#list = missed(store.t);
      const rows = this.#list.slice(0, MOST3).map((m, i) => {
        const g = p.graphs[m.graph];
        return el(
          "tr",
          { "data-kv": "missed-row", "data-id": i, "data-node": m.node, "data-step": m.steps[0], title: `${g.nodes[m.node][0]}
steps ${m.steps.slice(0, 12).join(", ")}${m.steps.length > 12 ? " …" : ""}` },
          el("td", { class: "kv-num" }, el("b", {}, bytes(m.bytes))),
          el("td", { class: "kv-op" }, opName(g.nodes[m.node][1])),
          el("td", {}, shortName(g, m.node)),
          el("td", { class: "kv-soft" }, g.blocks[store.t.x.graphs[m.graph].block[m.node]]?.title ?? ""),
          el("td", { class: "kv-num" }, `${count(m.steps.length)}×`),
          el("td", {}, el("code", {}, m.code)),
          el("td", { class: "kv-wide" }, m.message)
        );
      });
      if (!rows.length) rows.push(el("tr", {}, el("td", { colspan: 7, class: "kv-none" }, "Nothing missed: every op that could run in place did.")));
      if (this.#list.length > MOST3) rows.push(el("tr", {}, el("td", { colspan: 7, class: "kv-none" }, `${count(this.#list.length - MOST3)} more`)));
      this.#body.replaceChildren(...rows);
    }
    if (change.cursor || change.payload || change.selection) {
      const { cursor, selection } = store;
      for (const row of this.#body.querySelectorAll('[data-kv="missed-row"]')) {
        const m = this.#list[Number(row.dataset.id)];
        mark(row, "aria-current", cursor >= 0 && p.step.node[cursor] === m.node && p.frame.graph[p.step.frame[cursor]] === m.graph && m.steps.includes(cursor) ? "step" : null);
        mark(row, "data-lit", selection?.kind === "node" && selection.id === m.node && selection.graph === m.graph ? 1 : null);
      }
    }
  }
};

// src/step.ts
var BADGES = {
  inplace: ["↺", "in place"],
  copied: ["⚠︎", "missed: not in place"],
  view: ["v", "a view: no bytes moved"],
  foreign: ["f", "foreign kernel: never in place"],
  done: ["", "new buffer"]
};
var StepPane = class {
  constructor(host, store, signal) {
    this.store = store;
    host.append(this.#body);
    this.#body.addEventListener("click", (event) => {
      const chip = hit(event, "buffer");
      if (chip) return store.select({ kind: "storage", id: Number(chip.dataset.id) });
      const value = hit(event, "value");
      if (value) store.select({ kind: "value", id: Number(value.dataset.id), graph: Number(value.dataset.graph) });
    }, { signal });
  }
  store;
  #body = el("div", { class: "kv-step" });
  update(change) {
    if (change.cursor || change.payload) this.#body.replaceChildren(...this.store.cursor < 0 ? this.#before() : this.#step(this.store.cursor));
    if (change.cursor || change.payload || change.selection) {
      const { storages } = this.store.now.lit;
      for (const chip of this.#body.querySelectorAll('[data-kv="buffer"]')) {
        mark(chip, "data-lit", storages.has(Number(chip.dataset.id)) ? "1" : null);
      }
    }
  }
  #before() {
    const { p, x } = this.store.t;
    return [
      el("h3", {}, "This step"),
      el("p", { class: "kv-big" }, "Before the first step"),
      el("p", { class: "kv-soft" }, `${p.title || "graph"}: ${count(p.steps)} steps recorded${p.runs.length > 1 ? ` in ${p.runs.length} runs` : ""}, weights ${bytes(x.weights)}.`),
      el("p", { class: "kv-soft" }, "Press Next, or → on the keyboard. ? lists all keys.")
    ];
  }
  #chip(storage, gen) {
    const { p } = this.store.t;
    return el("button", { type: "button", class: "kv-chip", "data-kv": "buffer", "data-id": storage, "data-origin": ORIGINS[p.storage.origin[storage]], title: `${bytes(p.storage.capacity[storage])}, ${ORIGINS[p.storage.origin[storage]]}; choose it to light it everywhere` }, buffer(p, storage, gen));
  }
  #value(graph, value) {
    const name = this.store.t.p.graphs[graph].values[value];
    return el("button", { type: "button", class: "kv-value", "data-kv": "value", "data-id": value, "data-graph": graph, title: name }, shortValue(name));
  }
  #step(step) {
    const { t } = this.store;
    const { p } = t;
    const frame = p.step.frame[step];
    const graph = p.frame.graph[frame];
    const g = p.graphs[graph];
    const node = p.step.node[step];
    const [name, op, , inputs] = g.nodes[node];
    const flags = p.step.flags[step];
    const kind = outcome(flags);
    const [sign, words] = BADGES[kind] ?? BADGES.done;
    const first = p.step.out[step];
    const how = OUT_HOW[p.out.how[first]] ?? "";
    const said = kind === "inplace" && how === "append" ? "in place: appended" : kind === "done" && how === "pool" ? "buffer from the pool" : kind === "done" && flags & FLAG.control ? "body done" : words;
    const parts = [
      el("h3", {}, "This step", frame >= 0 && p.frame.parent[frame] >= 0 ? el("span", { class: "kv-hint" }, stack(t, frame).slice(1).map((f) => p.strings[p.frame.label[f]]).join(" › ")) : ""),
      el("p", { class: "kv-big", title: name }, opName(op), el("span", { class: "kv-name" }, shortName(g, node))),
      el(
        "p",
        { class: "kv-badge", "data-state": kind, "data-kv": "decision" },
        el("b", { "aria-hidden": "true" }, sign),
        said,
        flags & FLAG.foreign && kind !== "foreign" ? el("span", { class: "kv-soft" }, " · foreign kernel") : ""
      ),
      el("p", { class: "kv-sentence" }, p.strings[p.step.sentence[step]])
    ];
    const facts = [["alloc", "allocated"], ["written", "written"], ["copied", "copied"]];
    parts.push(el("dl", { class: "kv-facts" }, ...facts.map(([column, text]) => el("div", { "data-zero": p.step[column][step] === 0 ? 1 : null }, el("dt", {}, text), el("dd", {}, bytes(p.step[column][step]))))));
    parts.push(this.#places(step, frame, graph, inputs), this.#blockers(step, graph, inputs));
    const rule = p.strings[p.step.rule[step]];
    if (rule) parts.push(el("p", { class: "kv-rule" }, el("b", {}, "Rule "), rule));
    return parts;
  }
  #blockers(step, graph, inputs) {
    const { p } = this.store.t;
    const lost = p.step.flags[step] & FLAG.missed;
    const list = el("ul", { class: "kv-blockers", "data-missed": lost ? 1 : null, "aria-label": "Why not in place" });
    for (let k = p.step.block[step]; k < p.step.block[step + 1]; k++) {
      const value = inputs[p.block.input[k]] ?? -1;
      const message = p.strings[p.block.message[k]];
      const culprit = p.strings[p.block.culprit[k]];
      const about = [];
      if (value >= 0) about.push("input ", this.#value(graph, value));
      if (culprit && !message.includes(culprit)) about.push(`${about.length ? " · " : ""}culprit ${culprit}`);
      list.append(el(
        "li",
        { "data-kv": "blocker", "data-id": p.strings[p.block.code[k]] },
        el("div", {}, el("code", {}, p.strings[p.block.code[k]]), el("span", { class: "kv-num" }, lost && p.block.bytes[k] ? bytes(p.block.bytes[k]) : "")),
        el("p", {}, message),
        about.length ? el("p", { class: "kv-soft" }, ...about) : ""
      ));
    }
    list.hidden = !list.firstChild;
    return list;
  }
  #places(step, frame, graph, inputs) {
    const { t } = this.store;
    const { p } = t;
    const table = el("table", { class: "kv-places" });
    const row = (side, sign, title2, value, chips, info, how) => table.append(el(
      "tr",
      { "data-side": side, title: how },
      el("th", { scope: "row", title: title2 }, sign),
      el("td", {}, this.#value(graph, value)),
      el("td", {}, ...chips),
      el("td", { class: "kv-shape", title: info }, shape(info)),
      el("td", { class: "kv-soft", title: how }, how)
    ));
    inputs.forEach((value, slot) => {
      if (value < 0) return;
      const place = placeOf(t, frame, value, step - 1);
      const taken = p.step.taken[step] >> slot & 1;
      row("in", taken ? "↺" : "in", taken ? "taken: its buffer was handed over" : "read", value, place ? [this.#chip(place.storage, place.gen)] : ["–"], place ? this.#info(place) : "", place ? this.#owner(place) : "");
    });
    for (let o = p.step.out[step]; o < p.step.out[step + 1]; o++) {
      if (p.out.value[o] < 0) continue;
      row("out", "out", "written", p.out.value[o], [this.#chip(p.out.storage[o], p.out.gen[o])], p.strings[p.out.info[o]], p.out.how[o] > 1 ? OUT_HOW[p.out.how[o]] ?? "" : "");
    }
    return table;
  }
  #info(place) {
    const { p } = this.store.t;
    return p.strings[place.from === "bind" ? p.bind.info[place.entry] : p.out.info[place.entry]];
  }
  #owner(place) {
    const { p } = this.store.t;
    if (place.from === "bind") return BIND_HOW[p.bind.how[place.entry]] ?? "";
    return OUT_HOW[p.out.how[place.entry]] === "view" ? "view" : "";
  }
};

// src/story.ts
var Story = class {
  constructor(host, store, commands, signal) {
    this.store = store;
    this.root = el("div", { class: "kv-story" }, this.#words, el("div", { class: "kv-runs" }, this.#slider, this.#text));
    host.append(this.root);
    this.#words.addEventListener("click", (event) => {
      const word = hit(event, "story-word");
      if (word) commands.toRun(Number(word.dataset.id));
    }, { signal });
    this.#slider.addEventListener("input", () => commands.toRun(this.#slider.valueAsNumber), { signal });
  }
  store;
  root;
  #words = el("div", { class: "kv-words", role: "group", "aria-label": "Words told so far" });
  #slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Decode step", "data-kv": "decode-slider" });
  #text = el("output", { class: "kv-run" });
  #run = -2;
  update(change) {
    const { p } = this.store.t;
    if (change.payload) {
      this.root.hidden = p.runs.length < 2 && p.story.length === 0;
      this.#slider.max = String(Math.max(0, p.runs.length - 1));
      const words = p.story.length ? p.story : p.runs.map((r, run3) => ({ text: r.label, run: run3, prompt: false }));
      this.#words.replaceChildren(...words.map((w) => el("button", {
        type: "button",
        tabindex: -1,
        class: w.prompt ? "kv-word kv-prompt" : "kv-word",
        "data-kv": "story-word",
        "data-id": w.run ?? 0,
        title: w.prompt ? "prompt: read in the first run" : p.runs[w.run ?? 0]?.label ?? ""
      }, w.text === "" ? "∅" : w.text)));
      if (p.live && p.story.length) this.#words.append(el("span", { class: "kv-word kv-more", title: "more can be run" }, "…"));
      this.#run = -2;
    }
    if (!change.cursor && !change.payload) return;
    const run2 = this.store.cursor < 0 ? -1 : this.store.run;
    if (run2 === this.#run) return;
    this.#run = run2;
    const at2 = Math.max(0, run2);
    this.#slider.value = String(at2);
    const label2 = p.runs[at2]?.label ?? "";
    this.#slider.setAttribute("aria-valuetext", `${label2}, ${at2 + 1} of ${p.runs.length}`);
    say(this.#text, `${label2} · ${at2 + 1}/${p.runs.length}`);
    let now = null;
    for (const word of this.#words.querySelectorAll('[data-kv="story-word"]')) {
      const mine = Number(word.dataset.id);
      const prompt = word.classList.contains("kv-prompt");
      const state = prompt ? "prompt" : mine === run2 ? "now" : mine < run2 ? "said" : "later";
      mark(word, "data-state", state);
      mark(word, "aria-current", state === "now" ? "step" : null);
      if (state === "now") now = word;
    }
    this.store.reveal(this.#words, now ?? this.#words.firstElementChild ?? this.#words);
  }
};

// src/search.ts
var DECISIONS2 = { missed: FLAG.missed, "in place": FLAG.inPlace, view: FLAG.view, foreign: FLAG.foreign };
function buffers({ p, x }, storage, gen) {
  const steps = /* @__PURE__ */ new Set();
  if (storage >= p.storages) return steps;
  for (let i = x.outs.start[storage]; i < x.outs.start[storage + 1]; i++) {
    if (gen === null || p.out.gen[x.outs.ids[i]] === gen) steps.add(x.outStep[x.outs.ids[i]]);
  }
  return steps;
}
function find(t, text) {
  const { p } = t;
  const query = text.toLowerCase();
  const found = [];
  const buffer2 = /^b(\d+)(?:\.(\d+))?$/.exec(query);
  if (buffer2) {
    const storage = Number(buffer2[1]);
    const gen = buffer2[2] === void 0 ? null : Number(buffer2[2]);
    const wrote = buffers(t, storage, gen);
    for (let i = 0; i < p.steps; i++) {
      if (wrote.has(i)) found.push(i);
      else {
        const f = p.step.frame[i];
        const reads = p.graphs[p.frame.graph[f]].nodes[p.step.node[i]][3];
        const read = reads.some((v) => {
          const place = placeOf(t, f, v, i - 1);
          return place?.storage === storage && (gen === null || place.gen === gen);
        });
        if (read) found.push(i);
      }
    }
    return Int32Array.from(found);
  }
  const flag = DECISIONS2[query];
  const hits = p.graphs.map((g) => Uint8Array.from(g.nodes, ([name, op, scope, inputs, outputs]) => {
    const values = [...inputs, ...outputs].map((v) => g.values[v] ?? "").join(" ");
    return `${op} ${name} ${scope} ${values}`.toLowerCase().includes(query) ? 1 : 0;
  }));
  for (let i = 0; i < p.steps; i++) {
    if (flag && p.step.flags[i] & flag || hits[p.frame.graph[p.step.frame[i]]][p.step.node[i]]) found.push(i);
  }
  return Int32Array.from(found);
}

// src/table.ts
var ROW = 22;
var WORDS = { inplace: "↺ in place", copied: "⚠︎ not in place", view: "v view", foreign: "f foreign", done: "new buffer" };
var COLUMNS = ["step", "run", "block", "op", "name", "decision", "output", "allocated", "copied", "written", "live"];
var LEFT = 7;
var StepTable = class {
  constructor(host, store, signal) {
    this.store = store;
    const head = el("tr", {}, ...COLUMNS.map((c, i) => el("th", { scope: "col", class: i >= LEFT || i === 0 ? "kv-num" : "", "data-column": c }, c)));
    this.#table.append(el("thead", {}, head), this.#body);
    this.#scroll.append(this.#table);
    host.append(el("div", { class: "kv-searchline" }, this.search, this.#found), this.#scroll);
    this.#scroll.addEventListener("scroll", () => {
      this.#top = this.#scroll.scrollTop;
      this.#draw();
    }, { signal, passive: true });
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "table-row");
      if (row) store.seek(Number(row.dataset.step));
    }, { signal });
    this.search.addEventListener("input", () => {
      clearTimeout(this.#later);
      this.#later = setTimeout(() => this.#search(), 120);
    }, { signal });
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      this.#search();
      this.#jump(event.shiftKey ? -1 : 1);
    }, { signal });
    const watch = new ResizeObserver(() => {
      const hidden = this.#height === 0;
      this.#height = this.#scroll.clientHeight;
      this.#top = this.#scroll.scrollTop;
      this.#draw();
      if (hidden) this.#follow();
      this.#draw();
    });
    watch.observe(this.#scroll);
    signal.addEventListener("abort", () => watch.disconnect());
  }
  store;
  search = el("input", { type: "search", placeholder: "Search op, name, B12, missed …", "aria-label": "Search steps", "data-kv": "search-input" });
  #found = el("span", { class: "kv-hint" });
  #scroll = el("div", { class: "kv-scroll", tabindex: 0, role: "region", "aria-label": "Steps" });
  #body = el("tbody");
  #table = el("table", { class: "kv-table", "aria-label": "Steps" });
  #above = el("tr", { class: "kv-gap", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  #below = el("tr", { class: "kv-gap", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  #steps = null;
  // found steps; null = all
  #first = -1;
  #last = -1;
  // kept here because asking the element would force a layout in the middle of an update
  #height = 0;
  #top = 0;
  #later;
  get #count() {
    return this.#steps?.length ?? this.store.t.p.steps;
  }
  #search() {
    const text = this.search.value.trim();
    this.#steps = text ? find(this.store.t, text) : null;
    say(this.#found, text ? `${count(this.#count)} of ${count(this.store.t.p.steps)} steps; Enter goes to the next` : "");
    this.#first = -1;
    this.#follow();
    this.#draw();
  }
  #jump(by) {
    const { cursor } = this.store;
    const steps = this.#steps;
    if (!steps?.length) return;
    const at2 = by > 0 ? steps.find((s) => s > cursor) ?? steps[0] : [...steps].reverse().find((s) => s < cursor) ?? steps[steps.length - 1];
    this.store.seek(at2);
  }
  update(change) {
    if (change.payload) {
      if (this.#steps) this.#steps = find(this.store.t, this.search.value.trim());
      this.#first = -1;
      mark(this.#table, "aria-rowcount", this.#count + 1);
    }
    if (change.selection) this.#first = -1;
    if (change.payload) this.#draw();
    if (change.cursor || change.payload) this.#follow();
    this.#draw();
  }
  /** Keep the row of the cursor in view. */
  #follow() {
    const { cursor } = this.store;
    const at2 = this.#steps ? this.#steps.findIndex((s) => s >= cursor) : Math.max(0, cursor);
    const height = this.#height;
    const top = at2 * ROW;
    if (at2 < 0 || !height || top >= this.#top && top + 2 * ROW <= this.#top + height) return;
    this.#top = Math.max(0, Math.min(top - height / 2 + ROW, (this.#count + 1) * ROW - height));
    this.store.scroll(() => this.#scroll.scrollTop = this.#top);
  }
  #draw() {
    if (!this.#height) return;
    const total = this.#count;
    const first = Math.max(0, Math.floor(this.#top / ROW) - 4);
    const last = Math.min(total, Math.ceil((this.#top + this.#height) / ROW) + 4);
    if (first !== this.#first || last !== this.#last) {
      this.#first = first;
      this.#last = last;
      const rows = [];
      for (let i = first; i < last; i++) rows.push(this.#row(this.#steps ? this.#steps[i] : i, i));
      this.#above.style.height = `${first * ROW}px`;
      this.#below.style.height = `${(total - last) * ROW}px`;
      this.#body.replaceChildren(this.#above, ...rows, this.#below);
    }
    for (const row of this.#body.querySelectorAll('[data-kv="table-row"]')) {
      mark(row, "aria-current", Number(row.dataset.step) === this.store.cursor ? "step" : null);
    }
  }
  #row(step, at2) {
    const { t, now, selection } = this.store;
    const { p, x } = t;
    const frame = p.step.frame[step];
    const graph = p.frame.graph[frame];
    const g = p.graphs[graph];
    const node = p.step.node[step];
    const kind = outcome(p.step.flags[step]);
    const first = p.step.out[step];
    const info = p.step.out[step + 1] > first ? p.strings[p.out.info[first]] : "";
    const number2 = (n, column = "") => el("td", { class: "kv-num", "data-column": column, "data-zero": n === 0 ? 1 : null }, bytes(n));
    let lit = false;
    if (selection?.kind === "node") lit = selection.id === node && (selection.graph ?? graph) === graph;
    else if (now.lit.storages.size) {
      const { reads, writes } = touched(t, step);
      lit = [...reads, ...writes].some((s) => now.lit.storages.has(s) && p.storage.origin[s] !== 0);
    }
    const block = g.blocks[x.graphs[graph].block[node]]?.title ?? "";
    const op = el("td", { class: "kv-op", title: g.nodes[node][1] }, opName(g.nodes[node][1]));
    op.style.paddingLeft = `${8 + 12 * x.depth[frame]}px`;
    return el(
      "tr",
      { "data-kv": "table-row", "data-step": step, "aria-rowindex": at2 + 2, "data-lit": lit ? 1 : null, title: p.strings[p.step.sentence[step]] },
      el("td", { class: "kv-num" }, String(step)),
      el("td", { class: "kv-soft", "data-column": "run" }, p.runs[p.frame.run[frame]]?.label ?? ""),
      el("td", { class: "kv-soft", "data-column": "block", title: block }, block),
      op,
      el("td", { title: g.nodes[node][0] }, shortName(g, node)),
      el("td", { class: "kv-decision", "data-state": kind }, WORDS[kind] ?? ""),
      el("td", { class: "kv-shape", title: info }, shape(info)),
      number2(p.step.alloc[step]),
      number2(p.step.copied[step]),
      number2(p.step.written[step], "written"),
      number2(p.step.live[step])
    );
  }
};

// src/tabs.ts
var Tabs = class {
  bar = el("div", { class: "kv-tabs", role: "tablist", "aria-label": "Lists" });
  panels = el("div", { class: "kv-panels" });
  #tabs = [];
  #open = "steps";
  constructor(host, signal) {
    host.append(this.bar, this.panels);
    this.bar.addEventListener("click", (event) => {
      const tab = hit(event, "tab");
      if (tab) this.show(tab.dataset.id === this.#open ? "" : tab.dataset.id);
    }, { signal });
    this.bar.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      const at2 = this.#tabs.findIndex((t) => t.tab === event.target);
      if (!by || at2 < 0) return;
      event.stopPropagation();
      const next = this.#tabs[(at2 + by + this.#tabs.length) % this.#tabs.length];
      this.show(next.id);
      next.tab.focus();
    }, { signal });
  }
  add(id, title2) {
    const panel = el("div", { class: "kv-panel", role: "tabpanel", "aria-label": title2, "data-id": id });
    const tab = el("button", { type: "button", role: "tab", "data-kv": "tab", "data-id": id }, title2);
    this.#tabs.push({ id, title: title2, panel, tab });
    this.bar.append(tab);
    this.panels.append(panel);
    this.show(this.#open);
    return panel;
  }
  count(id, n) {
    const tab = this.#tabs.find((t) => t.id === id);
    say(tab.tab, n > 0 ? `${tab.title} ${n}` : tab.title);
    mark(tab.tab, "data-count", n);
  }
  show(id) {
    this.#open = id;
    this.panels.hidden = id === "";
    for (const t of this.#tabs) {
      const open = t.id === id;
      t.panel.hidden = !open;
      mark(t.tab, "aria-selected", String(open));
      t.tab.tabIndex = open || id === "" ? 0 : -1;
    }
  }
};

// src/curve.ts
function curve({ p, x }, width) {
  const columns = Math.max(1, Math.floor(width));
  const low = new Float64Array(columns).fill(Infinity);
  const high = new Float64Array(columns).fill(-Infinity);
  const n = p.steps;
  let least = Infinity;
  for (let i = 0; i < n; i++) {
    const v = p.step.live[i];
    if (v < least) least = v;
    const from2 = Math.floor(i / n * columns);
    const to = Math.max(from2, Math.ceil((i + 1) / n * columns) - 1);
    for (let c = from2; c <= to && c < columns; c++) {
      if (v < low[c]) low[c] = v;
      if (v > high[c]) high[c] = v;
    }
  }
  const top = x.peak >= 0 ? p.step.live[x.peak] : 1;
  const from = n && least > top * 0.4 ? Math.max(0, least - (top - least) * 0.15 - top * 1e-3) : 0;
  return { low, high, floor: n ? least : 0, top: top > from ? top : from + 1, from };
}
function at(step, steps, width) {
  return steps ? (step + 0.5) / steps * width : 0;
}
function stepAt(x, steps, width) {
  return Math.max(0, Math.min(steps - 1, Math.floor(x / Math.max(1, width) * steps)));
}
function keepApart(labels, gap, room) {
  for (let stride = 1; ; stride = nextStride(stride)) {
    let end = -Infinity;
    let fits = true;
    const keep = labels.map((l, i) => {
      if (i % stride || l.x + l.width > room) return false;
      if (l.x < end && end !== -Infinity) {
        fits &&= end === labels[0].x + labels[0].width + gap;
        return false;
      }
      end = l.x + l.width + gap;
      return true;
    });
    if (fits || stride > labels.length) return keep;
  }
}
function nextStride(stride) {
  const lead = Number(String(stride)[0]);
  return lead === 2 ? stride * 5 / 2 : stride * 2;
}

// src/timeline.ts
var AXIS = 15;
var Timeline = class {
  constructor(host, store, signal) {
    this.store = store;
    this.#peak = el("button", { type: "button", "data-kv": "peak", title: "Go to the step with the most live bytes" });
    this.#peak.addEventListener("click", () => store.seek(store.t.x.peak), { signal });
    this.#plot = el("div", { class: "kv-plot", "data-kv": "timeline" }, this.#canvas, this.#cursor, this.#range);
    this.#legend.append(this.#live, this.#peak, this.#capacity, this.#valid, this.#base);
    host.append(this.#legend, this.#plot);
    const drag = (event) => {
      const box = this.#plot.getBoundingClientRect();
      store.seek(stepAt(event.clientX - box.left, store.t.p.steps, box.width));
    };
    this.#plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.#plot.setPointerCapture(event.pointerId);
      drag(event);
    }, { signal });
    this.#plot.addEventListener("pointermove", (event) => {
      if (this.#plot.hasPointerCapture(event.pointerId)) drag(event);
    }, { signal });
    this.#range.addEventListener("input", () => store.seek(this.#range.valueAsNumber), { signal });
    const watch = new ResizeObserver(() => {
      if (Math.floor(this.#plot.clientWidth) !== this.#width) this.#draw();
      this.#move();
    });
    watch.observe(this.#plot);
    signal.addEventListener("abort", () => watch.disconnect());
  }
  store;
  #canvas = el("canvas", { "aria-hidden": "true" });
  #cursor = el("div", { class: "kv-cursor" });
  #range = el("input", { type: "range", min: -1, step: 1, class: "kv-range", "data-kv": "step-slider", "aria-label": "Step" });
  #plot;
  #legend = el("div", { class: "kv-legend" });
  #live = this.#item("live", "live");
  #peak;
  #base = el("span", { class: "kv-soft" });
  #capacity = this.#item("capacity", "capacity");
  #valid = this.#item("valid", "valid");
  #width = 0;
  #item(kind, text) {
    return el("span", { "data-part": kind }, el("i", {}), `${text} `, el("b", {}));
  }
  update(change) {
    if (change.payload || change.look) this.#draw();
    if (change.cursor || change.payload) this.#move();
  }
  #move() {
    const { cursor, run: run2 } = this.store;
    const { p } = this.store.t;
    const width = this.#width;
    this.#cursor.style.transform = `translateX(${(cursor < 0 ? 0 : at(cursor, p.steps, width)).toFixed(1)}px)`;
    mark(this.#plot, "data-step", cursor);
    this.#range.max = String(p.steps - 1);
    this.#range.value = String(cursor);
    const node = cursor < 0 ? "before the first step" : p.graphs[p.frame.graph[p.step.frame[cursor]]].nodes[p.step.node[cursor]][0];
    this.#range.setAttribute("aria-valuetext", `step ${cursor} of ${p.steps}, ${node}`);
    say(this.#live.lastElementChild, cursor < 0 ? bytes(0) : bytes(p.step.live[cursor]));
    const cache = p.caches[0];
    this.#capacity.hidden = this.#valid.hidden = !cache;
    if (!cache) return;
    const told = cache.capacity[run2] ? run2 : run2 - 1;
    say(this.#capacity.lastElementChild, `${count(cache.capacity[told] ?? 0)} rows`);
    say(this.#valid.lastElementChild, count(cache.valid[told] ?? 0));
    this.#capacity.title = this.#valid.title = `rows of ${cache.name}, on a scale of their own`;
  }
  #draw() {
    const { t } = this.store;
    const { p, x } = t;
    const width = this.#width = Math.floor(this.#plot.clientWidth);
    const height = Math.floor(this.#plot.clientHeight);
    const c = curve(t, width);
    this.#peak.replaceChildren(el("i", {}), "peak ", el("b", {}, bytes(c.top)), x.peak >= 0 ? ` at step ${count(x.peak)}` : "");
    this.#peak.disabled = x.peak < 0;
    say(this.#base, c.from > 0 ? `axis from ${bytes(c.from)}` : "");
    const context = this.#canvas.getContext("2d");
    if (!context || width < 10 || height < 10) return;
    const ratio = globalThis.devicePixelRatio || 1;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.#plot);
    const colour = (name) => style.getPropertyValue(name).trim() || "#888";
    const bottom = height - AXIS;
    const y = (v) => bottom - (v - c.from) / (c.top - c.from) * (bottom - 8);
    this.#runs(context, width, bottom, colour("--kv-line"), colour("--kv-soft"), style.fontFamily);
    if (!p.steps) return;
    context.beginPath();
    context.moveTo(0, bottom);
    for (let i = 0; i < width; i++) context.lineTo(i + 0.5, y(c.high[i]));
    context.lineTo(width, bottom);
    context.globalAlpha = 0.15;
    context.fillStyle = colour("--kv-accent");
    context.fill();
    context.globalAlpha = 1;
    context.beginPath();
    for (let i = 0; i < width; i++) {
      context.lineTo(i + 0.5, y(c.high[i]));
      if (c.low[i] < c.high[i]) context.lineTo(i + 0.5, y(c.low[i]));
    }
    context.lineWidth = 1.3;
    context.lineJoin = "round";
    context.strokeStyle = colour("--kv-accent");
    context.stroke();
    this.#caches(context, width, bottom, colour("--kv-view"));
    const px = Math.max(5, Math.min(width - 5, at(x.peak, p.steps, width)));
    context.beginPath();
    context.moveTo(px, 7);
    context.lineTo(px - 5, 0);
    context.lineTo(px + 5, 0);
    context.closePath();
    context.fillStyle = colour("--kv-missed");
    context.fill();
  }
  #runs(context, width, bottom, line, text, family) {
    const { p } = this.store.t;
    context.fillStyle = line;
    context.fillRect(0, bottom, width, 1);
    context.font = `10.5px ${family}`;
    context.textBaseline = "top";
    const short = (label2) => label2.replace(/^decode /, "");
    const labels = p.runs.map((r) => ({ x: r.first / Math.max(1, p.steps) * width + 3, width: context.measureText(short(r.label)).width }));
    const keep = keepApart(labels, 10, width);
    p.runs.forEach((r, i) => {
      context.fillStyle = line;
      if (i > 0 && (keep[i] || width / p.runs.length > 24)) context.fillRect(Math.round(labels[i].x - 3), 0, 1, bottom + (keep[i] ? 6 : 0));
      context.fillStyle = text;
      if (keep[i] && p.runs.length > 1) context.fillText(short(r.label), labels[i].x, bottom + 3);
    });
  }
  #caches(context, width, bottom, colour) {
    const { p } = this.store.t;
    const cache = p.caches[0];
    if (!cache) return;
    const most = Math.max(1, ...cache.capacity);
    const y = (rows) => bottom - rows / most * (bottom - 8) * 0.85;
    context.strokeStyle = colour;
    for (const [series, dash, thick] of [[cache.capacity, [5, 3], 1.4], [cache.valid, [], 1.8]]) {
      context.beginPath();
      p.runs.forEach((r, i) => {
        if (!cache.capacity[i]) return;
        context.lineTo(r.first / p.steps * width, y(series[i]));
        context.lineTo(r.last / p.steps * width, y(series[i]));
      });
      context.setLineDash([...dash]);
      context.lineWidth = thick;
      context.stroke();
    }
    context.setLineDash([]);
  }
};

// src/toolbar.ts
var Toolbar = class {
  constructor(host, store, commands, panels, signal) {
    this.store = store;
    const make = (text, title2, kv, run2, keys2, label2) => {
      const b = button(text, `${title2}${keys2 ? ` (${keys2.split(" ").join(" or ")})` : ""}`, kv, run2, signal, keys2);
      if (label2) b.setAttribute("aria-label", label2);
      return b;
    };
    this.#back = make("◀︎", "Previous op", "back", () => commands.back(), "ArrowLeft p", "Back");
    const next = make("Next ▶︎", "Run the next op; a body counts as one", "next", () => commands.next(), "ArrowRight n", "Next");
    next.classList.add("kv-go");
    this.#into = make("Into", "Enter the If, Loop or function that comes next, or run one op", "into", () => commands.into(), "i");
    this.#tokens = el(
      "span",
      { class: "kv-group" },
      make("◂◂", "The same op, one decode step earlier", "previous-token", () => commands.previousRun(), ",", "Previous token"),
      make("Next token ▸▸", "The same op, one decode step on", "next-token", () => commands.nextRun(), ".", "Next token")
    );
    this.#goto = el("input", { type: "number", min: -1, step: 1, "data-kv": "goto", "aria-label": "Go to step", title: "Steps are numbered from 0, as in trace.steps; type a number to go there (g)" });
    const go = () => {
      const to = this.#goto.valueAsNumber;
      if (Number.isFinite(to)) store.seek(to);
      this.#number();
    };
    this.#goto.addEventListener("change", go, { signal });
    this.#goto.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      go();
      host.parentElement?.focus({ preventScroll: true });
    }, { signal });
    this.#position = el("span", { class: "kv-position", "data-kv": "step-number" }, "step ", this.#goto, this.#of, this.#where);
    this.#stops = make("● 0", "Breakpoints", "breakpoints", () => panels.breakpoints());
    this.root = el(
      "div",
      { class: "kv-bar", role: "toolbar", "aria-label": "Debugger" },
      el("span", { class: "kv-group" }, this.#back, next),
      el(
        "span",
        { class: "kv-group" },
        this.#into,
        make("Out", "Run to the end of this body or block", "out", () => commands.out(), "o"),
        make("Continue", "Run to the next breakpoint", "continue", () => commands.continue(), "c")
      ),
      this.#tokens,
      el("span", { class: "kv-rest" }, this.#position, el(
        "span",
        { class: "kv-right" },
        this.#policy,
        this.#stops,
        make("/", "Search steps, names, buffers", "search", () => panels.search(), "/", "Search"),
        make("?", "Keys and signs", "help", () => panels.help(), "?", "Help")
      ))
    );
    host.append(this.root);
  }
  store;
  #goto;
  #of = el("span");
  #where = el("span", { class: "kv-where" });
  #position;
  #policy = el("span", { class: "kv-pill", "data-kv": "policy" });
  #stops;
  #back;
  #tokens;
  #into;
  root;
  focusGoto() {
    this.#goto.focus();
    this.#goto.select();
  }
  #number() {
    const { cursor } = this.store;
    this.#goto.value = String(cursor);
    set(this.#goto, "--kv-digits", String(String(cursor).length));
  }
  update(change) {
    const { store } = this;
    const { p } = store.t;
    if (change.payload) {
      say(this.#policy, `policy: ${p.policy.name}`);
      this.#policy.title = p.policy.about;
      this.#goto.max = String(p.steps - 1);
      this.#tokens.hidden = p.runs.length < 2 && !p.live;
    }
    if (change.payload || change.cursor) {
      this.#number();
      mark(this.#position, "data-step", store.cursor);
      say(this.#of, ` of ${count(p.steps)}`);
      const run2 = p.runs.length > 1 ? p.runs[store.run]?.label ?? "" : "";
      const place = placeName(store.t, store.cursor);
      const where = [run2.replace(/^decode (\d+)/, "decode step $1"), place].filter(Boolean).join(" · ");
      say(this.#where, where ? ` · ${where}` : "");
      this.#where.title = where;
      mark(this.#into, "data-on", into(store.t, store.cursor) !== over(store.t, store.cursor) ? "1" : null);
      mark(this.#back, "aria-disabled", store.cursor < 0 ? "true" : null);
    }
    if (change.breakpoints) {
      const on = store.breakpoints.filter((b) => b.enabled).length;
      say(this.#stops, `● ${on}`);
      mark(this.#stops, "data-on", on ? "1" : null);
      mark(this.#stops, "aria-label", `Breakpoints: ${on} on`);
    }
  }
};

// src/values.ts
var MOST4 = 400;
var ValuesPane = class {
  constructor(host, store, ask, signal) {
    this.store = store;
    this.ask = ask;
    const heads = [["", "value"], ["", "buffer"], ["", "shape"], ["kv-num", "bytes"], ["", "how it came"], ["", "still read by"]];
    host.append(el(
      "div",
      { class: "kv-split" },
      el("div", { class: "kv-scroll" }, el(
        "table",
        { class: "kv-table", "aria-label": "Values alive at the cursor" },
        el("thead", {}, el("tr", {}, ...heads.map(([c, text]) => el("th", { scope: "col", class: c }, text)))),
        this.#body
      ), this.#note),
      this.#peek
    ));
    this.#body.addEventListener("click", (event) => {
      const row = hit(event, "value-row");
      if (row) this.#look(Number(row.dataset.id));
    }, { signal });
    const watch = new ResizeObserver(() => {
      this.#shown = host.clientWidth > 0;
      this.#fill();
    });
    watch.observe(host);
    signal.addEventListener("abort", () => watch.disconnect());
    say(this.#peek, "Choose a value to look into it.");
  }
  store;
  ask;
  #body = el("tbody");
  #note = el("p", { class: "kv-none" });
  #peek = el("div", { class: "kv-peek", "aria-live": "polite" });
  #stale = true;
  #asked = 0;
  #shown = false;
  update(change) {
    if (change.cursor || change.payload) this.#stale = true;
    this.#fill();
    if (change.selection) this.#light();
  }
  #fill() {
    if (!this.#stale || !this.#shown) return;
    this.#stale = false;
    const { t, now, cursor } = this.store;
    const { p, x } = t;
    const g = p.graphs[now.graph];
    const rows = [];
    let hidden = 0;
    g.values.forEach((name, value) => {
      const place = placeOf(t, now.frame, value, cursor);
      if (!place || p.storage.origin[place.storage] === 0) return;
      if (x.freed[place.storage] <= cursor || place.gen !== generation(t, place.storage, cursor)) return;
      if (rows.length >= MOST4) return void hidden++;
      const bind = place.from === "bind";
      const info = p.strings[bind ? p.bind.info[place.entry] : p.out.info[place.entry]];
      const size = bind ? p.bind.bytes[place.entry] : p.out.bytes[place.entry];
      const how = bind ? BIND_HOW[p.bind.how[place.entry]] : OUT_HOW[p.out.how[place.entry]];
      const readers = x.graphs[now.graph].readers[value].filter((n) => now.states[n] === "pending" || now.states[n] === "frontier");
      const still = readers.slice(0, 3).map((n) => g.nodes[n][1]).join(", ") + (readers.length > 3 ? ` +${readers.length - 3}` : "");
      rows.push(el(
        "tr",
        { "data-kv": "value-row", "data-id": value, title: name },
        el("td", {}, name),
        el("td", { class: "kv-id" }, buffer(p, place.storage, place.gen)),
        el("td", { class: "kv-shape", title: info }, shape(info)),
        el("td", { class: "kv-num" }, bytes(size)),
        el("td", { class: "kv-soft" }, how ?? ""),
        el("td", { class: readers.length ? "" : "kv-soft" }, still || (x.graphs[now.graph].output[value] ? "an output" : "nobody"))
      ));
    });
    this.#body.replaceChildren(...rows);
    say(this.#note, hidden ? `${hidden} more` : rows.length ? "" : "No value here yet, but for weights.");
    this.#note.hidden = !this.#note.textContent;
    this.#light();
  }
  #light() {
    const { values } = this.store.now.lit;
    for (const row of this.#body.children) mark(row, "data-lit", values.has(Number(row.dataset.id)) ? 1 : null);
  }
  #look(value) {
    const { now, cursor, t } = this.store;
    this.store.select({ kind: "value", id: value, graph: now.graph });
    const name = t.p.graphs[now.graph].values[value];
    const asked = this.ask({ do: "value", id: ++this.#asked, step: cursor, value: name, frame: now.frame });
    this.#peek.replaceChildren(el("b", {}, name), el("p", { class: "kv-soft" }, asked ? "asking the kernel …" : `not ${NEEDS_KERNEL}`));
    if (asked) return;
    say(this.#peek.lastElementChild, `Numbers are not in the recording; looking at them ${NEEDS_KERNEL.replace("recorded: ", "")}.`);
  }
  /** An answer of the kernel to `value`. */
  show(peek) {
    if (peek.id !== this.#asked) return;
    const name = this.#peek.firstElementChild ?? el("b");
    if (peek.error) return this.#peek.replaceChildren(name, el("p", { class: "kv-error" }, peek.error));
    const stats = Object.entries(peek.stats ?? {}).map(([k, v]) => `${k} ${number(v)}`).join(" · ");
    this.#peek.replaceChildren(name, el("p", { class: "kv-soft" }, peek.info ?? ""), el("p", {}, stats), this.#picture(peek.rows ?? []));
  }
  #picture(rows) {
    const table = el("table", { class: "kv-numbers" });
    const most = Math.max(1e-30, ...rows.flat().map((v) => Math.abs(Number(v))).filter(Number.isFinite));
    for (const row of rows) {
      table.append(el("tr", {}, ...row.map((v) => {
        const cell = el("td", { title: String(v) }, number(v));
        const share = Math.abs(Number(v)) / most;
        cell.style.setProperty("--kv-heat", String(Number.isFinite(share) ? Math.round(share * 60) : 0));
        if (Number(v) < 0) cell.dataset.sign = "-";
        return cell;
      })));
    }
    return el("div", { class: "kv-numbers-box" }, table);
  }
};
function number(v) {
  if (typeof v !== "number") return v === null ? "nan" : String(v);
  return Number.isInteger(v) && Math.abs(v) < 1e6 ? String(v) : v.toPrecision(3);
}

// src/app.ts
function makeRoot() {
  return el("div", { class: "kvviz", role: "group", "aria-label": "kvviz debugger", tabindex: 0, "data-lm-suppress-shortcuts": "true" });
}
function build(root2, store, ask, flushTraits) {
  const life = new AbortController();
  const { signal } = life;
  const commands = new Commands(store, ask, flushTraits);
  const app = el("div", { class: "kv-app" });
  root2.replaceChildren(app);
  let panel = null;
  const toggleHelp = () => {
    if (panel) {
      panel.remove();
      panel = null;
      return root2.focus({ preventScroll: true });
    }
    panel = help();
    app.append(panel);
    panel.focus({ preventScroll: true });
  };
  const search = () => {
    tabs.show("steps");
    table.search.focus({ preventScroll: true });
    table.search.select();
  };
  const toolbar = new Toolbar(app, store, commands, { search, help: toggleHelp, breakpoints: () => menu.toggle() }, signal);
  const story = new Story(app, store, commands, signal);
  const pane = (name, label2, parent) => {
    const node = el("section", { class: `kv-pane kv-${name}`, "aria-label": label2 });
    parent.append(node);
    return node;
  };
  const main = el("div", { class: "kv-main" });
  app.append(main);
  const graph = new GraphPane(pane("graph", "Graph", main), store, commands, signal);
  const side = el("div", { class: "kv-side" });
  main.append(side);
  const step = new StepPane(pane("this", "This step", side), store, signal);
  const frontier2 = new FrontierPane(pane("frontier", "Frontier", side), store, commands, signal);
  const memory2 = new MemoryPane(pane("memory", "Buffers", main), store, signal);
  const timeline = new Timeline(pane("timeline", "Timeline", app), store, signal);
  const tabs = new Tabs(pane("lists", "Lists", app), signal);
  const table = new StepTable(tabs.add("steps", "Steps"), store, signal);
  const missed2 = new MissedPane(tabs.add("missed", "Missed"), store, signal);
  const caches = new CachesPane(tabs.add("caches", "Caches"), store, signal);
  const values = new ValuesPane(tabs.add("values", "Values"), store, ask, signal);
  const sentence = el("span", { class: "kv-say", "data-kv": "sentence", "aria-live": "polite" });
  const note = el("span", { class: "kv-tell", "data-kv": "status", role: "status" });
  app.append(el("div", { class: "kv-status" }, sentence, note));
  const menu = new BreakpointMenu(app, store, commands, signal);
  const status = {
    update(change) {
      const { p } = store.t;
      if (change.payload) {
        tabs.count("missed", missed2.count);
        tabs.count("caches", p.caches.length);
      }
      if (change.cursor || change.payload) {
        mark(root2, "data-step", store.cursor);
        say(sentence, store.cursor < 0 ? "Before the first step." : `Step ${store.cursor}: ${p.strings[p.step.sentence[store.cursor]]}`);
        sentence.title = sentence.textContent ?? "";
      }
      if (change.note || change.cursor) say(note, store.note);
    }
  };
  for (const view2 of [toolbar, story, step, frontier2, memory2, timeline, missed2, caches, table, values, menu, graph, status]) store.add(view2);
  keys(root2, {
    commands,
    toolbar,
    search,
    help: toggleHelp,
    fit: () => graph.zoom(),
    chooseSelected: () => {
      const s = store.selection;
      if (s?.kind !== "node" || !store.now.choices.some((c) => c.node === s.id)) return false;
      commands.choose(s.id);
      return true;
    },
    escape: () => {
      if (panel) return toggleHelp();
      if (!menu.root.hidden) return menu.toggle();
      store.select(null);
      store.tell("");
    }
  }, signal);
  return {
    root: root2,
    peek: (answer) => values.show(answer),
    destroy: () => {
      commands.pause();
      life.abort();
      store.destroy();
      root2.replaceChildren();
    }
  };
}

// src/store.ts
var NONE = { payload: false, cursor: false, selection: false, breakpoints: false, note: false, look: false };
var ALL = { payload: true, cursor: true, selection: true, breakpoints: true, note: true, look: true };
var Store = class {
  constructor(p, cursor = -1, later = (run2) => requestAnimationFrame(run2)) {
    this.later = later;
    this.t = { p, x: buildIndex(p) };
    this.cursor = clamp(this.t, cursor);
    this.now = this.#derive();
  }
  later;
  t;
  cursor = -1;
  selection = null;
  breakpoints = [];
  note = "";
  follow = true;
  now;
  /** Told at once (not per frame) when a person changed something that other pages and Python should know. */
  onPerson = () => {
  };
  #views = [];
  #wishes = [];
  #scrolls = [];
  #pending = null;
  add(view2) {
    this.#views.push(view2);
    view2.update(ALL);
  }
  destroy() {
    for (const view2 of this.#views) view2.destroy?.();
    this.#views = [];
  }
  replace(p) {
    this.t = { p, x: buildIndex(p) };
    this.cursor = clamp(this.t, this.cursor);
    this.#changed({ payload: true, cursor: true, selection: true });
  }
  seek(cursor, source = "person") {
    const to = clamp(this.t, cursor);
    if (to === this.cursor) return;
    this.cursor = to;
    this.#changed({ cursor: true, note: this.note !== "" });
    this.note = "";
    if (source === "person") this.onPerson("cursor");
  }
  select(selection, source = "person") {
    if (same(selection, this.selection)) return;
    this.selection = selection;
    this.#changed({ selection: true });
    if (source === "person") this.onPerson("selection");
  }
  setBreakpoints(list, source = "person") {
    this.breakpoints = list;
    this.#changed({ breakpoints: true });
    if (source === "person") this.onPerson("breakpoints");
  }
  tell(note) {
    this.note = note;
    this.#changed({ note: true });
  }
  relook() {
    this.#changed({ look: true });
  }
  get run() {
    return runAt(this.t, this.cursor);
  }
  #derive() {
    const { t, cursor } = this;
    const frame = frameAt(t, cursor);
    return {
      run: runAt(t, cursor),
      frame,
      graph: t.p.frame.graph[frame] ?? 0,
      states: frame < t.p.frames ? nodeStates(t, frame, cursor) : [],
      next: frontierFrame(t, cursor),
      choices: frontier(t, cursor),
      lit: light(t, this.selection, frame, cursor)
    };
  }
  #changed(what) {
    if (this.#pending) {
      for (const key of Object.keys(what)) this.#pending[key] ||= what[key];
      return;
    }
    this.#pending = { ...NONE, ...what };
    this.later(() => this.flush());
  }
  /** Bring the panes up to date now; normally called once per animation frame. */
  flush() {
    const change = this.#pending;
    if (!change) return;
    this.#pending = null;
    if (change.payload || change.cursor || change.selection) this.now = this.#derive();
    for (const view2 of this.#views) view2.update(change);
    reveal(this.#wishes.splice(0));
    for (const scroll of this.#scrolls.splice(0)) scroll();
  }
  /** Setting a scroll position forces a layout, so it is done when all is drawn. */
  scroll(run2) {
    this.#scrolls.push(run2);
    this.#changed({});
  }
  /** Scroll a node into view once all panes have been brought up to date. */
  reveal(box, node, middle = false) {
    this.#wishes.push({ box, node, middle });
    this.#changed({});
  }
};

// src/theme.ts
function ofHost() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== void 0) return jpThemeLight === "false" ? "dark" : "light";
  if (vscodeThemeKind) return /dark|high-contrast$/.test(vscodeThemeKind) ? "dark" : "light";
  return null;
}
function follow(root2, wanted, changed, signal) {
  const prefers = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const apply = () => {
    const host = ofHost();
    const auto = wanted() === "auto";
    const theme = auto ? host ?? (prefers?.matches ? "dark" : "light") : wanted();
    if (root2.dataset.theme === theme && root2.dataset.host === (auto && host ? "notebook" : "page")) return;
    root2.dataset.theme = theme;
    root2.dataset.host = auto && host ? "notebook" : "page";
    changed();
  };
  prefers?.addEventListener("change", apply, { signal });
  const watch = new MutationObserver(() => {
    apply();
    changed();
  });
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"] });
  signal.addEventListener("abort", () => watch.disconnect());
  apply();
  return apply;
}

// src/widget.ts
var WRITE_DELAY = 50;
var ANSWER_DELAY = 4e3;
function listen(model, event, call, signal) {
  model.on(event, call);
  signal.addEventListener("abort", () => model.off(event, call));
}
async function newest(model) {
  const [payload, edge] = await Promise.all([decode(model.get("payload")), decode(model.get("edge"))]);
  return edge && (!payload || edge.steps >= payload.steps) ? edge : payload;
}
function connect(model, root2, first, life) {
  const store = new Store(first, model.get("cursor") ?? -1);
  store.selection = model.get("selection") ?? null;
  store.breakpoints = model.get("breakpoints") ?? [];
  const dirty = /* @__PURE__ */ new Set();
  let timer;
  const write = () => {
    clearTimeout(timer);
    timer = void 0;
    if (!dirty.size) return;
    if (dirty.has("cursor")) {
      model.set("cursor", store.cursor);
      model.set("decode_step", store.run);
    }
    if (dirty.has("selection")) model.set("selection", store.selection);
    if (dirty.has("breakpoints")) model.set("breakpoints", store.breakpoints);
    dirty.clear();
    model.save_changes();
  };
  store.onPerson = (what) => {
    dirty.add(what);
    timer ??= setTimeout(write, WRITE_DELAY);
  };
  life.addEventListener("abort", write);
  let waiting;
  const ask = (message) => {
    if (!model.send) return false;
    try {
      model.send(message);
    } catch {
      return false;
    }
    clearTimeout(waiting);
    waiting = setTimeout(() => store.tell(`no answer yet; ${NEEDS_KERNEL}`), ANSWER_DELAY);
    return true;
  };
  const answered = () => clearTimeout(waiting);
  life.addEventListener("abort", answered);
  const app = build(root2, store, ask, write);
  listen(model, "change:cursor", () => {
    answered();
    if (!dirty.has("cursor")) store.seek(model.get("cursor"), "model");
  }, life);
  listen(model, "change:decode_step", () => {
    const run2 = model.get("decode_step");
    if (dirty.has("cursor") || run2 === store.run || run2 < 0) return;
    const to = inRun(store.t, store.cursor, run2);
    if (to !== null) store.seek(to, "model");
  }, life);
  listen(model, "change:selection", () => {
    if (!dirty.has("selection")) store.select(model.get("selection") ?? null, "model");
  }, life);
  listen(model, "change:breakpoints", () => {
    if (!dirty.has("breakpoints")) store.setBreakpoints(model.get("breakpoints") ?? [], "model");
  }, life);
  listen(model, "msg:custom", (message) => {
    answered();
    if (message?.id !== void 0 && message.id !== null) app.peek(message);
    else if (message?.error) store.tell(message.error);
    else if (store.note.startsWith("asked")) store.tell("");
  }, life);
  return { store, app };
}
function render({ model, el: host }) {
  const life = new AbortController();
  const { signal } = life;
  const root2 = makeRoot();
  host.append(root2);
  root2.append(el("p", { class: "kv-wait" }, "kvviz …"));
  let live = null;
  const size = () => root2.style.setProperty("--kv-height", `${model.get("height") || 720}px`);
  size();
  const look = follow(root2, () => model.get("theme") || "auto", () => live?.store.relook(), signal);
  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    try {
      const payload = await newest(model);
      for (let i = 0; i < 40 && !root2.isConnected; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      if (mine !== turn || signal.aborted) return;
      if (!payload) return root2.replaceChildren(el("p", { class: "kv-wait" }, "Nothing recorded yet."));
      if (!live) live = connect(model, root2, payload, signal);
      else {
        live.store.replace(payload);
        if (live.store.note.startsWith("asked")) live.store.tell("");
        live.store.seek(model.get("cursor") ?? live.store.cursor, "model");
      }
    } catch (error) {
      if (live) live.store.tell(String(error));
      else root2.replaceChildren(el("p", { class: "kv-wait kv-error", role: "alert" }, `kvviz cannot read this recording. ${String(error)}`));
    }
  };
  listen(model, "change:payload", load, signal);
  listen(model, "change:edge", load, signal);
  listen(model, "change:theme", look, signal);
  listen(model, "change:height", size, signal);
  void load();
  return () => {
    life.abort();
    live?.app.destroy();
    root2.remove();
  };
}
function mount(host, state) {
  const traits = { cursor: -1, decode_step: 0, selection: null, breakpoints: [], theme: "auto", height: 720, ...state };
  for (const name of ["payload", "edge"]) {
    const value = traits[name];
    if (typeof value === "string") traits[name] = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
  }
  const model = { get: (name) => traits[name], set: (name, value) => void (traits[name] = value), save_changes() {
  }, on() {
  }, off() {
  } };
  return render({ model, el: host });
}
var widget_default = { render };
export {
  widget_default as default,
  mount
};
