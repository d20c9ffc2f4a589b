"""The columns of the page at every width, the drawer of tables, the axis of memory, and the explained words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

import kvviz
from tests.ui.conftest import Show

pytestmark = pytest.mark.ui

CONCAT = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller" / "concat" / "model.onnx"
COLUMNS = (".kv-findings", ".kv-evidence", ".kv-side")


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    made: kvviz.Trace = kvviz.decode(kvviz.load(CONCAT), [1, 77, 108], 12, progress=False)
    return made


def box(what: Locator) -> dict[str, float]:
    found = what.bounding_box()
    assert found
    return {"x": found["x"], "y": found["y"], "width": found["width"], "height": found["height"]}


@pytest.mark.parametrize(
    ("width", "look"),
    [(1200, {"color_scheme": "light"}), (1500, {"color_scheme": "dark"}), (2300, {"forced_colors": "active"})],
)
def test_three_columns_fill_the_width_and_the_graph_has_most_of_the_middle(
    show: Show, trace: kvviz.Trace, width: int, look: dict[str, Any]
) -> None:
    page = show(trace, width=width, height=950, **look)
    expect(page.kv("finding").first).to_be_visible()
    left, middle, right = (box(page.root.locator(name)) for name in COLUMNS)
    assert left["x"] + left["width"] <= middle["x"] and middle["x"] + middle["width"] <= right["x"]
    assert left["width"] + middle["width"] + right["width"] >= box(page.root)["width"] - 6
    assert middle["width"] >= 0.55 * width
    assert 0.55 <= box(page.root.locator(".kv-graph"))["height"] / middle["height"] <= 0.62


@pytest.mark.parametrize("width", [700, 1100])
def test_a_narrow_page_has_them_under_one_another_and_scrolls_to_the_last(
    show: Show, trace: kvviz.Trace, width: int
) -> None:
    page = show(trace, width=width, height=950)
    expect(page.kv("finding").first).to_be_visible()
    tops = [box(page.root.locator(name)) for name in COLUMNS]
    assert [one["y"] for one in tops] == sorted(one["y"] for one in tops)
    assert all(abs(one["width"] - box(page.root)["width"]) < 6 for one in tops)
    row = page.kv("frontier-row").last
    row.scroll_into_view_if_needed()
    expect(row).to_be_in_viewport()
    wide = page.root.locator(".kv-main").evaluate("(main) => main.scrollWidth - main.clientWidth")
    assert wide == 0


def test_the_drawer_is_closed_at_first_and_remembers_its_height(show: Show, trace: kvviz.Trace) -> None:
    page = show(trace, width=1500, height=950)
    panels, tab = page.root.locator(".kv-panels"), page.root.locator('[role="tab"][data-id="buffers"]')
    expect(panels).to_be_hidden()
    tab.click()
    expect(panels).to_be_visible()
    before = box(panels)["height"]
    bar = page.root.locator('[data-kv="splitter"][data-id="lists"]')
    for _ in range(3):
        bar.press("ArrowUp")
    taller = box(panels)["height"]
    assert taller == pytest.approx(before + 48, abs=1)
    # when it is closed, and another one opened on a page that is loaded again
    tab.click()
    expect(panels).to_be_hidden()
    expect(page.page).not_to_have_url(re.compile("list="))  # the address follows at most thrice a second
    page.page.reload()
    expect(panels).to_be_hidden()
    page.root.locator('[role="tab"][data-id="steps"]').click()
    assert box(panels)["height"] == pytest.approx(taller, abs=1)


def test_memory_stands_above_the_weights_and_says_so(show: Show, trace: kvviz.Trace) -> None:
    weights = sum(one.capacity for one in trace.storages if one.origin == "weights")
    assert 2 * weights > trace.peak_bytes
    page = show(trace, width=1500, height=950)
    said = page.root.locator('.kv-timeline [data-part="above"]')
    expect(said).to_have_text(f"{(trace.peak_bytes - weights) / 1e3:.3g} kB above {weights / 1e3:.3g} kB of weights")
    expect(said).to_have_attribute("title", re.compile("axis is broken"))
    expect(page.root.locator(".kv-yaxis")).to_have_text(re.compile(r"^\d+ kB\d+ kB0$"))


def test_moved_rows_are_marked_beside_the_rows(show: Show, trace: kvviz.Trace) -> None:
    page = show(trace, width=1500, height=950)
    page.root.locator('[role="tab"][data-id="caches"]').click()
    picture = page.kv("occupancy")
    expect(picture).to_have_attribute("data-moves", re.compile("moved"))
    # the last pixel columns of a run's valid rows have one colour from the first row on: no label lies over them
    colours = picture.evaluate(
        """(canvas) => { const ratio = canvas.width / canvas.clientWidth, y = Math.round(canvas.height * 0.6);
          const data = canvas.getContext("2d").getImageData(Math.round(50 * ratio), y, Math.round(120 * ratio), 1).data;
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 3).join());
          return seen.size; }"""
    )
    assert colours == 1


def test_a_name_that_is_too_long_loses_its_middle_and_keeps_all_of_its_text(show: Show, trace: kvviz.Trace) -> None:
    page = show(trace, width=1500, height=950)
    page.root.locator('[role="tab"][data-id="steps"]').click()
    cut = page.root.locator(".kv-steps .kv-cut", has_text="self_attn").first
    ends = "(name) => ['::before', '::after'].map((end) => parseFloat(getComputedStyle(name, end).width))"
    head, tail = cut.evaluate(ends)
    cut.evaluate(f"(name) => (name.style.maxWidth = '{tail + 20}px')")
    assert cut.evaluate(ends) == [pytest.approx(20, abs=1), tail] and head > 20
    assert cut.inner_text() == (cut.get_attribute("data-head") or "") + (cut.get_attribute("data-tail") or "")


def test_each_of_the_four_words_is_explained_where_it_stands_by_keys_alone(show: Show, trace: kvviz.Trace) -> None:
    page = show(trace, width=1500, height=950)
    page.root.locator('[role="tab"][data-id="caches"]').click()
    for word, said in (
        ("frontier", "could run next"),
        ("owner", "may overwrite"),
        ("in place", "reads again"),
        ("rows", "each token"),
    ):
        term = page.root.locator(f'[data-kv="term"][data-id="{word}"]').first
        step = page.root.get_attribute("data-step")
        term.focus()
        term.press("Enter")
        expect(page.kv("meaning")).to_contain_text(said)
        assert page.root.get_attribute("data-step") == step
        page.page.keyboard.press("Escape")
        expect(page.kv("meaning")).to_have_count(0)
        assert page.focused() == "term"
