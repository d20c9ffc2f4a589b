"""Forks and their lanes in a real JupyterLab, and in a file: made, looked at, compared and undone by clicks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import onnx
import pytest
from playwright.sync_api import Browser, Locator, expect

import kvviz
from tests.decode.small import small
from tests.ui.conftest import OpenNotebook, from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import FilePage
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

CELL = """
import kvviz
graph = kvviz.load("small.onnx")
first = kvviz.decode(graph, [5, 7, 3], 5)
kvviz.debug(first)
"""


def lanes(root: Locator) -> Locator:
    return root.locator('[data-kv="lane"]')


def sums(root: Locator) -> list[int]:
    """What all listed differences come to: bytes copied and allocated."""
    foot = root.locator('[data-kv="difference-sum"]')
    return [int(foot.get_attribute(f"data-{name}") or "-1") for name in ("copied", "allocated")]


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    onnx.save(small("concat").proto, jupyter.root / "small.onnx")
    nbformat.write(from_cells([CELL]), jupyter.root / "lanes.ipynb")
    with opened(browser, jupyter, "lanes.ipynb", width=1600) as page:
        page.run_all()
        yield page


@pytest.fixture
def debugger(notebook: NotebookPage) -> Iterator[DebuggerPage]:
    """A debugger with one lane."""
    page = DebuggerPage(notebook)
    yield page
    notebook.execute("while len(_kv.lanes) > 1: _kv.close_lane(_kv.lanes[-1]['id'])")
    expect(lanes(page.root)).to_have_count(0)
    notebook.check()


def fork_to_rten(debugger: DebuggerPage) -> None:
    debugger.kv("fork").click()
    debugger.kv("fork-item").get_by_text("rten", exact=True).click()
    expect(debugger.kv("policy")).to_have_text("policy: rten")


def test_two_lanes_are_compared_and_each_difference_leads_to_its_step_in_both(debugger: DebuggerPage) -> None:
    debugger.goto(40)
    fork_to_rten(debugger)
    # then the same op is shown in a lane that says what it costs
    assert debugger.python("t.steps[d.cursor].node == first.steps[40].node")
    debugger.expect_step(debugger.python("d.cursor"))
    # and when both are compared
    lanes(debugger.root).last.locator('[data-kv="lane-compare"]').click()
    expect(debugger.kv("difference").first).to_be_visible()
    assert sums(debugger.root) == debugger.python(
        "[t.bytes_copied - first.bytes_copied, t.bytes_allocated - first.bytes_allocated]"
    )
    rows = debugger.kv("difference").all()
    told = [
        max(abs(int(row.get_attribute(f"data-{name}") or 0)) for name in ("copied", "allocated")) for row in rows[:8]
    ]
    assert told == sorted(told, reverse=True)
    assert debugger.root.locator('[data-kv="pair-figure"]').count() >= 4
    debugger.notebook.screenshot("lanes-compared", debugger.root)
    # and the graph says so where decisions differ
    expect(debugger.root.locator(".kv-graph [data-versus]").first).to_have_count(1)
    # and one of the differences is opened, then looked at from the other side
    debugger.kv("difference").first.click()
    step = debugger.kv("gap").nth(1)
    step.click()
    at = int(step.get_attribute("data-b") or -1)
    debugger.expect_step(at)
    debugger.notebook.page.wait_for_timeout(300)
    assert debugger.python("d.cursor") == at
    lanes(debugger.root).first.locator('[data-kv="lane-name"]').click()
    debugger.expect_step(int(step.get_attribute("data-a") or -1))
    debugger.notebook.page.wait_for_timeout(300)
    assert debugger.python("[d.lane, t is first]") == [0, True]
    assert debugger.python("d.cursor") == debugger.step


def test_python_shows_another_lane_and_the_page_follows(debugger: DebuggerPage) -> None:
    fork_to_rten(debugger)
    debugger.notebook.execute("_kv.lane = 0\n_kv.cursor = 60")
    expect(debugger.kv("policy")).to_have_text("policy: ideal")
    debugger.expect_step(60)
    # and back
    debugger.notebook.execute("_kv.lane = _kv.lanes[-1]['id']")
    expect(debugger.kv("policy")).to_have_text("policy: rten")
    debugger.expect_step(debugger.python("d.cursor"))


LIVE = '''
import numpy as np, kvviz
from onnx import parser
model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> live (float[4] x) => (float[4] y) {
    a = Exp (x)
    b = Neg (x)
    c = Sin (a)
    d = Abs (b)
    y = Add (c, d) }""")
for node in model.graph.node:
    node.name = node.output[0]
kvviz.debug(kvviz.load(model), {"x": np.arange(4, dtype=np.float32)})
'''


def test_at_the_live_edge_one_goes_back_and_chooses_again(open_notebook: OpenNotebook) -> None:
    # given a run of which three ops ran
    notebook = open_notebook([LIVE], width=1600)
    notebook.run_all()
    debugger = DebuggerPage(notebook)
    for step in range(3):
        debugger.kv("next").click()
        debugger.expect_step(step)
    # when one goes back and chooses another op
    debugger.goto(0)
    debugger.root.locator('[data-kv="frontier-row"][title^="c"] [data-kv="run-next"]').click()
    # then it goes on live from there, and what ran before is the other lane
    debugger.expect_step(1)
    expect(lanes(debugger.root)).to_have_count(2)
    assert debugger.python("[[s.node for s in trace.steps] for trace in d.traces.values()]") == [
        ["a", "b", "c"],
        ["a", "c"],
    ]
    for step in (2, 3, 4):
        debugger.kv("next").click()
        debugger.expect_step(step)
    assert debugger.python("[s.node for s in t.steps]") == ["a", "c", "b", "d", "y"]
    # and the other lane goes on from where it was
    lanes(debugger.root).first.locator('[data-kv="lane-name"]').click()
    expect(lanes(debugger.root).first).to_have_attribute("data-shown", "1")
    debugger.goto(2)
    debugger.kv("next").click()
    debugger.expect_step(3)
    assert debugger.python("[s.node for s in t.steps]") == ["a", "b", "c", "d"]
    notebook.check()


def test_lanes_of_a_file_are_shown_and_compared_without_a_kernel(browser: Browser, tmp_path: Path) -> None:
    graph = kvviz.load(small("concat").proto)
    found = kvviz.compare(graph, prompt=[1, 2, 3], max_new_tokens=3)
    found.to_html(tmp_path / "lanes.html")
    file = FilePage(browser, tmp_path / "lanes.html", width=800)
    expect(lanes(file.root)).to_have_count(3)
    file.goto(40)
    lanes(file.root).nth(1).locator('[data-kv="lane-name"]').click()
    # then the same op is shown in the other lane
    there, _ = found.align(0, 1)
    expect(file.root).to_have_attribute("data-step", str(there[40]))
    expect(file.kv("policy")).to_have_text("policy: rten")
    # and the differences come to those of the traces
    for other in (1, 2):
        lanes(file.root).nth(other).locator('[data-kv="lane-compare"]').click()
        expect(lanes(file.root).nth(other).locator('[data-kv="lane-compare"]')).to_have_attribute(
            "aria-pressed", "true"
        )
        first, second = found[0], found[other]
        assert sums(file.root) == [
            second.bytes_copied - first.bytes_copied,
            second.bytes_allocated - first.bytes_allocated,
        ]
    assert file.root.evaluate("(root) => root.scrollWidth - root.clientWidth") <= 0
    # and what needs a kernel says so
    expect(file.kv("lane-close")).to_have_count(0)
    file.kv("fork").click()
    expect(file.kv("fork-menu")).to_contain_text("needs a running kernel")
    file.close()
