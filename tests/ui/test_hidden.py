"""Hidden dependencies in an exported file: the list, the card, the red lines, the inspector and the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.ggml.graph.context import Context
from kvviz.view.drawing.hazard_picture import hidden_pair_svg
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

EVIL = "k</text><script>alert(1)</script>|\"'`é"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    form = LayerForm()
    layer = AttentionLayer(Context(), form)
    graphs = [layer.graph(np.ones((1, form.width)), [i]) for i in range(3)]
    made: kvviz.Trace = kvviz.ggml.run(graphs)
    return made


@pytest.fixture(scope="module")
def file(trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hidden") / "layer.html"
    trace.to_html(path)
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[FilePage]:
    shown = FilePage(browser, file, permissions=["clipboard-read", "clipboard-write"])
    _open(shown)
    yield shown
    shown.close()


def _open(page: FilePage) -> None:
    page.root.locator('[role="tab"][data-id="hazards"]').click()
    expect(page.kv("pair-group").first).to_be_visible()


def parts(svg: str) -> list[tuple[str, str, str]]:
    """What is drawn, in order: tag, text and path."""
    nodes = ElementTree.fromstring(svg).iter()
    return [
        (node.tag, (node.text or "").strip(), node.get("d", "")) for node in nodes if not node.tag.endswith("style")
    ]


def test_a_pair_is_found_folded_in_the_list_and_told_beside_it(page: FilePage, trace: kvviz.Trace) -> None:
    found = kvviz.hazards(trace)
    expect(page.root.locator('[role="tab"][data-id="hazards"]')).to_have_text(f"Hazards {len(found)}")
    expect(page.kv("pair-group")).to_have_text(
        [f"RAW × 3 runs: SET_ROWS → MUL_MAT cache_{side}_l0: 32 B each" for side in "kv"]
    )
    # when: the second run's pair of V
    page.kv("pair-group").nth(1).click()
    page.kv("pair").nth(1).click()
    hazard = [h for h in found if h.root == "cache_v_l0"][1]
    page.expect_step(hazard.second)
    expect(page.kv("pair-sentence")).to_have_text(hazard.sentence)
    expect(page.kv("pair-card").locator("h4")).to_have_text(
        "Nothing but the order of the list keeps this read behind that write"
    )
    page.kv("pair-card").locator('[data-kv="step-link"]').first.click()
    page.expect_step(hazard.first)


def test_the_picture_that_is_copied_is_the_one_that_python_draws(page: FilePage, trace: kvviz.Trace) -> None:
    page.kv("pair-group").nth(1).click()
    page.kv("pair-svg").click()
    expect(page.kv("status")).to_have_text("Picture copied")
    hazard = next(h for h in kvviz.hazards(trace) if h.root == "cache_v_l0")
    mine, theirs = page.copied(), hidden_pair_svg(trace, hazard)
    assert parts(mine) == parts(theirs)
    style = re.compile(r"<style>(.*)</style>")
    assert style.findall(mine) == style.findall(theirs)


def test_the_picture_is_copied_as_png(page: FilePage) -> None:
    page.kv("pair-group").first.click()
    page.kv("pair-png").click()
    expect(page.kv("status")).to_have_text("Picture copied")
    size: Any = page.page.evaluate(
        """async () => {
          const [item] = await navigator.clipboard.read();
          const image = await createImageBitmap(await item.getType("image/png"));
          return [image.width, image.height];
        }"""
    )
    assert size == [1600, 904]


def test_the_inspector_leads_to_the_other_step(page: FilePage, trace: kvviz.Trace) -> None:
    hazard = kvviz.hazards(trace)[0]
    page.goto(hazard.second)
    told = page.kv("hidden")
    expect(told).to_contain_text("keeps this read behind that write: after")
    told.locator('[data-kv="step-link"]').click()
    page.expect_step(hazard.first)
    expect(page.kv("hidden")).to_contain_text(f"before step {hazard.second}")
    page.goto(0)
    expect(page.kv("hidden")).to_have_count(0)


def test_names_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    ctx = Context()
    k, row = ctx.new_tensor("f32", 4, 8, name=EVIL), ctx.new_tensor("f32", 4, 2, name="row")
    graph = (
        ctx.new_graph().expand(ctx.cpy(row, ctx.view_2d(k, 4, 2, 16, 0))).expand(ctx.cont(ctx.view_2d(k, 4, 8, 16, 0)))
    )
    kvviz.ggml.run(graph).to_html(tmp_path / "evil.html")
    page = FilePage(browser, tmp_path / "evil.html", permissions=["clipboard-read", "clipboard-write"])
    _open(page)
    expect(page.kv("pair-group")).to_contain_text(EVIL)
    page.kv("pair-group").click()
    expect(page.kv("pair-card")).to_contain_text(EVIL)
    page.kv("pair-svg").click()
    expect(page.kv("status")).to_have_text("Picture copied")
    assert EVIL in "".join(ElementTree.fromstring(page.copied()).itertext())
    page.close()
