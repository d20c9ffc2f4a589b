"""Two orders of one ggml graph in a file: side by side with one cursor, and what the new order breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from kvviz.ggml.order.what_if import Reordered, reorder
from kvviz.widget import Pair
from tests.ggml.seed_graphs import SEEDS
from tests.ui.filepage import FilePage
from tests.ui.test_axe import AXE, faults

pytestmark = pytest.mark.ui

# The read comes before the write.
ORDER = [2, 3, 0, 1]


@pytest.fixture(scope="module")
def orders() -> Reordered:
    return reorder(SEEDS["seed_write_first"]().graph, ORDER)


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser, orders: Reordered, tmp_path: Path) -> Iterator[FilePage]:
    pair = Pair(orders.before, orders.trace)
    pair.cursor = 1
    pair.to_html(tmp_path / "orders.html")
    shown = FilePage(browser, tmp_path / "orders.html", color_scheme=request.param)
    shown.kv("lane-compare").click()
    expect(shown.kv("orders")).to_be_visible()
    yield shown
    shown.close()


def side(page: FilePage, number: int) -> Locator:
    return page.kv("orders").locator(f'[data-side="{number}"] [data-kv="order-op"]')


def test_what_breaks_is_said_where_it_does(page: FilePage) -> None:
    expect(page.kv("lane-broken")).to_have_text("✕ 1 broken")
    expect(page.kv("order-moved")).to_have_attribute("data-broken", "1")
    expect(page.kv("order-broken")).to_contain_text("RAW, 32 B of k_cache: MUL_MAT kq reads")
    expect(page.kv("order-value")).to_contain_text("MUL_MAT kq is the first that made other numbers: largest 8 → 0")
    # not by colour alone
    broken = page.kv("orders").locator('[data-kv="order-op"][data-broken]')
    assert [row.inner_text().split()[-2:] for row in broken.all()] == [["✕", "RAW"]] * 2
    page.kv("order-broken").click()
    # then the other order is shown at the second of the two
    page.expect_step(3)
    expect(page.kv("lane").nth(1)).to_have_attribute("data-shown", "1")
    # and nothing is unreadable
    page.page.add_script_tag(content=AXE.read_text("utf-8"))
    assert faults(page) == []
