// The module of the memory map, loaded when its place is first seen.
import type { Context } from "./lazypane.js";
import { MapPane } from "./mappane.js";
import type { View } from "./store.js";

export default function make(host: HTMLElement, context: Context, signal: AbortSignal): View {
  return new MapPane(host, context.store, signal);
}
