"""A notebook that was run and saved, opened again in a real JupyterLab after its kernel has gone."""

from __future__ import annotations

import urllib.request

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Browser, expect

from tests.ui.conftest import from_cells, opened
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

CELLS = [
    """
import numpy as np, kvviz
graph = kvviz.load("assets/models/o01_optimum_llama/model.onnx")
debugger = kvviz.debug(kvviz.decode(graph, [5, 17, 33], 3, progress=False))
debugger.goto(600)
debugger
""",
    "from kvviz.widget import Pair\nPair(debugger.trace, kvviz.decode(graph, [5, 17], 2, progress=False))",
    "from kvviz.widget import plan\nplan(graph)",
]
PICTURES = ['img[alt="kvviz: step 600 of 1200"]', "table", "table"]


def saved(jupyter: Jupyter, name: str, trusted: bool) -> str:
    """A notebook that was executed, and saved without the state of its widgets, as JupyterLab does unless told to."""
    notebook = from_cells(CELLS)
    NotebookClient(
        notebook, timeout=300, store_widget_state=False, resources={"metadata": {"path": str(jupyter.root)}}
    ).execute()
    assert "widgets" not in notebook.metadata
    nbformat.write(notebook, jupyter.root / name)
    if trusted:
        trust = f"{jupyter.url}/api/contents/{name}/trust?token={jupyter.token}"
        urllib.request.urlopen(urllib.request.Request(trust, method="POST"), timeout=30).close()
    return name


@pytest.mark.parametrize("trusted", [True, False])
def test_the_saved_picture_stands_where_the_page_cannot_be(browser: Browser, jupyter: Jupyter, trusted: bool) -> None:
    # given
    path = saved(jupyter, f"reopened-{trusted}.ipynb", trusted)
    with opened(browser, jupyter, path, width=1400) as notebook:
        for cell, picture in zip(notebook.page.locator(".jp-CodeCell").all(), PICTURES, strict=True):
            # then
            cell.scroll_into_view_if_needed()
            expect(cell.locator(picture).first).to_be_visible()
            expect(cell.get_by_text("Run this cell again")).to_be_visible()
            for error in cell.get_by_text("Error displaying widget").all():
                expect(error).to_be_hidden()
        notebook.page.locator(".jp-CodeCell").first.scroll_into_view_if_needed()
        notebook.screenshot(f"reopened-{trusted}")
        # and when it is run again, the page is back and the picture has gone
        notebook.run_all()
        for cell, picture in zip(notebook.page.locator(".jp-CodeCell").all(), PICTURES, strict=True):
            cell.scroll_into_view_if_needed()
            expect(cell.locator(".kvviz").first).to_be_visible()
            expect(cell.locator(f"[data-kv-still] {picture}").first).to_be_hidden()
            expect(cell.get_by_text("Run this cell again")).to_be_hidden()
        notebook.screenshot(f"reopened-{trusted}-run")
        # JupyterLab tells the console, too, that it has no model
        assert [said for said in notebook.complaints if "widget model not found" not in said] == []
        notebook.complaints.clear()
