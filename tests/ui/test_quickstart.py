"""The first notebook in a real JupyterLab: what its debugger shows is what the trace in the kernel says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import OpenNotebook, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

QUICKSTART = "00_quickstart.ipynb"
FACTS = """[{
  "op": s.op_type, "node": s.node, "dispatch": s.decision.dispatch,
  "blockers": [str(getattr(b.code, "value", b.code)) for b in s.decision.blockers],
  "outs": [[o.name, f"B{o.storage}" + (f".{o.generation}" if o.generation else "")] for o in s.outs],
} for s in t.steps[%d:%d]]"""


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    """The notebook, run once for all tests of this file."""
    with opened(browser, jupyter, f"notebooks/{QUICKSTART}", width=1800) as page:
        page.run_all()
        yield page


@pytest.fixture
def debugger(notebook: NotebookPage) -> Iterator[DebuggerPage]:
    """Its debugger, before the first step, nothing selected."""
    debugger = DebuggerPage(notebook)
    debugger.press("Escape", "Home")
    debugger.expect_step(-1)
    yield debugger
    notebook.check()


def test_a_picture_shows_the_step_until_the_cells_are_run_and_then_the_debugger_shows_it(
    open_notebook: OpenNotebook,
) -> None:
    # given a notebook as committed, which nobody here has trusted yet
    notebook = open_notebook(QUICKSTART)
    picture = notebook.page.locator('.jp-OutputArea-output img[alt^="Step "]').first
    picture.scroll_into_view_if_needed()
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.complete && image.naturalWidth > 100")
    expect(notebook.page.locator(".kvviz")).to_have_count(0)
    notebook.run_all()
    debugger = DebuggerPage(notebook)
    debugger.expect_step(debugger.python("d.cursor"))


def test_the_tour_leads_through_eight_stops(notebook: NotebookPage, debugger: DebuggerPage) -> None:
    debugger.press("t")
    stops = debugger.python("[stop.step for stop in t.tour.stops]")
    assert len(stops) == 8
    for number, step in enumerate(stops, 1):
        expect(debugger.kv("tour-number")).to_have_text(f"{number} of 8")
        debugger.expect_step(step)
        expect(debugger.root.locator("[data-lit]").first).to_be_visible()
        if number == 2:
            expect(debugger.kv("heat")).to_be_visible()
            expect(debugger.kv("occupancy")).to_have_attribute("data-moves", "")  # room was reserved: nothing moves
        notebook.page.keyboard.press("ArrowRight")
    expect(debugger.kv("tour-card")).to_be_hidden()


def test_the_next_button_shows_step_after_step_of_the_trace(debugger: DebuggerPage) -> None:
    middle = debugger.steps // 2
    debugger.goto(middle)
    facts = debugger.python(FACTS % (middle + 1, middle + 6))
    for number, fact in enumerate(facts, middle + 1):
        debugger.kv("next").click()
        debugger.expect_step(number)
        expect(debugger.kv("sentence")).to_contain_text(f"Step {number}: ")
        expect(debugger.root.locator(".kv-this .kv-big")).to_have_attribute("title", fact["node"])
        expect(debugger.root.locator(".kv-this .kv-big")).to_contain_text(fact["op"])
        codes = debugger.kv("blocker").evaluate_all("(items) => items.map((item) => item.dataset.id)")
        assert codes == fact["blockers"]
        written = debugger.root.locator('.kv-places tr[data-side="out"]')
        for row, (name, buffer) in zip(written.all(), fact["outs"], strict=True):
            expect(row.locator('[data-kv="value"]')).to_have_attribute("title", name)
            expect(row.locator('[data-kv="buffer"]')).to_have_text(buffer)


def test_keys_move_the_cursor_and_python_follows(debugger: DebuggerPage) -> None:
    debugger.press("ArrowRight", "n", "ArrowRight", "ArrowLeft")
    debugger.expect_step(1)
    debugger.notebook.page.wait_for_timeout(500)
    assert debugger.python("d.cursor") == 1
    debugger.press("End")
    debugger.expect_step(debugger.steps - 1)


def test_a_cursor_set_in_python_moves_the_page(debugger: DebuggerPage) -> None:
    # given that Python has followed: a move that is still on its way to a busy kernel would come after Python's own
    for _ in range(100):
        if debugger.python("d.cursor") == -1:
            break
        debugger.notebook.page.wait_for_timeout(100)
    debugger.notebook.execute("_kv.cursor = 7")
    debugger.expect_step(7)


def test_next_at_the_recorded_end_runs_one_more_op(debugger: DebuggerPage) -> None:
    debugger.press("End")
    end = debugger.python("len(t.steps)")
    debugger.expect_step(end - 1)
    debugger.kv("next").click()
    debugger.expect_step(end)
    assert debugger.python("len(t.steps)") == end + 1
    expect(debugger.kv("sentence")).to_contain_text(f"Step {end}: ")


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1000, "light"), (1400, "dark")])
def test_it_fits_its_width_in_both_themes(
    notebook: NotebookPage, debugger: DebuggerPage, theme: str, width: int
) -> None:
    notebook.theme("dark" if theme == "dark" else "light")
    debugger.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    debugger.goto(debugger.steps // 2)
    overflow = debugger.root.evaluate("(root) => root.scrollWidth - root.clientWidth")
    picture = notebook.screenshot(f"quickstart-{theme}-{width}", debugger.root)
    debugger.root.evaluate("(root) => { root.style.width = ''; }")
    assert overflow <= 0
    assert picture.stat().st_size > 10_000
