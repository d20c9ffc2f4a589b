"""Forks and their lanes in a real JupyterLab, and in a file: made, looked at, compared and undone by few clicks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

import kvviz
from kvviz.trace.units import size
from tests.decode.small import small
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import Hand
from tests.ui.page import NotebookPage

CELLS = [
    """
import kvviz
graph = kvviz.load("small.onnx")
first = kvviz.decode(graph, [5, 7, 3], 5)
kvviz.debug(first)
"""
]


@pytest.fixture
def debugger(notebook: NotebookPage) -> Iterator[DebuggerPage]:
    page = DebuggerPage(notebook)
    yield page
    notebook.execute("while len(_kv.lanes) > 1: _kv.close_lane(_kv.lanes[-1]['id'])")
    expect(page.kv("lane")).to_have_count(0)
    notebook.check()


def signed(nbytes: int) -> str:
    """Bytes with their sign, as the page writes them."""
    return f"−{size(-nbytes)}" if nbytes < 0 else f"+{size(nbytes)}"


def sums(root: Locator) -> list[int]:
    """What all listed differences come to: bytes copied and allocated."""
    foot = root.locator('[data-kv="difference-sum"]')
    return [int(foot.get_attribute(f"data-{name}") or "-1") for name in ("copied", "allocated")]


def test_another_policy_takes_two_clicks_and_each_difference_leads_to_its_step_in_both(debugger: DebuggerPage) -> None:
    debugger.goto(40)
    hand = Hand(debugger.page)
    hand.click(hand.kv("fork"))
    hand.click(hand.kv("fork-item").get_by_text("rten", exact=True))
    expect(hand.kv("policy")).to_have_text("policy: rten")
    assert hand.clicks == 2
    assert debugger.python("t.steps[d.cursor].node == first.steps[40].node")
    debugger.expect_step(debugger.python("d.cursor"))
    more = debugger.python("[t.bytes_copied - first.bytes_copied, t.bytes_allocated - first.bytes_allocated]")
    assert more[0] > 0
    lanes = hand.kv("lane")
    expect(lanes.last.locator('[data-what="copied"]')).to_have_text(f"{signed(more[0])} copied")
    lanes.last.locator('[data-kv="lane-compare"]').click()
    expect(debugger.kv("difference").first).to_be_visible()
    assert sums(debugger.root) == more
    assert debugger.kv("pair-figure").count() >= 4
    expect(debugger.root.locator(".kv-graph [data-versus]").first).to_have_count(1)
    # and one of the differences is opened, then looked at from the other side
    debugger.kv("difference").first.click()
    step = debugger.kv("gap").nth(1)
    step.click()
    at = int(step.get_attribute("data-b") or -1)
    debugger.expect_step(at)
    debugger.page.wait_for_timeout(300)
    assert debugger.python("d.cursor") == at
    lanes.first.locator('[data-kv="lane-name"]').click()
    debugger.expect_step(int(step.get_attribute("data-a") or -1))
    debugger.page.wait_for_timeout(300)
    assert debugger.python("[d.lane, t is first, d.cursor]") == [0, True, debugger.step]
    debugger.notebook.execute("_kv.lane = _kv.lanes[-1]['id']\n_kv.cursor = 60")
    expect(debugger.kv("policy")).to_have_text("policy: rten")
    debugger.expect_step(60)


def test_another_ready_op_runs_with_one_click_and_a_second_undoes_it(debugger: DebuggerPage) -> None:
    debugger.goto(43)
    hand = Hand(debugger.page)
    row = hand.kv("frontier-row").filter(has=hand.page.locator('[data-kv="run-next"]')).first
    node = (row.get_attribute("title") or "").partition(": ran as")[0]
    hand.click(row.locator('[data-kv="run-next"]'))
    expect(hand.kv("lane")).to_have_count(2)
    hand.expect_step(44)
    assert debugger.python("t.steps[44].node") == node != debugger.python("first.steps[44].node")
    hand.click(hand.kv("lane").last.locator('[data-kv="lane-close"]'))
    expect(hand.kv("lane")).to_have_count(0)
    assert debugger.python("t is first")
    assert hand.clicks == 2


def test_a_fix_is_applied_with_two_clicks_and_card_and_lane_agree(debugger: DebuggerPage) -> None:
    number = debugger.python("[one.kind for one in kvviz.findings(first)].index('copied')")
    one = f"kvviz.findings(first)[{number}]"
    change, lower, copied = debugger.python(f"(lambda x: [x.change, x.peak, x.bytes])({one})")
    hand = Hand(debugger.page)
    hand.click(hand.kv("finding", id=number))
    card = hand.root.locator(f'.kv-found > [data-id="{number}"]')
    expect(card.locator('[data-kv="effect"]')).to_have_text(f"{change} peak {signed(-lower)}")
    hand.click(card.locator('.kv-cure [data-kv="apply"]'))
    lane = hand.kv("lane").last
    expect(hand.kv("lane")).to_have_count(2)
    assert hand.clicks == 2
    before, after = debugger.python("[[t.bytes_copied, t.peak_bytes, t.bytes_allocated] for t in (first, t)]")
    for name, was, now in zip(("copied", "peak", "allocated"), before, after, strict=True):
        expect(lane.locator(f'[data-what="{name}"]')).to_have_text(f"{signed(now - was)} {name}")
    assert (before[0] - after[0], before[1] - after[1]) == (copied, lower)
    assert debugger.python("[t.tokens == first.tokens, 'copied' in [f.kind for f in kvviz.findings(t)]]") == [
        True,
        False,
    ]
    hand.click(lane.locator('[data-kv="lane-compare"]'))
    expect(hand.kv("difference-sum")).to_be_visible()
    assert sums(hand.root) == [after[0] - before[0], after[2] - before[2]]


LIVE = '''
import numpy as np, kvviz
from onnx import parser
model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> live (float[4] x) => (float[4] y) {
    [a] a = Exp (x) [b] b = Neg (x) [c] c = Sin (a) [d] d = Abs (b) [y] y = Add (c, d) }""")
kvviz.debug(kvviz.load(model), {"x": np.arange(4, dtype=np.float32)})
'''


def test_at_the_live_edge_one_runs_on_goes_back_and_chooses_again(open_notebook: OpenNotebook) -> None:
    debugger = DebuggerPage(open_notebook([LIVE], width=1600))
    hand = Hand(debugger.page)
    hand.ask("op:Sin")
    hand.click(hand.kv("run-to"))
    debugger.expect_step(2)
    assert debugger.python("[s.node for s in t.steps]") == ["a", "b", "c"]
    assert hand.clicks == 2
    debugger.goto(0)
    debugger.root.locator('[data-kv="frontier-row"][title^="c"] [data-kv="run-next"]').click()
    # then it goes on live from there, and what ran before is the other lane
    debugger.expect_step(1)
    lanes = hand.kv("lane")
    expect(lanes).to_have_count(2)
    debugger.kv("next").click()
    debugger.expect_step(2)
    nodes = "[[s.node for s in trace.steps] for trace in d.traces.values()]"
    assert debugger.python(nodes) == [["a", "b", "c"], ["a", "c", "b"]]


def test_lanes_of_a_file_are_shown_and_compared_without_a_kernel(show: Show, tmp_path: Path) -> None:
    found = kvviz.compare(kvviz.load(small("concat").proto), prompt=[1, 2, 3], max_new_tokens=3)
    found.to_html(tmp_path / "lanes.html")
    file = show(tmp_path / "lanes.html", width=800)
    lanes = file.kv("lane")
    expect(lanes).to_have_count(3)
    file.goto(40)
    lanes.nth(1).locator('[data-kv="lane-name"]').click()
    file.expect_step(found.align(0, 1)[0][40])
    expect(file.kv("policy")).to_have_text("policy: rten")
    for other in (1, 2):
        compare = lanes.nth(other).locator('[data-kv="lane-compare"]')
        compare.click()
        expect(compare).to_have_attribute("aria-pressed", "true")
        first, second = found[0], found[other]
        copied, allocated = (getattr(second, n) - getattr(first, n) for n in ("bytes_copied", "bytes_allocated"))
        assert sums(file.root) == [copied, allocated]
    expect(file.kv("lane-close")).to_have_count(0)
    file.kv("fork").click()
    expect(file.kv("fork-menu")).to_contain_text("needs a running kernel")
