// The second module of the debugger: the cache view, which caches.ts loads when its pane is first looked at.
import { View, type CacheView } from "./cacheview.js";
import type { Ask } from "./commands.js";
import type { Store } from "./store.js";

/** Draws into `host` until the signal ends. */
export default function make(host: HTMLElement, store: Store, ask: Ask, raw: ArrayBuffer, signal: AbortSignal): CacheView {
  return new View(host, store, ask, raw, signal);
}
