// The anywidget model: traits that a person changes are written a little later, messages are sent, changes listened to.
import { NEEDS_KERNEL, type Ask, type Message } from "./commands.js";

export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, call: (...args: any[]) => void): void;
  off(event: string, call?: (...args: any[]) => void): void;
  send?(message: unknown): void;
  file?(): string; // of a page that is a file: its text
  widget_manager?: { kernel?: unknown };
}

const WRITE_DELAY = 50; // ms: Python follows the cursor, it does not need every position of a drag
export const ANSWER_DELAY = 4000; // ms without an answer before we say that nobody seems to listen
const RUN_DELAY = 60_000; // where the kernel has to run everything again

export function listen(model: Model, event: string, call: (...args: any[]) => void, signal: AbortSignal): void {
  model.on(event, call);
  signal.addEventListener("abort", () => model.off(event, call));
}

/** Writes traits; `values` tells the present value of each. */
export class Writer {
  #dirty = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  constructor(private model: Model, private values: Record<string, () => unknown>, life: AbortSignal) {
    life.addEventListener("abort", this.flush);
  }

  touch(...names: string[]): void {
    for (const name of names) this.#dirty.add(name);
    this.#timer ??= setTimeout(this.flush, WRITE_DELAY);
  }

  /** A trait that is about to be written does not follow the model. */
  has(name: string): boolean { return this.#dirty.has(name); }

  flush = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#dirty.size) return;
    for (const name of this.#dirty) this.model.set(name, this.values[name]());
    this.#dirty.clear();
    this.model.save_changes();
  };
}

export interface Line { ask: Ask; answered(): void }

/** Questions to the kernel; `tell` says that no answer came. */
export function line(model: Model, tell: (note: string) => void, life: AbortSignal): Line {
  let waiting: ReturnType<typeof setTimeout> | undefined;
  const answered = () => clearTimeout(waiting);
  life.addEventListener("abort", answered);
  const manager = model.widget_manager;
  const able = () => !!model.send && !(manager && "kernel" in manager && !manager.kernel);
  const ask = (message: Message): boolean => {
    if (!able()) return false;
    try {
      // traits are written a little later than messages are sent
      model.send!({ ...message, shown: model.get("lane") ?? 0 });
    } catch {
      return false;
    }
    clearTimeout(waiting);
    // a page whose kernel has gone still has a `send`; silence is the only sign
    const slow = message.do === "fix" || message.do === "fork" || message.do === "html";
    waiting = setTimeout(() => tell(`no answer yet; ${NEEDS_KERNEL}`), slow ? RUN_DELAY : ANSWER_DELAY);
    return true;
  };
  return { ask: Object.assign(ask, { able }), answered };
}
