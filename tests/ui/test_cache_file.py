"""The cache view in a file, and in a saved notebook: what is there without a kernel."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.widget import Debugger
from tests.ui.caches import CachePage
from tests.ui.conftest import from_cells, opened
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
STORY = """
import json, kvviz
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
words = json.load(open("assets/models/storyteller/vocab.json"))
trace = kvviz.decode(graph, "once upon a time there was", 9, tokenizer=words, kv_capacity=24)
debugger = kvviz.debug(trace)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "trace.html"
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    Debugger(kvviz.decode(graph, [5, 17, 33], 4, progress=False)).to_html(path)
    return path


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


def test_without_the_view_the_simple_meters_stay(browser: Browser, file: Path, tmp_path: Path) -> None:
    # given a notebook that was saved before anybody looked at the caches
    text = file.read_text("utf-8").replace(', "cache_data"', "")
    (tmp_path / "saved.html").write_text(text, "utf-8")
    page, view = shown(browser, tmp_path / "saved.html")
    # when
    view.kv("tab", id="caches").click()
    # then
    expect(view.kv("cache-row").first).to_contain_text("6 / 6")
    expect(view.kv("cache-note")).to_contain_text("needs a running kernel")
    expect(view.kv("cache-view")).to_have_count(0)
    page.close()


def test_a_saved_notebook_shows_the_rows_that_were_looked_at_before(browser: Browser, jupyter: Jupyter) -> None:
    # given a trusted notebook with two debuggers: of one somebody had opened the caches when it was saved
    looked = "debugger._handle_custom_msg({'do': 'cache_view'}, [])"
    notebook = from_cells([f"{STORY}{looked}\ndebugger", "closed = kvviz.debug(trace)\nclosed"])
    resources = {"metadata": {"path": str(jupyter.root)}}
    NotebookClient(notebook, timeout=300, store_widget_state=True, resources=resources).execute()
    nbformat.write(notebook, jupyter.root / "saved_caches.ipynb")
    trust = f"{jupyter.url}/api/contents/saved_caches.ipynb/trust?token={jupyter.token}"
    urllib.request.urlopen(urllib.request.Request(trust, method="POST"), timeout=30).close()
    with opened(browser, jupyter, "saved_caches.ipynb", width=1700) as page:
        # when
        view = CachePage(page.page)
        view.open()
        view.to_run(5)
        # then
        assert "written in decode 2" in view.point(8, 24)
        expect(view.kv("meter", id="valid").locator("td").first).to_have_text("12")
        # and the other one has its simple meters
        closed = CachePage(page.page, 1)
        closed.kv("tab", id="caches").click()
        expect(closed.kv("cache-row").first).to_contain_text("/ 24")
        expect(closed.kv("cache-note")).to_be_visible()
