// The module of the Values tab, loaded when it is first looked at.
import type { Context } from "./lazypane.js";
import { ValuesPane } from "./values.js";

export default function make(host: HTMLElement, context: Context, signal: AbortSignal): ValuesPane {
  return new ValuesPane(host, context, signal);
}
