"""A page over ggml graphs: hidden pairs, bars of a pair, what the graph orders, whose cells are, another order live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

import kvviz
from kvviz.ggml import KVCache
from kvviz.report.palette import LIGHT
from kvviz.view.charts.cell_plot import hue
from tests.ui.conftest import OpenNotebook
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

DECODE = Path(__file__).resolve().parents[2] / "assets" / "models" / "llama_cpp"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    """A decode step of SmolLM2, as llama.cpp ran it."""
    recording = kvviz.ggml.load(sorted(DECODE.glob("*.jsonl.gz"))[0])
    made: kvviz.Trace = recording.graphs[-1].trace
    return made


@pytest.fixture(scope="module")
def page(browser: Browser, trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilePage]:
    path = tmp_path_factory.mktemp("ggml") / "step.html"
    trace.to_html(path)
    shown = FilePage(browser, path, width=1500, height=800)
    yield shown
    shown.close()


def _open(page: FilePage) -> None:
    """Have the list of hazards open; a click on the tab of an open one closes it."""
    if not page.kv("pairs").is_visible():
        page.root.locator('[role="tab"][data-id="hazards"]').click()
    expect(page.kv("pairs")).to_be_visible()


def _seen(part: Locator) -> bool:
    """Whether all of an element is inside of what its pane shows."""
    told: list[float] = part.evaluate(
        """(node) => {
          const box = node.getBoundingClientRect(), pane = node.closest(".kv-panels").getBoundingClientRect();
          return [box.height, box.top - pane.top, pane.bottom - box.bottom];
        }"""
    )
    return told[0] > 0 and min(told) >= -1


def test_a_finding_names_the_hidden_pairs_and_leads_to_them(page: FilePage, trace: kvviz.Trace) -> None:
    found = kvviz.hazards(trace)
    told = page.kv("finding").first
    expect(told.locator("b")).to_have_text(f"{len(found)} hidden pairs; nothing but the order of the list keeps them")
    expect(told.locator(".kv-at")).to_contain_text("RAW × 30 layers: SET_ROWS → MUL_MAT")
    told.click()
    expect(page.kv("pair-card")).to_contain_text("Nothing but the order of the list keeps this read behind that write")
    page.expect_step(min(hazard.second for hazard in found))
    page.root.get_by_text("show all").click()
    # One line in the layer that is open, and one for those of K in all that are folded.
    folded = len(found) // 2 - 1
    expect(page.kv("graph-stage")).to_have_attribute("data-red", f"RAW · {found[0].bytes} B; RAW ×{folded}")


@pytest.mark.parametrize("width", [1500, 1100, 800])
def test_the_bars_of_a_pair_and_what_each_precision_says_are_seen_without_scrolling(page: FilePage, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800})
    _open(page)
    expect(page.kv("pair-says")).to_have_count(3)
    for kv in ("pair-bar", "pair-says"):
        assert [_seen(part) for part in page.kv(kv).all()] == [True] * 3
    page.page.set_viewport_size({"width": 1500, "height": 800})


def test_pairs_that_the_graph_orders_are_listed_when_asked_for_with_their_path(
    page: FilePage, trace: kvviz.Trace
) -> None:
    ordered = [hazard for hazard in kvviz.hazards(trace, ordered=True) if hazard.ordered]
    _open(page)
    expect(page.kv("ordered-group")).to_have_count(0)
    page.kv("pairs-ordered").click()
    expect(page.kv("ordered-count")).to_contain_text(f"{len(ordered):,} pairs that a path")
    # when: K is turned, looked at through a view, and stored
    group = page.kv("ordered-group").filter(has_text="ROPE → SET_ROWS")
    group.click()
    page.kv("ordered").first.click()
    meant = next(h for h in ordered if trace.steps[h.first].op_type == "ROPE" and "SET_ROWS" in h.sentence)
    page.expect_step(meant.second)
    steps = page.kv("pair-path").locator('[data-kv="step-link"]')
    assert (steps.first.get_attribute("data-step"), steps.last.get_attribute("data-step")) == (
        str(meant.first),
        str(meant.second),
    )
    expect(page.kv("pair-card")).to_contain_text("offset 0")
    page.kv("pairs-ordered").click()
    expect(page.kv("pair-bars")).to_be_visible()


def test_cells_have_the_hues_of_their_sequences_and_a_legend_that_counts_them(browser: Browser, tmp_path: Path) -> None:
    cache = KVCache(8, n_seq_max=3)
    cache.append(3, seq=0)
    cache.append(2, seq=1)
    cache.seq_cp(1, 2)
    cache.seq_rm(0, 1, 3)
    cache.trace.to_html(tmp_path / "cells.html")
    page = FilePage(browser, tmp_path / "cells.html", f"#step={len(cache.trace.steps) - 1}")
    page.root.locator('[role="tab"][data-id="caches"]').click()
    # Cell 0 is of sequence 0, cells 1 and 2 are freed and dirty, 3 and 4 are of sequences 1 and 2.
    expect(page.kv("cache-sequence")).to_have_text(["sequence 01", "sequence 12", "sequence 22"])
    expect(page.kv("cache-cell")).to_have_text(["freed, dirty2"])
    # then: the border of a cell is the hue of its first sequence
    for seq, least in ((0, 20), (1, 40)):
        red, green, blue = (int(hue(seq, LIGHT)[at : at + 2], 16) for at in (1, 3, 5))
        counted = page.kv("heat").evaluate(
            """(canvas, [r, g, b]) => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let n = 0;
              for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) n++;
              return n;
            }""",
            [red, green, blue],
        )
        assert counted > least
    page.close()


GRAPH = """
import kvviz
from kvviz.ggml import Context
ctx = Context()
k = ctx.new_tensor("f32", 4, 8, name="k_cache", role="state")
k_cur = ctx.new_tensor("f32", 4, 2, name="k_cur", data=[1] * 4 + [2] * 4)
q = ctx.new_tensor("f32", 4, 1, name="q", data=1)
write = ctx.set_name(ctx.cpy(k_cur, ctx.set_name(ctx.view_2d(k, 4, 2, 16, 48), "k_write_view")), "k_write")
kq = ctx.set_name(ctx.mul_mat(ctx.set_name(ctx.view_2d(k, 4, 8, 16, 0), "k_read_view"), q), "kq")
kvviz.debug(ctx.new_graph("seed").expand(write).expand(kq))
"""


def test_a_graph_is_stepped_live_past_its_end_and_led_another_way_in_a_lane(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook([GRAPH], width=1600)
    notebook.run_all()
    debugger = DebuggerPage(notebook)
    # when: stepped to the end, and once more
    for step in range(4):
        debugger.kv("next").click()
        debugger.expect_step(step)
    debugger.kv("next").click()
    expect(debugger.kv("status")).to_contain_text("everything has run")
    assert debugger.python("t.outputs['kq'].tolist()") == [0, 0, 0, 4, 8, 0, 0, 0]
    # when: the read goes first, one pick after the other
    debugger.goto(0)
    debugger.press("Home")
    for number, name in enumerate(("k_read_view", "kq")):
        row = debugger.kv("frontier-row").filter(has_text=name)
        row.locator('[data-kv="run-next"]').click()
        expect(debugger.kv("lane")).to_have_count(number + 2)
        debugger.expect_step(number)
    expect(debugger.kv("lane-broken")).to_have_text("✕ 1 broken")
    assert debugger.python("t.outputs['kq'].tolist()") == [0] * 8
    debugger.kv("lane-compare").last.click()
    told = debugger.kv("order-value")
    expect(told).to_contain_text("MUL_MAT kq is the first that made other numbers")
    expect(told).to_contain_text(
        "3 of its 32 bytes differ, between byte 14 and 19, because MUL_MAT kq reads k_read_view"
    )
