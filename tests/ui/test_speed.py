"""Stepping and scrubbing in the page, without the kernel, on the largest model that we have, with every block open.

Chromium draws in software here, on the same cores, so this is a floor for a machine with a screen.
"""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Browser

from tests.ui import pace
from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

LARGEST = """
import kvviz
graph = kvviz.load("assets/models/o02_optimum1_merged_gpt2/model.onnx")
kvviz.debug(graph, prompt=[7, 70, 21], max_new_tokens=8)
"""

# Press a key, wait for the frame in which the page shows the step, and so on. Returns ms from key to frame.
PRESS = """async (root, count) => {
  const frame = () => new Promise((next) => requestAnimationFrame(next));
  const times = [];
  root.focus();
  for (let i = 0; i < count; i++) {
    const before = root.dataset.step, start = performance.now();
    root.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    while (root.dataset.step === before && performance.now() - start < 5000) await frame();
    times.push(performance.now() - start);
  }
  return times;
}"""
# Drag the step slider over the whole recording, a move in every frame. Returns ms from frame to frame.
DRAG = """async (root, count) => {
  const slider = root.querySelector('[data-kv="step-slider"]');
  const last = Number(slider.max);
  const times = [];
  let then = await new Promise((next) => requestAnimationFrame(next));
  for (let i = 1; i <= count; i++) {
    slider.value = String(Math.round((i / count) * last));
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    const now = await new Promise((next) => requestAnimationFrame(next));
    times.push(now - then);
    then = now;
  }
  return times;
}"""


@pytest.fixture(scope="module")
def debugger(browser: Browser, jupyter: Jupyter) -> Iterator[DebuggerPage]:
    """The debugger on the largest model, all blocks unfolded."""
    nbformat.write(from_cells([LARGEST]), jupyter.root / "largest.ipynb")
    with opened(browser, jupyter, "largest.ipynb") as notebook:
        notebook.run_all()
        debugger = DebuggerPage(notebook)
        debugger.kv("unfold").click()
        yield debugger


@pytest.mark.parametrize(("script", "limit"), [(PRESS, pace.STEP), (DRAG, pace.DRAG)], ids=["step", "drag"])
def test_moving_the_cursor_is_fast(debugger: DebuggerPage, script: str, limit: float) -> None:
    # given
    debugger.goto(debugger.python("t.runs[3].first"))
    moves = 120
    # when
    cost = pace.cost_of(debugger, script, moves)
    # then
    assert debugger.step >= moves
    assert cost < limit
