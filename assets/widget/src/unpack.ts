// Reader of the LZMA stream that has the page's modules in a file; a browser's own formats are a seventh longer.
// Source of the format: the LZMA specification, with 2 bits of literal context, no literal position bits and no position bits;
// see kvviz/view/page_modules.py.

const CONTEXT = 2;
/** Places of the probabilities: of the packet's kind first, 12 states each, then trees. */
const [REP, REP0, REP1, REP2, REP0_LONG, SLOT, ALIGN, FAR, LENGTH, REP_LENGTH, LITERAL] = [12, 24, 36, 48, 60, 72, 328, 344, 472, 752, 1032];

/** `packed`: the number of bytes of the result (32 bits, big endian), then the stream. */
export default function unpack(packed: Uint8Array): Uint8Array {
  const view = new DataView(packed.buffer, packed.byteOffset);
  const out = new Uint8Array(view.getUint32(0));
  const odds = new Uint16Array(LITERAL + (0x300 << CONTEXT)).fill(1024);
  // whole numbers of 32 bits: as variables they would be numbers of 64 bits, many times slower
  const coder = Uint32Array.of(0xffffffff, view.getUint32(5));
  let at = 9;
  /** Divide the range at `bound`: 1 if the code lies above it. */
  const part = (bound: number): number => {
    const one = coder[1]! >= bound ? 1 : 0;
    if (one) coder[1]! -= bound;
    coder[0] = one ? coder[0]! - bound : bound;
    if (coder[0]! < 0x1000000) {
      coder[0]! <<= 8;
      coder[1] = (coder[1]! << 8) | packed[at++]!;
    }
    return one;
  };
  const bit = (place: number): number => {
    const one = part((coder[0]! >>> 11) * odds[place]!);
    odds[place]! += one ? -(odds[place]! >> 5) : (2048 - odds[place]!) >> 5;
    return one;
  };
  const tree = (base: number, bits: number): number => {
    let node = 1;
    for (let i = 0; i < bits; i++) node = (node << 1) | bit(base + node);
    return node - (1 << bits);
  };
  const backwards = (base: number, bits: number): number => {
    let [node, value] = [1, 0];
    for (let i = 0; i < bits; i++) {
      const next = bit(base + node);
      node = (node << 1) | next;
      value |= next << i;
    }
    return value;
  };
  const even = (bits: number): number => {
    let value = 0;
    for (let i = 0; i < bits; i++) {
      coder[0]! &= ~1;
      value = (value << 1) | part(coder[0]! >>> 1);
    }
    return value;
  };
  const length = (base: number): number => (
    !bit(base) ? 2 + tree(base + 2, 3) : !bit(base + 1) ? 10 + tree(base + 10, 3) : 18 + tree(base + 18, 8)
  );
  const distance = (slot: number): number => {
    if (slot < 4) return slot;
    const bits = (slot >> 1) - 1;
    const start = (2 | (slot & 1)) << bits;
    return start + (slot < 14 ? backwards(FAR + start - slot, bits) : even(bits - 4) * 16 + backwards(ALIGN, 4));
  };

  let state = 0;
  const back = [0, 0, 0, 0]; // the last four distances, less 1
  for (let n = 0; n < out.length;) {
    if (!bit(state)) {
      const base = LITERAL + 0x300 * (n ? out[n - 1]! >> (8 - CONTEXT) : 0);
      let node = 1;
      // after a copy, the byte that would have followed it is another context until the first bit that differs
      for (let like = state < 7 ? -1 : out[n - back[0]! - 1]!; node < 0x100;) {
        const hint = (like >> 7) & 1;
        const next = bit(base + node + (like < 0 ? 0 : (1 + hint) << 8));
        node = (node << 1) | next;
        like = like < 0 || next !== hint ? -1 : (like << 1) & 0xff;
      }
      out[n++] = node;
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    let copied = 1;
    if (!bit(REP + state)) {
      copied = length(LENGTH);
      back.pop();
      back.unshift(distance(tree(SLOT + 64 * Math.min(copied - 2, 3), 6)));
      state = state < 7 ? 7 : 10;
    } else {
      const which = !bit(REP0 + state) ? 0 : !bit(REP1 + state) ? 1 : 2 + bit(REP2 + state);
      if (which === 0 && !bit(REP0_LONG + state)) {
        state = state < 7 ? 9 : 11;
      } else {
        back.unshift(...back.splice(which, 1));
        copied = length(REP_LENGTH);
        state = state < 7 ? 8 : 11;
      }
    }
    for (const end = Math.min(n + copied, out.length); n < end; n++) out[n] = out[n - back[0]! - 1]!;
  }
  return out;
}
