"""Pages of traces in which something is unlike most: no steps, those of some runs, a branch, a call in vain."""

import re

from playwright.sync_api import expect

import kvviz
from kvviz.decode.token_loop import DecodeSession
from tests.test_models import graph_of
from tests.ui.conftest import Show
from tests.view.golden import TRACES


def test_nothing_has_run(show: Show) -> None:
    page = show(DecodeSession(graph_of("storyteller/attention_24"), [1, 5, 9], max_new_tokens=3).trace)
    expect(page.kv("findings")).to_have_text("Nothing has run.")
    expect(page.kv("graph-stage").locator("canvas").first).to_be_hidden()
    for tab in page.kv("tab").filter(visible=True).all():
        tab.click()
        expect(page.root.get_by_text("could not be loaded")).to_have_count(0)
    page.kv("open-map").click()
    page.kv("buffer-way").click()


def test_a_finding_in_a_branch_is_left_for_the_main_graph(show: Show) -> None:
    page = show(kvviz.decode(graph_of("o02_optimum1_merged_gpt2"), [5, 17, 33], 2, progress=False))
    page.kv("finding").nth(1).click()
    stage = page.kv("graph-stage")
    expect(stage).to_have_attribute("aria-label", re.compile("past:"))
    page.root.press("Home")
    expect(stage).not_to_have_attribute("aria-label", re.compile("past:"))


def test_a_range_may_begin_and_end_in_runs_of_which_only_totals_are_here(show: Show) -> None:
    trace = kvviz.decode(graph_of("storyteller/concat"), [1, 5, 9], 30, detail=[10, 20], progress=False)
    page = show(trace, width=1500, height=950)
    page.drag_timeline(15.5 / 30, 25.5 / 30)
    kept = trace.runs[20]
    between = trace.runs[11:20]
    expect(page.kv("range")).to_contain_text(f"–{kept.last - 1:,}")
    expect(page.kv("range")).to_contain_text(f"and the totals of {len(between)} runs, ")
    expect(page.kv("range")).to_contain_text(f"without {len(between)} runs")
    page.kv("range-steps").click(trial=True)  # no other pane lies over its end
    page.kv("range-clear").click()
    expect(page.kv("range")).to_be_hidden()


def test_an_op_that_was_called_in_place_and_took_other_memory_is_not_shown_as_in_place(show: Show) -> None:
    trace = TRACES["called"]()
    page = show(trace, "#step=0")
    page.expect_step(0)
    decision = page.kv("decision")
    expect(decision).to_have_attribute("data-state", "elsewhere")
    expect(decision).to_contain_text("↷")
    expect(decision).to_contain_text("Called in place, copied 160 B: no room to grow")
    expect(page.kv("sentence").first).to_contain_text("was called in place with past")
    colour = decision.evaluate("(n) => getComputedStyle(n).color")
    page.goto(next(s.index for s in trace.steps if s.outcome == "in_place"))
    expect(decision).to_have_attribute("data-state", "in_place")
    assert decision.evaluate("(n) => getComputedStyle(n).color") != colour
    expect(page.kv("graph-legend")).to_contain_text("called in place, wrote elsewhere")
    page.kv("tab", id="steps").click()
    expect(page.kv("table-row", step=0).locator(".kv-decision")).to_have_text("↷ called in place")
    # and the rows that its past had
    page.kv("tab", id="caches").click()
    expect(page.root).to_contain_text("5 of 5 rows were valid before")
