"""The page at every width and in both themes: columns, the drawer of tables, what must be in sight, explained words."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

import kvviz
from tests.ui.conftest import Show, in_words
from tests.ui.filepage import FilePage, box

COLUMNS = (".kv-findings", ".kv-evidence", ".kv-side")
SAMPLE = 28  # missed steps that are looked at
# Whether the decision, its reasons and the change are in sight as they are, without scrolling.
SEEN = """(why) => {
  const pane = why.closest(".kv-inspect").getBoundingClientRect();
  const parts = [why, ...why.querySelectorAll('[data-kv="blocker"], [data-kv="fix"]')];
  return parts.map((part) => part.getBoundingClientRect()).every((box) => box.height > 0
    && box.top >= pane.top - 1 && box.bottom <= pane.bottom + 1 && box.right <= pane.right + 1);
}"""
# What lies outside of its box sideways.
CUT = """(root) => [root, ...root.querySelectorAll(".kv-cache-main, .kv-panel, .kv-peek, .kv-finding b, .kv-main")]
  .filter((node) => node.clientWidth && node.scrollWidth > node.clientWidth + 1).map((node) => node.className)"""


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    made = in_words("once upon a time there was a brave owl named rosa .", 8)
    made.summarise()
    return made


@pytest.fixture
def page(show: Show, trace: kvviz.Trace) -> Any:
    return show(trace, width=1500, height=950)


def test_columns_fill_a_wide_page_stand_under_one_another_on_a_narrow_one_and_nothing_is_cut(
    page: FilePage, trace: kvviz.Trace
) -> None:
    looks: list[tuple[int, Any]] = [(1200, "light"), (1500, "dark"), (2300, "light"), (600, "dark"), (1100, "light")]
    for width, theme in looks:
        page.page.set_viewport_size({"width": width, "height": 950})
        page.page.emulate_media(color_scheme=theme, forced_colors="active" if width > 2000 else "none")
        expect(page.root).to_have_attribute("data-theme", theme)
        page.page.wait_for_timeout(200)
        left, middle, right = (box(page.root.locator(name)) for name in COLUMNS)
        if width >= 1200:
            assert left["x"] + left["width"] <= middle["x"] and middle["x"] + middle["width"] <= right["x"]
            assert left["width"] + middle["width"] + right["width"] >= box(page.root)["width"] - 6
            assert middle["width"] >= 0.55 * width
            assert 0.55 <= box(page.root.locator(".kv-graph"))["height"] / middle["height"] <= 0.62
        else:
            assert left["y"] <= middle["y"] <= right["y"]
            assert all(abs(one["width"] - box(page.root)["width"]) < 6 for one in (left, middle, right))
            row = page.kv("frontier-row").last
            row.scroll_into_view_if_needed()
            expect(row).to_be_in_viewport()
        for tab in page.kv("tab").filter(visible=True).all():
            tab.click()
            expect(tab).to_have_attribute("aria-selected", "true")
            page.page.wait_for_timeout(100)
            assert page.root.evaluate(CUT) == [], (width, tab.inner_text())
        tab.click()


def test_reasons_and_the_change_are_in_sight_at_every_missed_step(page: FilePage, trace: kvviz.Trace) -> None:
    steps = [int(n) for n in trace.find("is:missed").numbers]
    hidden = []
    for width in (1500, 1100, 800):
        # the height that a notebook gives it
        page.page.set_viewport_size({"width": width, "height": 840})
        for step in (steps[i * len(steps) // SAMPLE] for i in range(SAMPLE)):
            page.goto(step)
            page.page.wait_for_function(
                "(name) => document.querySelector('.kv-this .kv-big').title === name", arg=trace.steps[step].node
            )
            if not page.kv("why").first.evaluate(SEEN):
                hidden.append((width, step))
    assert hidden == []


def test_the_drawer_is_closed_at_first_and_remembers_its_height(page: FilePage) -> None:
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
    # a name that is too long loses its middle and keeps all of its text
    cut = page.root.locator(".kv-steps .kv-cut", has_text="self_attn").first
    ends = "(name) => ['::before', '::after'].map((end) => parseFloat(getComputedStyle(name, end).width))"
    head, tail = cut.evaluate(ends)
    cut.evaluate(f"(name) => (name.style.maxWidth = '{tail + 20}px')")
    assert cut.evaluate(ends) == [pytest.approx(20, abs=1), tail] and head > 20
    assert cut.inner_text() == (cut.get_attribute("data-head") or "") + (cut.get_attribute("data-tail") or "")


def test_memory_stands_above_the_weights_moved_rows_are_marked_and_words_are_explained(
    page: FilePage, trace: kvviz.Trace
) -> None:
    weights = sum(one.capacity for one in trace.storages if one.origin == "weights")
    assert 2 * weights > trace.peak_bytes
    said = page.root.locator('.kv-timeline [data-part="above"]')
    expect(said).to_have_text(f"{(trace.peak_bytes - weights) / 1e3:.3g} kB above {weights / 1e3:.3g} kB of weights")
    expect(said).to_have_attribute("title", re.compile("axis is broken"))
    expect(page.root.locator(".kv-yaxis")).to_have_text(re.compile(r"^\d+ kB\d+ kB0$"))
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
    # each of the four words is explained where it stands, by keys alone
    step = page.step
    for word, meaning in (
        ("frontier", "could run next"),
        ("owner", "may overwrite"),
        ("in place", "reads again"),
        ("rows", "each token"),
    ):
        term = page.root.locator(f'[data-kv="term"][data-id="{word}"]').first
        term.focus()
        term.press("Enter")
        expect(page.kv("meaning")).to_contain_text(meaning)
        page.expect_step(step)
        page.page.keyboard.press("Escape")
        expect(page.kv("meaning")).to_have_count(0)
        assert page.focused() == "term"
