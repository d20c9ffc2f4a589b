"""Before and after side by side in a real JupyterLab: one cursor, and figures that are those of the traces."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Browser, Locator, Page, expect

import kvviz
from kvviz.widget import Pair
from tests.ui.conftest import from_cells, opened
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
CELL = """
import kvviz
from kvviz.widget import Pair
graph = kvviz.load("assets/models/o01_optimum_llama/model.onnx")
tight = kvviz.decode(graph, [5, 17, 33], 4)
roomy = kvviz.decode(graph, [5, 17, 33], 3, kv_capacity=8)
pair = Pair(tight, roomy, labels=("tight", "with room"))
pair
"""


class PairPage:
    """Drive a pair in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator(".kvviz").first
        self.root.scroll_into_view_if_needed()
        self.sides = [self.root.locator(f'.kv-half[data-side="{name}"]') for name in ("cursor", "partner")]
        for side in self.sides:
            expect(side.locator('[data-kv="sentence"]')).to_be_visible()

    def kv(self, name: str, side: int | None = None) -> Locator:
        return (self.root if side is None else self.sides[side]).locator(f'[data-kv="{name}"]')

    def goto(self, side: int, step: int) -> None:
        self.kv("goto", side).fill(str(step))
        self.kv("goto", side).press("Enter")
        self.expect_step(side, step)

    def expect_step(self, side: int, step: int) -> None:
        expect(self.sides[side].locator(".kv-root")).to_have_attribute("data-step", str(step))

    def step(self, side: int) -> int:
        return int(self.sides[side].locator(".kv-root").get_attribute("data-step") or "-2")

    def op(self, side: int) -> str:
        """Name of the op that this side shows."""
        return self.sides[side].locator(".kv-this .kv-big").get_attribute("title") or ""


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    nbformat.write(from_cells([CELL]), jupyter.root / "pair.ipynb")
    with opened(browser, jupyter, "pair.ipynb", width=1700) as page:
        page.run_all()
        yield page


@pytest.fixture
def pair(notebook: NotebookPage) -> Iterator[PairPage]:
    yield PairPage(notebook.page)
    notebook.check()


PLACE = "[t.steps[%d].run, list(t.steps[%d].frame), t.steps[%d].node]"


@pytest.mark.parametrize("side", [0, 1])
def test_moving_one_side_moves_the_other_to_the_same_op(notebook: NotebookPage, pair: PairPage, side: int) -> None:
    # when
    pair.goto(side, 600 + side)
    pair.kv("next", side).click()
    pair.expect_step(side, 601 + side)
    # then
    mine, other = pair.step(side), pair.step(1 - side)
    names = ("tight", "roomy")
    places = [
        notebook.python((PLACE % (step, step, step)).replace("t.", f"{names[s]}."))
        for s, step in ((side, mine), (1 - side, other))
    ]
    assert places[0] == places[1]
    assert pair.op(0) == pair.op(1) == places[0][2]


def test_python_follows_both_sides_and_moves_both(notebook: NotebookPage, pair: PairPage) -> None:
    pair.goto(0, 500)
    notebook.page.wait_for_timeout(500)
    assert notebook.python("[pair.cursor, pair.partner]") == [500, pair.step(1)]
    notebook.execute("pair.partner = 41")
    pair.expect_step(1, 41)
    pair.expect_step(0, notebook.python("pair.cursor"))


def test_an_op_that_the_other_side_lacks_leaves_it_dimmed_with_a_note(notebook: NotebookPage, pair: PairPage) -> None:
    # given the run that only the first trace has
    step = notebook.python("tight.runs[-1].first") + 3
    # when
    pair.goto(0, step)
    # then
    last = notebook.python("len(roomy.steps)") - 1
    pair.expect_step(1, last)
    expect(pair.sides[1]).to_have_attribute("data-near", "1")
    expect(pair.kv("partner-note", 1)).to_have_text(re.compile(f"does not run here: shown is step {last},"))
    expect(pair.kv("partner-note", 0)).to_have_text("")
    # and when there is a partner again
    pair.goto(0, 10)
    expect(pair.sides[1]).not_to_have_attribute("data-near", "1")


def test_the_header_compares_what_both_came_to(notebook: NotebookPage, pair: PairPage) -> None:
    told = {figure.get_attribute("data-id"): figure.inner_text() for figure in pair.kv("pair-figure").all()}
    # as many steps on either side: those of the runs that both have
    assert list(told) == ["peak", "copied", "allocated", "in_place", "missed"]
    expect(pair.root.locator('[data-kv="pair-count"]')).to_contain_text("runs that both have finished")
    saved = notebook.python("tight.bytes_copied - roomy.bytes_copied")
    assert saved > 0 and "−" in told["copied"] and "%" in told["copied"]
    expect(pair.root.locator('[data-kv="pair-figure"][data-id="copied"]')).to_have_attribute("data-change", "better")
    peaks = notebook.python("[tight.peak_bytes, roomy.peak_bytes]")
    assert told["peak"].count("kB") + told["peak"].count("MB") >= 2 or str(peaks[0]) in told["peak"].replace(",", "")


def test_a_button_leads_to_the_first_difference(notebook: NotebookPage, pair: PairPage) -> None:
    # when
    pair.kv("first-difference").click()
    # then
    first = notebook.python(
        "__import__('dataclasses').asdict("
        "__import__('kvviz.explain.compare', fromlist=['compare']).first_difference(tight, roomy))"
    )
    pair.expect_step(0, first["step"])
    expect(pair.kv("pair-first")).to_contain_text(first["sentence"].split(": ", 1)[0])
    assert pair.op(0) == first["node"]
    # and the arrows go on from there
    here = pair.step(0)
    pair.kv("next-difference").click()
    expect(pair.sides[0].locator(".kv-root")).not_to_have_attribute("data-step", str(here))
    assert pair.step(0) > here


def test_keys_move_the_side_that_has_the_focus(notebook: NotebookPage, pair: PairPage) -> None:
    pair.goto(0, 20)
    pair.sides[1].locator(".kv-root").focus()
    notebook.page.keyboard.press("ArrowRight")
    pair.expect_step(0, 21)


def test_a_node_chosen_on_one_side_is_lit_on_both(pair: PairPage) -> None:
    pair.goto(0, 20)
    node = pair.sides[0].locator('[data-kv="graph-node"][data-state="running"]').first
    # the canvas under it takes the click
    expect(node).to_be_visible()
    node.click(force=True)
    for side in (0, 1):
        lit = pair.sides[side].locator('[data-kv="graph-node"][data-lit]')
        expect(lit).to_have_attribute("data-node", node.get_attribute("data-node") or "")
    pair.sides[0].locator(".kv-root").press("Escape")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [600, 1400])
def test_it_fits_its_width_in_both_themes(notebook: NotebookPage, pair: PairPage, theme: str, width: int) -> None:
    # given
    notebook.theme("dark" if theme == "dark" else "light")
    pair.goto(0, 600)
    # when
    pair.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    boxes = [side.bounding_box() for side in pair.sides]
    overflow = pair.root.evaluate("(root) => root.scrollWidth - root.clientWidth")
    inner = [side.locator(".kv-root").evaluate("(root) => root.scrollWidth - root.clientWidth") for side in pair.sides]
    notebook.screenshot(f"pair-{theme}-{width}", pair.root)
    pair.root.evaluate("(root) => { root.style.width = ''; }")
    # then
    assert overflow <= 0 and max(inner) <= 0
    left, right = boxes
    assert left and right
    stacked = right["y"] >= left["y"] + left["height"]
    assert stacked == (width < 900)


def test_the_page_of_its_own_moves_both_sides_without_a_kernel(browser: Browser, tmp_path: Path) -> None:
    # given
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    before, after = (kvviz.decode(graph, [5, 17, 33], 2, policy=policy) for policy in ("never", "ideal"))
    Pair(before, after).to_html(tmp_path / "pair.html")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "pair.html").as_uri())
    pair = PairPage(page)
    # when
    pair.goto(1, 300)
    # then
    pair.expect_step(0, 300)
    expect(pair.kv("pair-back")).to_have_count(0)
    expect(pair.kv("apply")).to_have_count(0)
    assert errors == []
    page.close()


def test_a_saved_notebook_is_alive_before_it_is_run_again(browser: Browser, jupyter: Jupyter) -> None:
    # given a notebook that was executed and saved with the state of its widgets, and is trusted
    plan = "from kvviz.widget import plan\nplanner = plan(graph)\nplanner"
    notebook = from_cells([CELL, plan])
    resources = {"metadata": {"path": str(jupyter.root)}}
    NotebookClient(notebook, timeout=300, store_widget_state=True, resources=resources).execute()
    nbformat.write(notebook, jupyter.root / "saved.ipynb")
    trust = f"{jupyter.url}/api/contents/saved.ipynb/trust?token={jupyter.token}"
    urllib.request.urlopen(urllib.request.Request(trust, method="POST"), timeout=30).close()
    with opened(browser, jupyter, "saved.ipynb", width=1700) as page:
        # when
        pair = PairPage(page.page)
        pair.goto(0, 600)
        # then
        pair.expect_step(1, 600)
        planner = page.page.locator('.kvviz[data-mode="planner"]')
        planner.scroll_into_view_if_needed()
        planner.locator('[data-kv="next"]').click()
        expect(planner).to_have_attribute("data-step", "0")
