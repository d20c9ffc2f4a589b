"""Stepping and scrubbing in the page, without the kernel, on the largest model that we have, with every block open.

Judged by the processor time of the page's main thread, which depends less on what else the machine does just now.
Chromium draws in software here, on the same cores, so this is a floor for a machine with a screen.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Browser, CDPSession

from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

STEP_MS = 50
DRAG_MS = 100  # a hand that drags must not get ahead of the page by more than it notices

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


PARTS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def main_thread(session: CDPSession) -> list[float]:
    """Processor time in ms that the page's main thread has spent so far: in all, and on scripts, layout and style."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return [1000 * float(metrics[part]) for part in PARTS]


@pytest.fixture(scope="module")
def debugger(browser: Browser, jupyter: Jupyter) -> Iterator[DebuggerPage]:
    """The debugger on the largest model, all blocks unfolded."""
    nbformat.write(from_cells([LARGEST]), jupyter.root / "largest.ipynb")
    with opened(browser, jupyter, "largest.ipynb") as notebook:
        notebook.run_all()
        debugger = DebuggerPage(notebook)
        debugger.kv("unfold").click()
        yield debugger


@pytest.mark.parametrize(("script", "limit"), [(PRESS, STEP_MS), (DRAG, DRAG_MS)], ids=["step", "drag"])
def test_moving_the_cursor_is_fast(debugger: DebuggerPage, script: str, limit: float) -> None:
    # given
    page = debugger.notebook.page
    debugger.goto(debugger.python("t.runs[3].first"))
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    moves = 120
    # when
    before = main_thread(session)
    waited = debugger.root.evaluate(script, moves)
    spent = [(now - then) / moves for now, then in zip(main_thread(session), before, strict=True)]
    # then
    told = ", ".join(f"{part.removesuffix('Duration')} {ms:.1f}" for part, ms in zip(PARTS, spent, strict=True))
    print(f"ms a move, limit {limit:.1f}: {told}; waited {statistics.median(waited):.1f} (median)")
    assert debugger.step >= moves
    assert spent[0] < limit, told
