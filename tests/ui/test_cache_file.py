"""The cache view in a file, and in a saved notebook: what is there without a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

import kvviz
from tests.ui.caches import CachePage
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx"), [5, 17, 33], 4, progress=False)


def caches(page: FilePage) -> CachePage:
    return CachePage(page.page)


def test_a_file_has_the_view_and_its_data_in_it(show: Show, trace: kvviz.Trace) -> None:
    view = caches(show(trace))
    view.open()
    expect(view.kv("heat")).to_be_visible()
    view.to_run(2)
    expect(view.kv("meter", id="valid").locator("td").first).to_have_text("5")
    # but nobody who could compute what attention weighed
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("needs a running kernel")


def test_a_softmax_leads_to_what_it_weighed_over_the_words(show: Show, story: kvviz.Trace) -> None:
    softmax = next(s for s in story.steps if s.run == 2 and s.op_type == "Softmax" and "layers.1" in s.node)
    view = caches(show(story))
    view.goto(softmax.index)
    view.kv("attention-link").filter(has_text="1.key").click()
    expect(view.kv("heat")).to_be_visible()
    expect(view.kv("attention")).to_have_attribute("aria-pressed", "true")
    expect(view.kv("cache-row", id="2")).to_have_attribute("aria-selected", "true")
    expect(view.root).to_have_attribute("data-step", str(softmax.index))


def test_without_the_rows_the_pane_says_how_to_have_them(
    show: Show, trace: kvviz.Trace, file_of: Callable[..., Path], tmp_path: Path
) -> None:
    # given a page that another lane's rows did not come with
    text = re.sub('<script [^>]*id="kvviz-cache_data">.*?</script>', "", file_of(trace).read_text("utf-8"))
    (tmp_path / "saved.html").write_text(text, "utf-8")
    view = caches(show(tmp_path / "saved.html"))
    # when the last step is shown
    view.goto(1599)
    view.kv("tab", id="caches").click()
    expect(view.kv("cache-note")).to_contain_text("needs a running kernel")
    expect(view.kv("cache-view")).to_have_count(0)


def test_a_decode_without_a_cache_says_what_is_computed_again(show: Show) -> None:
    graph = kvviz.load(MODELS / "o09_dynamo_qwen2_nocache" / "model.onnx")
    view = caches(show(kvviz.decode(graph, [5, 17, 33], 4, progress=False)))
    told = "no cache: every run computes all tokens again, 18 in 4 runs; a cache would leave 6"
    expect(view.kv("findings")).to_contain_text(told)
    expect(view.kv("tab", id="caches")).to_be_hidden()
