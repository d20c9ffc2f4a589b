// Parts of the page that are loaded when they are first looked at. Their texts come with the page, packed, so that a saved
// notebook and a file have them too: nothing is fetched.
import { ensure } from "./arrays.js";
import { read } from "./wire.js";

export interface Modules { load<T>(name: string): Promise<T> }

async function evaluate(text: string): Promise<unknown> {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    return (await import(address)).default;
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** `packed`: gzip of a JSON object, text by name; see kvviz/view/page_modules.py. A module is loaded once. */
export function modules(packed: () => DataView | Uint8Array | null | undefined): Modules {
  const loaded = new Map<string, Promise<unknown>>();
  const begin = async (name: string) => {
    const raw = await read(packed());
    const text = raw && (JSON.parse(new TextDecoder().decode(raw)) as Record<string, string>)[name];
    if (!text) throw new Error(`this page came without its part "${name}"`);
    return evaluate(text);
  };
  return {
    load<T>(name: string): Promise<T> {
      return ensure(loaded, name, () => begin(name)) as Promise<T>;
    },
  };
}
