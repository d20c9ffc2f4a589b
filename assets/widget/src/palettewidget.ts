// The entry of the module "palette": what is opened by a key or a button, over the page.
import { help } from "./help.js";
import { BreakpointMenu } from "./menu.js";
import { Palette } from "./palette.js";

const made = { BreakpointMenu, Palette, help };
export default made;
export type PaletteModule = typeof made;
