"""What people ask where a kernel runs, counted in clicks: on a recorded storyteller in JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.hand import Hand
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

CELL = """
import json, kvviz
words = json.load(open("assets/models/storyteller/vocab.json"))
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
first = kvviz.decode(graph, "once upon a time", 5, tokenizer=words)
kvviz.debug(first)
"""
LIVE = """
import json, kvviz
words = json.load(open("assets/models/storyteller/vocab.json"))
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
kvviz.debug(graph, prompt="once upon a time", max_new_tokens=4, tokenizer=words, recorded=0)
"""


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    nbformat.write(from_cells([CELL]), jupyter.root / "tasks.ipynb")
    with opened(browser, jupyter, "tasks.ipynb", width=1600) as page:
        page.run_all()
        yield page


@pytest.fixture
def debugger(notebook: NotebookPage) -> Iterator[DebuggerPage]:
    page = DebuggerPage(notebook)
    yield page
    notebook.execute("while len(_kv.lanes) > 1: _kv.close_lane(_kv.lanes[-1]['id'])")
    expect(page.kv("lane")).to_have_count(0)
    notebook.check()


def test_another_ready_op_runs_with_one_click_and_a_second_undoes_it(debugger: DebuggerPage) -> None:
    debugger.goto(300)
    hand = Hand(debugger.root)
    other = hand.root.locator('[data-kv="frontier-row"]:not([data-next])').first
    node = (other.get_attribute("title") or "").partition(":")[0]
    # when
    hand.click(other.locator('[data-kv="run-next"]'))
    # then
    expect(hand.kv("lane")).to_have_count(2)
    hand.expect_step(301)
    assert debugger.python("t.steps[301].node") == node
    assert debugger.python("first.steps[301].node") != node
    # and undone
    hand.click(hand.kv("lane").last.locator('[data-kv="lane-close"]'))
    expect(hand.kv("lane")).to_have_count(0)
    assert debugger.python("t is first")
    print(hand.told("another ready op and back"))
    assert hand.clicks == 2


def test_ideal_against_rten_takes_two_clicks(debugger: DebuggerPage) -> None:
    debugger.goto(700)
    hand = Hand(debugger.root)
    # when
    hand.click(hand.kv("fork"))
    hand.click(hand.kv("fork-item").get_by_text("rten", exact=True))
    expect(hand.kv("policy")).to_have_text("policy: rten")
    # then the lane says what it costs beside the other
    more = debugger.python("t.bytes_copied - first.bytes_copied")
    assert more > 0
    expect(hand.kv("lane").last.locator('[data-what="copied"]')).to_have_text(f"+{more / 1000:.3g} kB copied")
    print(hand.told("ideal against rten"))
    assert hand.clicks == 2


def test_a_fix_is_applied_with_one_click_and_compared_with_a_second(debugger: DebuggerPage) -> None:
    find = "next([m.step, m.node, b.fix.label] for m in kvviz.explain(first).missed for b in m.blockers if b.fix)"
    step, node, label = debugger.python(find)
    debugger.goto(step)
    hand = Hand(debugger.root)
    # when
    hand.click(hand.inspector.locator('[data-kv="apply"]').first)
    expect(hand.kv("lane")).to_have_count(2)
    expect(hand.kv("lane").last).to_contain_text(label)
    expect(debugger.root.locator(".kv-this .kv-big")).to_have_attribute("title", node)
    expect(hand.kv("decision").first).to_have_attribute("data-state", "in_place")
    assert debugger.python("t.tokens == first.tokens")
    hand.click(hand.kv("lane").last.locator('[data-kv="lane-compare"]'))
    # then
    expect(hand.kv("difference").first).to_be_visible()
    sums = hand.kv("difference-sum")
    for name in ("copied", "allocated"):
        expect(sums).to_have_attribute(f"data-{name}", str(debugger.python(f"t.bytes_{name} - first.bytes_{name}")))
    print(hand.told("fix, before and after"))
    assert hand.clicks == 2


def test_at_the_live_edge_one_runs_on_to_a_concat_that_copies_and_steps_back(
    browser: Browser, jupyter: Jupyter
) -> None:
    nbformat.write(from_cells([LIVE]), jupyter.root / "onward.ipynb")
    with opened(browser, jupyter, "onward.ipynb", width=1600) as page:
        page.run_all()
        debugger = DebuggerPage(page)
        hand = Hand(debugger.root)
        # a ready op that is chosen by mouse runs with Enter
        for step in range(2):
            other = hand.kv("frontier-row").nth(1)
            node = other.get_attribute("title")
            other.locator(".kv-op").click()
            page.page.keyboard.press("Enter")
            hand.expect_step(step)
            assert debugger.python(f"t.steps[{step}].node") == node
        page.page.keyboard.press("Escape")
        # when Continue is to stop where a query finds a step, and two ops have run
        hand.ask("op:Concat copied>0")
        hand.click(hand.kv("breakpoints"))
        hand.click(hand.kv("breakpoint-query"))
        page.page.keyboard.press("Escape")
        hand.click(hand.kv("continue"))
        expect(hand.inspector).to_contain_text("Copied")
        # then it is the first that there is
        found = debugger.python("[[int(n) for n in t.find('op:Concat copied>0').numbers], len(t.steps)]")
        assert found == [[hand.step], hand.step + 1]
        print(hand.told("run on to a Concat that copies"))
        assert hand.clicks == 4
        # and one step back takes one more
        last = hand.step
        hand.click(hand.kv("back"))
        hand.expect_step(last - 1)
        assert hand.clicks == 5
