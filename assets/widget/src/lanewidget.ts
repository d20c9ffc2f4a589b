// What belongs to lanes, as one module: the strip under the words, the comparison of two, the menu that makes them.
import { CompareList } from "./comparelist.js";
import { ForkMenu } from "./forkmenu.js";
import { LaneStrip } from "./lanestrip.js";
import { OrderView } from "./orderview.js";
import { stateOf } from "./lanestate.js";
import type { Context, MakePane } from "./lazypane.js";

/** `menu` opens the menu at its button, or closes it. */
export interface LaneModule { strip: MakePane; compare: MakePane; menu(app: HTMLElement, context: Context, button: HTMLElement, signal: AbortSignal): void }

const menus = new WeakMap<HTMLElement, ForkMenu>();
const module: LaneModule = {
  strip: (host, context, signal) => new LaneStrip(host, context, stateOf(context), signal),
  compare: (host, context, signal) => {
    const state = stateOf(context);
    const list = new CompareList(host, context, state, signal);
    const orders = new OrderView(host.querySelector("[data-kv=\"differences\"]")!, context, state, signal);
    return { update: (change) => { list.update(change); orders.update(change); } };
  },
  menu: (app, context, button, signal) => {
    let menu = menus.get(app);
    if (!menu) {
      menus.set(app, (menu = new ForkMenu(app, context, stateOf(context), signal)));
      context.store.add(menu);
    }
    menu.toggle(button);
  },
};
export default module;
