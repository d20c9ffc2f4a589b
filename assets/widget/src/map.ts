// The module of the memory map, loaded when its place is first seen.
import type { Context } from "./lazypane.js";
import { MapPane } from "./mappane.js";
import type { View } from "./store.js";
import { copyButton } from "./sharing.js";

export default function make(host: HTMLElement, context: Context, signal: AbortSignal): View {
  const pane = new MapPane(host, context.store, signal);
  const copy = copyButton(host, "memory map", context.share, signal);
  copy.tabIndex = -1; // arrows of the group come to it
  host.querySelector(".kv-map-tools")!.append(copy);
  return pane;
}
