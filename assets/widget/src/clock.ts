// The module of the lanes: what ran when on which lane, and in which memory every tensor lay meanwhile.
import { ClockPane } from "./clockpane.js";
import type { Context } from "./lazypane.js";
import type { View } from "./store.js";

export default function make(host: HTMLElement, context: Context, signal: AbortSignal): View {
  return new ClockPane(host, context.store, signal);
}
