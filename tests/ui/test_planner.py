"""The planner in a real JupyterLab: what it shows of an event is what the planning events say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect

import kvviz
from kvviz.widget import Planner
from tests.ui.conftest import Show, from_cells, opened
from tests.ui.filepage import Shown
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
CELL = """
import kvviz
from kvviz.widget import plan
graph = kvviz.load("assets/models/o01_optimum_llama/model.onnx")
planner = plan(graph, policy="rten")
planner
"""


class PlannerPage(Shown):
    """Drive a planner in a page; its steps are events."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.root.scroll_into_view_if_needed()
        expect(self.kv("sentence")).to_be_visible()


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    nbformat.write(from_cells([CELL]), jupyter.root / "planner.ipynb")
    with opened(browser, jupyter, "planner.ipynb", width=1500) as page:
        page.run_all()
        yield page


@pytest.fixture
def planner(notebook: NotebookPage) -> Iterator[PlannerPage]:
    page = PlannerPage(notebook.page)
    page.root.focus()
    page.root.press("Home")
    page.expect_step(-1)
    yield page
    notebook.check()


PICKS = "[i for i, e in enumerate(planner.events) if e.action == 'pick']"


def test_an_event_is_told_with_its_reason_and_its_frontier(notebook: NotebookPage, planner: PlannerPage) -> None:
    picks = notebook.python(PICKS)
    for event in (0, 40, picks[0], picks[30], picks[-1]):
        planner.goto(event)
        told = notebook.python(
            f"(lambda e: [e.reason, [n.name for n in e.frontier], e.node.name])(planner.events[{event}])"
        )
        expect(planner.kv("event").locator(".kv-sentence")).to_have_text(f"{told[0]}.")
        rows = planner.kv("frontier-row")
        expect(rows).to_have_count(min(len(told[1]), 60))
        names = [(row.get_attribute("title") or "").split(": ran as")[0] for row in rows.all()]
        assert names == told[1][:60]
        if told[1]:
            chosen = planner.root.locator('[data-kv="frontier-row"][data-next]')
            assert (chosen.get_attribute("title") or "").startswith(told[2])


def test_keys_and_python_move_the_cursor(notebook: NotebookPage, planner: PlannerPage) -> None:
    picks = notebook.python(PICKS)
    planner.root.focus()
    for key in ("ArrowRight", "n", "ArrowRight", "p"):
        notebook.page.keyboard.press(key)
    planner.expect_step(1)
    notebook.page.keyboard.press(".")
    planner.expect_step(picks[0])
    notebook.page.keyboard.press(".")
    notebook.page.keyboard.press(",")
    planner.expect_step(picks[0])
    notebook.page.keyboard.press("End")
    planner.expect_step(notebook.python("len(planner.events)") - 1)
    notebook.page.wait_for_timeout(500)
    assert notebook.python("planner.cursor") == notebook.python("len(planner.events)") - 1
    notebook.execute("planner.goto(17)")
    planner.expect_step(17)


def test_a_row_of_the_plan_leads_to_its_pick(notebook: NotebookPage, planner: PlannerPage) -> None:
    picks = notebook.python(PICKS)
    planner.goto(picks[20])
    row = planner.root.locator(f'.kv-order [data-kv="event-row"][data-step="{picks[14]}"]')
    row.click()
    planner.expect_step(picks[14])
    expect(planner.root.locator(".kv-events tr[aria-current]")).to_contain_text("pick")


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1400, "light")])
def test_it_fits_its_width_in_both_themes(notebook: NotebookPage, planner: PlannerPage, theme: str, width: int) -> None:
    notebook.theme("dark" if theme == "dark" else "light")
    planner.goto(notebook.python(PICKS)[60])
    planner.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    overflow = planner.root.evaluate("(root) => root.scrollWidth - root.clientWidth")
    notebook.screenshot(f"planner-{theme}-{width}", planner.root)
    planner.root.evaluate("(root) => { root.style.width = ''; }")
    assert overflow <= 0


def test_a_step_shows_what_the_policys_planner_says_of_it(show: Show) -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    trace = kvviz.decode(graph, [5, 17, 33], 1, policy="onnxruntime")
    page = show(trace)
    for step in (3, 8, 64):
        page.goto(step)
        told = trace.log[step].op.note
        assert told.startswith("k")
        expect(page.kv("plan-note")).to_have_text(f"Plan {told}")


def test_the_page_of_its_own_steps_without_a_kernel(show: Show, tmp_path: Path) -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    made = Planner(graph, policy="least_live")
    made.goto(5)
    made.to_html(tmp_path / "plan.html")
    planner = show(tmp_path / "plan.html")
    planner.expect_step(5)
    planner.kv("next").click()
    planner.expect_step(6)
    expect(planner.kv("event").locator(".kv-sentence")).to_have_text(f"{made.events[6].reason}.")
