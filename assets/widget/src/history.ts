// Where the reader was: places to go back to and forward again, each with the finding that was framed there.
import { same, type Selection } from "./select.js";
import type { Change, Evidence, Store, View } from "./store.js";

export interface Place { number: number; selection: Selection | null; evidence?: Evidence | null }
const MOST = 200;
const ONE_MOVE = 350; // ms: positions of one drag, or a jump and the selection that comes with it

export class History implements View {
  #places: Place[];
  #at = 0;
  #last = -ONE_MOVE;
  #moving = false;
  jumped = false; // whether the last change was a jump, which can be undone

  constructor(private store: Store, private clock = () => performance.now()) { this.#places = [this.#now()]; }

  #now(): Place { return { number: this.store.number, selection: this.store.selection, evidence: this.store.evidence }; }
  get from(): Place | null { return this.#places[this.#at - 1] ?? null; }
  get next(): Place | null { return this.#places[this.#at + 1] ?? null; }

  back(): boolean { return this.#go(this.#at - 1); }
  forward(): boolean { return this.#go(this.#at + 1); }

  #go(at: number): boolean {
    const place = this.#places[at];
    if (!place) return false;
    this.#at = at;
    const { number, selection } = this.#now();
    this.#moving = number !== place.number || !same(selection, place.selection);
    if (place.evidence) this.store.frame(place.evidence.finding, place.evidence.at);
    this.store.go(place.number);
    this.store.select(place.selection);
    return true;
  }

  update(change: Change): void {
    if (change.payload || !(change.cursor || change.selection)) return;
    const here = this.#places[this.#at];
    const now = this.#now();
    const moved = Math.abs(now.number - here.number);
    const chosen = now.selection !== null && !same(now.selection, here.selection);
    this.jumped = false;
    if (this.#moving) {
      this.#moving = moved > 0 || !same(now.selection, here.selection); // the place may be reached in two changes
      return;
    }
    const time = this.clock();
    const go = moved > 1 || chosen;
    // single steps and drags move the present place
    if (!go || time - this.#last < ONE_MOVE) this.#places[this.#at] = now;
    else {
      this.#places.splice(this.#at + 1);
      this.#places.push(now);
      if (this.#places.length > MOST) this.#places.shift();
      this.#at = this.#places.length - 1;
    }
    if (go) this.#last = time;
    this.jumped = moved > 1;
  }
}
