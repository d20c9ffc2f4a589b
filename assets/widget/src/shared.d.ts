// What the page shares with its modules, by name; build.mjs makes this module.
declare module "shared" { export const shared: Record<string, unknown>; }
