"""An op that was called in place and took other memory is not shown as in place, nor saved as something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

import kvviz
from tests.engine.graphs import graph_of
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

ENDS = """agraph (float[1,p,8] past, float[1,1,8] more) => (float[1,q,8] present, float[1,1,8] low) {
    present = Concat <axis = 1> (past, more) up = Exp (more) down = Sqrt (up) low = Neg (down)
}"""


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    inputs = {"past": np.ones((1, 5, 8), np.float32), "more": np.ones((1, 1, 8), np.float32)}
    return kvviz.run(graph_of(ENDS), inputs, donate=["past"], policy="rten")


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, trace: kvviz.Trace, tmp_path: Path, request: Any) -> Iterator[FilePage]:
    trace.to_html(tmp_path / "ends.html")
    found = FilePage(browser, tmp_path / "ends.html", "#step=0", color_scheme=request.param)
    yield found
    found.close()


def test_the_card_says_called_in_place_and_copied(page: FilePage, trace: kvviz.Trace) -> None:
    page.expect_step(0)
    decision = page.kv("decision")
    expect(decision).to_have_attribute("data-state", "elsewhere")
    expect(decision).to_contain_text("↷")
    expect(decision).to_contain_text("Called in place, copied 160 B: no room to grow")
    expect(page.kv("sentence").first).to_contain_text("was called in place with past")
    # and an op whose output lies in its input is still in place, in another colour
    colour = decision.evaluate("(n) => getComputedStyle(n).color")
    page.goto(next(s.index for s in trace.steps if s.outcome == "in_place"))
    expect(decision).to_have_attribute("data-state", "in_place")
    assert decision.evaluate("(n) => getComputedStyle(n).color") != colour


def test_the_legend_the_table_and_a_query_know_it(page: FilePage, trace: kvviz.Trace) -> None:
    expect(page.kv("graph-legend")).to_contain_text("called in place, wrote elsewhere")
    page.root.locator('[data-kv="tab"][data-id="steps"]').click()
    row = page.root.locator('[data-kv="table-row"][data-step="0"] .kv-decision')
    expect(row).to_have_text("↷ called in place")
    for query, step in (("called in place", 0), ("in place", trace.find("in place").numbers[0])):
        page.kv("query").fill(query)
        page.kv("query").press("Enter")
        page.expect_step(step)
    expect(page.kv("query-count")).to_contain_text(f"{len(trace.find('in place'))} hit")


def test_a_single_run_shows_the_rows_that_its_past_had(page: FilePage) -> None:
    page.root.locator('[data-kv="tab"][data-id="caches"]').click()
    expect(page.root).to_contain_text("5 of 5 rows were valid before")
