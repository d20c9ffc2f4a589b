"""Pages of traces in which something that most have is missing: steps of some runs, all steps, or work of
the main graph."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.decode.token_loop import DecodeSession
from tests.test_models import graph_of
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui


def test_nothing_has_run(show: Show) -> None:
    page = show(
        DecodeSession(graph_of("storyteller/attention_24"), [1, 5, 9], max_new_tokens=3).trace, width=1500, height=950
    )
    expect(page.kv("findings")).to_have_text("Nothing has run.")
    expect(page.kv("graph-stage").locator("canvas").first).to_be_hidden()
    for tab in page.kv("tab").filter(visible=True).all():
        tab.click()
        expect(page.root.get_by_text("could not be loaded")).to_have_count(0)
    page.kv("open-map").click()
    page.kv("buffer-way").click()


def test_a_finding_in_a_branch_is_left_for_the_main_graph(show: Show) -> None:
    page = show(
        kvviz.decode(graph_of("o02_optimum1_merged_gpt2"), [5, 17, 33], 2, progress=False), width=1500, height=950
    )
    page.kv("finding").nth(1).click()
    stage = page.kv("graph-stage")
    expect(stage).to_have_attribute("aria-label", re.compile("past:"))
    page.root.press("Home")
    expect(stage).not_to_have_attribute("aria-label", re.compile("past:"))


def drag(page: FilePage, start: float, end: float) -> None:
    box = page.kv("timeline").bounding_box()
    assert box
    page.page.keyboard.down("Shift")
    page.page.mouse.move(box["x"] + start * box["width"], box["y"] + box["height"] / 2)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + end * box["width"], box["y"] + box["height"] / 2, steps=4)
    page.page.mouse.up()
    page.page.keyboard.up("Shift")


def test_a_range_may_begin_and_end_in_runs_of_which_only_totals_are_here(show: Show) -> None:
    trace = kvviz.decode(graph_of("storyteller/concat"), [1, 5, 9], 30, detail=[10, 20], progress=False)
    page = show(trace, width=1500, height=950)
    drag(page, 15.5 / 30, 25.5 / 30)
    kept = trace.runs[20]
    between = trace.runs[11:20]
    expect(page.kv("range")).to_contain_text(f"–{kept.last - 1:,}")
    expect(page.kv("range")).to_contain_text(f"and the totals of {len(between)} runs, ")
    expect(page.kv("range")).to_contain_text(f"without {len(between)} runs")
    page.kv("range-steps").click(trial=True)  # no other pane lies over its end
    page.kv("range-clear").click()
    expect(page.kv("range")).to_be_hidden()
