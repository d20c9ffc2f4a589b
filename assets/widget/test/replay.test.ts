import { expect, test } from "vitest";
import { branches } from "./mock.js";
import { unpack } from "../src/wire.js";
test("x", () => { const p = unpack(branches()); expect(p.steps).toBe(1); });
