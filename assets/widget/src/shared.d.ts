// What the page shares with its modules, by name; build.mjs makes this module.
declare module "shared" {}
