// Payloads of other lanes, which come as one piece of bytes; see kvviz/view/payload_lanes.py.
const pieces = new WeakMap<object, Map<string, Uint8Array>>();
/** One of them by its name; null where it is not there. */
export function piece(packed: DataView | null | undefined, name: string): Uint8Array | null {
  if (!packed?.byteLength) return null;
  let all = pieces.get(packed);
  if (!all) {
    const bytes = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);
    const size = packed.getUint32(0, true);
    const table = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))) as Record<string, [number, number]>;
    all = new Map(Object.entries(table).map(([key, [at, length]]) => [key, bytes.subarray(4 + size + at, 4 + size + at + length)]));
    pieces.set(packed, all);
  }
  return all.get(name) ?? null;
}
