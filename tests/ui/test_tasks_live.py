"""What people ask where a kernel runs, counted in clicks: on recordings in JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import onnx
import pytest
from playwright.sync_api import Browser, expect

from kvviz.trace.units import size
from tests.decode.small import small
from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.hand import Hand
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter
from tests.ui.test_tasks import CLICKS

pytestmark = pytest.mark.ui

CELL = """
import kvviz
graph = kvviz.load("small.onnx")
first = kvviz.decode(graph, [5, 7, 3], 5)
kvviz.debug(first)
"""
LIVE = """
import json, kvviz
words = json.load(open("assets/models/storyteller/vocab.json"))
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
kvviz.debug(graph, prompt="once upon a time", max_new_tokens=4, tokenizer=words, recorded=0)
"""


def signed(nbytes: int) -> str:
    """Bytes with their sign, as the page writes them."""
    return f"−{size(-nbytes)}" if nbytes < 0 else f"+{size(nbytes)}"


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    onnx.save(small("concat").proto, jupyter.root / "small.onnx")
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
    debugger.goto(43)
    hand = Hand(debugger.page)
    row = hand.kv("frontier-row").filter(has=hand.root.page.locator('[data-kv="run-next"]')).first
    node = (row.get_attribute("title") or "").partition(": ran as")[0]
    hand.click(row.locator('[data-kv="run-next"]'))
    expect(hand.kv("lane")).to_have_count(2)
    hand.expect_step(44)
    assert debugger.python("t.steps[44].node") == node
    assert debugger.python("first.steps[44].node") != node
    # and undone
    hand.click(hand.kv("lane").last.locator('[data-kv="lane-close"]'))
    expect(hand.kv("lane")).to_have_count(0)
    assert debugger.python("t is first")
    print(hand.told("another ready op and back"))
    assert hand.clicks == CLICKS["another_ready_op_and_undo"]


def test_ideal_against_rten_takes_two_clicks(debugger: DebuggerPage) -> None:
    debugger.goto(40)
    hand = Hand(debugger.page)
    hand.click(hand.kv("fork"))
    hand.click(hand.kv("fork-item").get_by_text("rten", exact=True))
    expect(hand.kv("policy")).to_have_text("policy: rten")
    # then the lane says what it costs beside the other
    more = debugger.python("t.bytes_copied - first.bytes_copied")
    assert more > 0
    expect(hand.kv("lane").last.locator('[data-what="copied"]')).to_have_text(f"{signed(more)} copied")
    print(hand.told("ideal against rten"))
    assert hand.clicks == CLICKS["ideal_against_rten"]


def test_a_fix_is_applied_with_two_clicks_and_card_lane_and_markdown_agree(debugger: DebuggerPage) -> None:
    number = debugger.python("[one.kind for one in kvviz.findings(first)].index('copied')")
    one = f"kvviz.findings(first)[{number}]"
    change, lower, copied, step = debugger.python(f"(lambda x: [x.change, x.peak, x.bytes, x.step])({one})")
    hand = Hand(debugger.page)
    hand.click(hand.kv("finding", id=number))
    card = hand.root.locator(f'.kv-found > [data-id="{number}"]')
    expect(card.locator('[data-kv="effect"]')).to_have_text(f"{change} peak {signed(-lower)}")
    hand.click(card.locator('.kv-cure [data-kv="apply"]'))
    # then the lane shows by how much both differ
    lane = hand.kv("lane").last
    expect(hand.kv("lane")).to_have_count(2)
    print(hand.told("fix, before and after"))
    assert hand.clicks == CLICKS["a_fix_before_and_after"]
    before, after = debugger.python("[[t.bytes_copied, t.peak_bytes, t.bytes_allocated] for t in (first, t)]")
    for name, was, now in zip(("copied", "peak", "allocated"), before, after, strict=True):
        expect(lane.locator(f'[data-what="{name}"]')).to_have_text(f"{signed(now - was)} {name}")
    assert (before[0] - after[0], before[1] - after[1]) == (copied, lower)
    assert debugger.python("t.tokens == first.tokens")
    # and the texts that are pasted elsewhere say the same
    texts = debugger.python(f"[first.to_markdown(), first.to_markdown({step})]")
    assert f"| {change} |" in texts[0]
    assert all(f"The peak is {size(-lower)} higher." in text for text in texts)
    # and the table of differences sums to them
    hand.click(lane.locator('[data-kv="lane-compare"]'))
    for place, name in ((0, "copied"), (2, "allocated")):
        expect(hand.kv("difference-sum")).to_have_attribute(f"data-{name}", str(after[place] - before[place]))


def test_at_the_live_edge_one_runs_on_to_a_concat_that_copies_and_steps_back(
    browser: Browser, jupyter: Jupyter
) -> None:
    nbformat.write(from_cells([LIVE]), jupyter.root / "onward.ipynb")
    with opened(browser, jupyter, "onward.ipynb", width=1600) as page:
        page.run_all()
        debugger = DebuggerPage(page)
        hand = Hand(debugger.page)
        # when it is to stop where a query finds a step, and nothing has run
        hand.ask("op:Concat copied>0")
        hand.click(hand.kv("run-to"))
        expect(hand.inspector).to_contain_text("Copied")
        # then it is the first that there is
        found = debugger.python("[[int(n) for n in t.find('op:Concat copied>0').numbers], len(t.steps)]")
        assert found == [[hand.step], hand.step + 1]
        print(hand.told("run on to a Concat that copies"))
        assert hand.clicks == 2
        # and one step back takes one more
        last = hand.step
        hand.click(hand.kv("back"))
        hand.expect_step(last - 1)
        assert hand.clicks == 3
