// Width of text as it will be drawn; a canvas measures without touching the page.
export class Ruler {
  #context = document.createElement("canvas").getContext("2d");
  #known = new Map<string, number>();
  #fitted = new Map<string, string>();
  constructor(private family: string) {}

  width(text: string, font: string): number {
    const key = font + text;
    let w = this.#known.get(key);
    if (w === undefined) {
      if (!this.#context) return text.length * 6.5;
      this.#context.font = `${font} ${this.family}`;
      this.#known.set(key, (w = this.#context.measureText(text).width));
    }
    return w;
  }

  /** The text, or as much of it as fits before an ellipsis; "" when not even two letters do. */
  fit(text: string, font: string, room: number): string {
    if (this.width(text, font) <= room) return text;
    const key = `${font}${Math.round(room)} ${text}`;
    let found = this.#fitted.get(key);
    if (found !== undefined) return found;
    let low = 0;
    let high = text.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.width(`${text.slice(0, middle)}…`, font) <= room) low = middle;
      else high = middle - 1;
    }
    if (this.#fitted.size > 5000) this.#fitted.clear();
    this.#fitted.set(key, (found = low < 2 ? "" : `${text.slice(0, low)}…`));
    return found;
  }
}
