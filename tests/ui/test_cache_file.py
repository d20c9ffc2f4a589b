"""The cache view in a file, and in a saved notebook: what is there without a kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.widget import Debugger
from tests.ui.caches import CachePage

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "trace.html"
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    Debugger(kvviz.decode(graph, [5, 17, 33], 4, progress=False)).to_html(path)
    return path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[kvviz.Trace, Path]:
    path = tmp_path_factory.mktemp("story") / "trace.html"
    trace = kvviz.decode(kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx"), [1, 77, 108], 4, progress=False)
    trace.to_html(path)
    return trace, path


def shown(browser: Browser, file: Path) -> Any:
    page = browser.new_page()
    page.goto(file.as_uri())
    return page, CachePage(page)


def test_a_file_has_the_view_and_its_data_in_it(browser: Browser, file: Path) -> None:
    page, view = shown(browser, file)
    view.open()
    expect(view.kv("heat")).to_be_visible()
    view.to_run(2)
    expect(view.kv("meter", id="valid").locator("td").first).to_have_text("5")
    # but nobody who could compute what attention weighed
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("needs a running kernel")
    page.close()


def test_a_softmax_leads_to_what_it_weighed_over_the_words(browser: Browser, story: tuple[kvviz.Trace, Path]) -> None:
    trace, file = story
    softmax = next(s for s in trace.steps if s.run == 2 and s.op_type == "Softmax" and "layers.1" in s.node)
    page, view = shown(browser, file)
    view.kv("goto").fill(str(softmax.index))
    view.kv("goto").press("Enter")
    view.kv("attention-link").filter(has_text="1.key").click()
    expect(view.kv("heat")).to_be_visible()
    expect(view.kv("attention")).to_have_attribute("aria-pressed", "true")
    expect(view.kv("cache-row", id="2")).to_have_attribute("aria-selected", "true")
    expect(view.root).to_have_attribute("data-step", str(softmax.index))
    page.close()


def test_without_the_rows_the_pane_says_how_to_have_them(browser: Browser, file: Path, tmp_path: Path) -> None:
    # given a page that another lane's rows did not come with
    text = re.sub('<script [^>]*id="kvviz-cache_data">.*?</script>', "", file.read_text("utf-8"))
    (tmp_path / "saved.html").write_text(text, "utf-8")
    page, view = shown(browser, tmp_path / "saved.html")
    # when the last step is shown
    view.kv("goto").fill("1599")
    view.kv("goto").press("Enter")
    view.kv("tab", id="caches").click()
    expect(view.kv("cache-note")).to_contain_text("needs a running kernel")
    expect(view.kv("cache-view")).to_have_count(0)
    page.close()


def test_a_decode_without_a_cache_says_what_is_computed_again(browser: Browser, tmp_path: Path) -> None:
    graph = kvviz.load(MODELS / "o09_dynamo_qwen2_nocache" / "model.onnx")
    kvviz.decode(graph, [5, 17, 33], 4, progress=False).to_html(tmp_path / "trace.html")
    page, view = shown(browser, tmp_path / "trace.html")
    told = "no cache: every run computes all tokens again, 18 in 4 runs; a cache would leave 6"
    expect(view.kv("findings")).to_contain_text(told)
    expect(view.kv("tab", id="caches")).to_be_hidden()
    page.close()
