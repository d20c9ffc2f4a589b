"""Stepping where nothing is recorded yet, in a real JupyterLab: into loops, and over values that are not finite."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import OpenNotebook
from tests.ui.debugger import DebuggerPage

pytestmark = pytest.mark.ui

LOOPS = '''
import numpy as np, kvviz
from onnx import parser
model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> loops (float[4] x, int64 n) => (float[4] y) {
    turns = Loop (n, , x) <body = turn (int64 i, bool go, float[4] a) => (bool on, float[4] c) {
        on = Identity (go)
        m = Exp (a)
        inner = Loop (n, , m) <body = small (int64 k, bool more, float[4] s) => (bool again, float[4] t) {
            again = Identity (more)
            t = Neg (s) }>
        c = Add (inner, a) }>
    r = Relu (x)
    y = Add (turns, r) }""")
kvviz.debug(kvviz.load(model), {"x": np.arange(4, dtype=np.float32), "n": np.int64(3)})
'''
# Every run of which the page has shown the totals, whether for a moment or for good.
WATCH = """(root) => {
  window.bareRuns = [];
  const look = () => root.dataset.bare === undefined || window.bareRuns.push(root.dataset.bare);
  new MutationObserver(look).observe(root, { attributes: true, attributeFilter: ["data-bare"] });
}"""


def test_stepping_into_loops_shows_every_step_in_the_iteration_that_it_ran_in(open_notebook: OpenNotebook) -> None:
    # given a debugger before the first op of nested loops
    notebook = open_notebook([LOOPS], width=1600)
    notebook.run_all()
    debugger = DebuggerPage(notebook)
    debugger.root.evaluate(WATCH)
    crumbs = debugger.root.locator(".kv-crumbs > :is(button, [data-kv=crumb-here])")
    for step in range(33):
        # when
        debugger.kv("into").click()
        # then
        debugger.expect_step(step)
        frame = debugger.python(f"t.steps[{step}].frame")
        expect(crumbs).to_have_text(["loops", *frame])
        where = [f"step {step}", " › ".join(frame)] if frame else [f"step {step}"]
        expect(debugger.root.locator(".kv-this > header .kv-hint")).to_have_text(" · ".join(where))
        expect(debugger.root.locator('.kv-graph [data-state="running"]').first).to_be_visible()
    assert debugger.python("t.live") is None
    # and it never had to be content with the totals of a run
    assert notebook.page.evaluate("window.bareRuns") == []
