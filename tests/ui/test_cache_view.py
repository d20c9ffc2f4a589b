"""The cache view in a real JupyterLab: what it shows of a row is what the trace says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import nbformat
import onnx
import pytest
from playwright.sync_api import Browser, expect

from tests.decode import small
from tests.ui.caches import CachePage
from tests.ui.conftest import from_cells, opened
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

CELLS = [
    """
import json, kvviz
from kvviz.caches.cache_heat import OUTSIDE, WRAPPED, WRITTEN, attention, heat
from kvviz.caches.cache_warnings import cache_warnings
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
words = json.load(open("assets/models/storyteller/vocab.json"))
trace = kvviz.decode(graph, "once upon a time there was", 9, tokenizer=words, kv_capacity=24)
debugger = kvviz.debug(trace)
debugger
""",
    """
ringed = kvviz.decode(kvviz.load("circular.onnx"), [1, 2, 3, 4], 12)
ring = kvviz.debug(ringed, step=len(ringed.steps) - 1)
ring
""",
    """
live = kvviz.debug(graph, prompt=[1, 5, 9], max_new_tokens=4, recorded=2)
live
""",
]


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    onnx.save(small.circular().proto, jupyter.root / "circular.onnx")
    nbformat.write(from_cells(CELLS), jupyter.root / "caches.ipynb")
    with opened(browser, jupyter, "caches.ipynb", width=1700) as page:
        page.run_all()
        yield page


@pytest.fixture
def view(notebook: NotebookPage) -> Iterator[CachePage]:
    view = CachePage(notebook.page)
    view.open()
    yield view
    notebook.page.mouse.move(0, 0)
    notebook.check()


def test_graph_and_step_keep_their_place_when_the_pane_is_opened(notebook: NotebookPage, view: CachePage) -> None:
    # given the list of steps, and the graph above it
    view.to_run(5)
    view.kv("tab", id="steps").click()
    graph, side = (view.root.locator(f".kv-{name}") for name in ("graph", "this"))
    # with the bar above it that says which finding is shown
    height = "(pane) => pane.getBoundingClientRect().bottom - pane.parentElement.getBoundingClientRect().top"
    tall = graph.evaluate(height)
    view.open()
    # then a good part of the graph is left, with the op that just ran in it, and the step can be read
    assert graph.evaluate(height) > max(200, 0.5 * tall)
    running = view.root.locator('[data-kv="graph-node"][data-state="running"]')
    expect(running).to_be_in_viewport()
    hidden = """(node) => {
      const [box, edge] = [node, node.closest(".kv-stage")].map((one) => one.getBoundingClientRect());
      return box.top < edge.top || box.bottom > edge.bottom;
    }"""
    notebook.page.wait_for_timeout(300)
    assert not running.evaluate(hidden)
    assert side.evaluate("(pane) => pane.clientHeight") > 180


def test_a_row_that_is_pointed_at_is_told_with_its_token_and_the_run_that_wrote_it(
    notebook: NotebookPage, view: CachePage
) -> None:
    for run, row, state, wrote in [
        (0, 3, "written by this run", ""),
        (5, 3, "holds a token", "written in prefill"),
        (5, 8, "holds a token", "written in decode 2"),
        (5, 11, "written by this run", ""),
        (5, 20, "reserved, never written", ""),
    ]:
        view.to_run(run)
        told = view.point(row, 24, head=1)
        assert state in told and wrote in told
        position = notebook.python(f"int(heat(trace, trace.caches[0], {run}).positions[{row}])")
        assert position == (-1 if state.startswith("reserved") else row)
        word = notebook.python(f"trace.words[{position}]")
        assert (f"token “{word}” at {row}" in told) == (position >= 0)


def test_keys_move_over_rows_and_leave_the_step_alone(view: CachePage) -> None:
    view.to_run(3)
    step = view.root.get_attribute("data-step")
    heat = view.root.locator(".kv-heat")
    heat.focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown"):
        heat.press(key)
    expect(view.kv("cache-tip")).to_contain_text("position 2, head 1:")
    assert view.root.get_attribute("data-step") == step
    expect(heat).to_have_attribute("aria-label", re.compile(r"after decode 3: .*14 reserved, 9 valid, 1 written"))


def test_the_runs_of_a_cache_are_a_way_to_go_to_them(view: CachePage) -> None:
    view.to_run(0)
    pitch = (view.kv("occupancy").evaluate("(canvas) => canvas.clientHeight") - 15) / 9
    view.kv("occupancy").click(position={"x": 200, "y": 5.5 * pitch})
    expect(view.root.locator(".kv-run")).to_contain_text("decode 5")
    expect(view.root.locator(".kv-cache-main .kv-hint")).to_contain_text("in decode 5")


def test_what_attention_weighed_comes_from_the_kernel(notebook: NotebookPage, view: CachePage) -> None:
    view.to_run(4)
    weights = notebook.python("attention(trace, trace.caches[0], 4).tolist()")
    heads = len(notebook.python("heat(trace, trace.caches[0], 4).states[:, 0].tolist()"))
    share = len(weights) // heads
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("the attention weights of")
    for row, head in ((0, 0), (5, 1), (9, 0)):
        x, y = view.place(row, 24, head)
        view.kv("heat").hover(position={"x": x, "y": y})
        expect(view.kv("cache-tip")).to_contain_text(f"position {row}, head {head}:")
        told = re.search(r"weight ([\d.e-]+)", view.kv("cache-tip").inner_text())
        mean = sum(weights[head * share + i][row] for i in range(share)) / share
        assert told and float(told.group(1)) == pytest.approx(mean, rel=0.06, abs=1e-4)
    notebook.screenshot("cache-attention", view.root)
    view.kv("attention").click()


def test_a_query_of_the_prompt_can_be_chosen(notebook: NotebookPage, view: CachePage) -> None:
    view.to_run(0)
    view.kv("attention").click()
    expect(view.kv("weights-query")).to_be_visible()
    view.kv("weights-query").fill("0")
    view.kv("weights-query").press("Enter")
    # the first token sees itself only
    expect(view.kv("cache-tip")).to_contain_text("query 0 of this run")
    x, y = view.place(0, 24)
    view.kv("heat").hover(position={"x": x, "y": y})
    expect(view.kv("cache-tip")).to_contain_text("weight 1.0")
    view.kv("attention").click()


def test_where_the_graph_does_not_show_weights_the_view_says_so(notebook: NotebookPage) -> None:
    ring = CachePage(notebook.page, 1)
    ring.open()
    ring.kv("attention").click()
    expect(ring.kv("cache-tip")).to_contain_text("does not show what attention weighed")
    ring.kv("attention").click()


def test_a_cache_that_is_chosen_is_chosen_everywhere(notebook: NotebookPage, view: CachePage) -> None:
    view.kv("cache-row", id=3).click()
    expect(view.root.locator(".kv-cache-main h3")).to_have_text(notebook.python("trace.caches[3].name"))
    expect(view.root.locator(".kv-this")).to_contain_text(notebook.python("trace.caches[3].name"))
    assert notebook.python("debugger.selection") == {"kind": "cache", "id": 3}
    view.kv("tab", id="buffers").click()
    expect(view.root.locator('[data-kv="storage-bar"][data-lit]')).to_have_count(1)
    view.open()
    view.kv("cache-row", id=0).click()


def test_large_gives_the_caches_the_room_of_the_graph(view: CachePage) -> None:
    view.kv("cache-large").click()
    expect(view.root.locator(".kv-main")).to_be_hidden()
    expect(view.kv("decode-slider")).to_be_visible()
    view.kv("tab", id="steps").click()
    expect(view.root.locator(".kv-main")).to_be_visible()
    view.open()
    view.kv("cache-large").click()
    expect(view.root.locator(".kv-main")).to_be_visible()


def test_a_run_that_ends_is_added_to_the_view(notebook: NotebookPage) -> None:
    # given a debugger whose third run has not begun
    live = CachePage(notebook.page, 2)
    live.open()
    live.to_run(1)
    expect(live.kv("meter", id="valid").locator("td").first).to_have_text("4")
    notebook.execute("live.goto(len(live.trace.steps) + 1300)")
    told = notebook.python("len(live.trace.caches[0].runs)")
    assert told >= 3
    live.to_run(told - 1)
    expect(live.kv("meter", id="valid").locator("td").first).to_have_text(str(3 + told - 1))


def test_warnings_are_told_with_the_run_that_they_begin_at(notebook: NotebookPage) -> None:
    # given caches without room, which are copied at every step
    live = CachePage(notebook.page, 2)
    live.open()
    (told, *_) = notebook.python("[[w.kind, w.run] for w in cache_warnings(live.trace)]")
    warning = live.kv("cache-warning").first
    expect(warning).to_contain_text(told[0])
    live.to_run(0)
    warning.locator("button").click()
    expect(live.root.locator(".kv-run")).to_contain_text(f"decode {told[1]}")
    assert live.kv("cache-row", id=0).get_attribute("data-warned") == "1"


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1000, "light"), (1400, "dark")])
def test_it_fits_its_width_in_both_themes(
    notebook: NotebookPage, view: CachePage, theme: Literal["light", "dark"], width: int
) -> None:
    notebook.theme(theme)
    view.to_run(6)
    view.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    overflow = view.root.evaluate("(root) => root.scrollWidth - root.clientWidth")
    main = view.root.locator(".kv-cache-main")
    inner = main.evaluate("(box) => box.scrollWidth - box.clientWidth")
    notebook.screenshot(f"caches-{theme}-{width}", view.root)
    view.root.evaluate("(root) => { root.style.width = ''; }")
    notebook.theme("light")
    assert overflow <= 0 and inner <= 0
