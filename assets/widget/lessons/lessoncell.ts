// The entry of "lesson": the pictures in steps of a notebook or an exported page.
import { startAll } from "./lesson.js";

startAll();
