// The start of a page that is one file (kvviz/view/export.py): its blocks become bytes, its modules texts, and the page takes the place
// of the still picture.
import unpack from "./unpack.js";

/** `page`: the name of its module; `digits`: those of base 91, of which two are 13 bits, the lowest first. */
async function start({ page = "", digits = "" }: DOMStringMap): Promise<void> {
  const worth = new Uint8Array(128);
  [...digits].forEach((digit, i) => { worth[digit.charCodeAt(0)] = i; });
  const node = (name: string) => document.getElementById(`kvviz-${name}`)!;
  const bytes = (name: string) => {
    const text = node(name).textContent!;
    const found = new Uint8Array((text.length * 13) >> 4);
    for (let at = 0, i = 0, bits = 0, word = 0; i < text.length; i += 2) {
      word |= (worth[text.charCodeAt(i)]! + worth[text.charCodeAt(i + 1) & 127]! * 91) << bits;
      for (bits += 13; bits > 7; bits -= 8, word >>= 8) found[at++] = word;
    }
    return found;
  };
  const still = node("still");
  const names = Array.from(document.querySelectorAll('script[type="application/octet-stream"]'), ({ id }) => id.replace("kvviz-", ""));
  try {
    const texts = new TextDecoder().decode(unpack(bytes("modules"))).split("\0");
    const modules = Object.fromEntries(texts.map((text) => [text.split("\n", 1)[0], text.slice(text.indexOf("\n"))]));
    node("style").textContent = modules.style!;
    const { default: entry } = await import(URL.createObjectURL(new Blob([modules[page]!], { type: "text/javascript" })));
    const state: Record<string, unknown> = {
      decode_step: 0, selection: null, breakpoints: [], theme: "auto", height: Math.max(560, innerHeight - 40), ...JSON.parse(node("state").textContent!),
    };
    for (const name of names) state[name] = name === "modules" ? modules : new DataView(bytes(name).buffer);
    /** This file as it is now. */
    const file = () => {
      const copy = document.documentElement.cloneNode(true) as HTMLElement;
      const inside = (name: string) => copy.querySelector(`#${name}`);
      inside("kvviz")!.replaceChildren();
      inside("kvviz-style")!.textContent = "";
      const now = Object.entries(state).filter(([name]) => name !== "height" && !names.includes(name));
      inside("kvviz-state")!.textContent = JSON.stringify(Object.fromEntries(now)).replaceAll("<", "\\u003c");
      if (!inside("kvviz-still")) inside("kvviz")!.after(still.cloneNode(true));
      return `<!doctype html>${copy.outerHTML}`;
    };
    const model = { get: (name: string) => state[name], set: (name: string, value: unknown) => { state[name] = value; }, save_changes() {}, on() {}, off() {}, file };
    entry.render({ model, el: document.getElementById("kvviz") });
    still.remove();
  } catch (error) {
    still.querySelector("p")!.append(` This browser could not start the page: ${error}`);
  }
}

void start(document.currentScript!.dataset);
