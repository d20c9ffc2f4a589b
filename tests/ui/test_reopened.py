"""A notebook that was run and saved, opened again in a real JupyterLab after its kernel has gone."""

import gzip
import json
import re
import urllib.request
from functools import cache
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.view.export import base91, to_html
from tests.ui.conftest import from_cells, opened
from tests.ui.server import Jupyter
from tests.view.test_export import unpacked

CELLS = [
    """
import numpy as np, kvviz
graph = kvviz.load("small.onnx")
debugger = kvviz.debug(kvviz.decode(graph, [5, 7, 3], 3, progress=False))
debugger.goto(40)
debugger
""",
    "from kvviz.widget import Pair\nPair(debugger.trace, kvviz.decode(graph, [5, 7], 2, progress=False))",
    "from kvviz.widget import plan\nplan(graph)",
]
PICTURES = ['img[alt^="Step 40 of 96: "]', "table", "table"]


@cache
def executed(root: Path) -> str:
    """A notebook after its run, with the state of its widgets, as JSON."""
    notebook = from_cells(CELLS)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(root)}}).execute()
    assert "widgets" in notebook.metadata
    return nbformat.writes(notebook)


def saved(jupyter: Jupyter, name: str, trusted: bool, state: bool = False) -> str:
    """A notebook that was executed, and saved without the state of its widgets, as JupyterLab does by default."""
    notebook = nbformat.reads(executed(jupyter.root), 4)
    if not state:
        del notebook.metadata["widgets"]
    nbformat.write(notebook, jupyter.root / name)
    if trusted:
        trust = f"{jupyter.url}/api/contents/{name}/trust?token={jupyter.token}"
        urllib.request.urlopen(urllib.request.Request(trust, method="POST"), timeout=30).close()
    return name


def test_the_saved_picture_stands_where_the_page_cannot_be(browser: Browser, jupyter: Jupyter) -> None:
    path = saved(jupyter, "reopened.ipynb", True)
    with opened(browser, jupyter, path, width=1400) as notebook:
        for cell, picture in zip(notebook.page.locator(".jp-CodeCell").all(), PICTURES, strict=True):
            cell.scroll_into_view_if_needed()
            expect(cell.locator(picture).first).to_be_visible()
            expect(cell.get_by_text("A saved picture.")).to_be_visible()
            for error in cell.get_by_text("Error displaying widget").all():
                expect(error).to_be_hidden()
        # and when it is run again, the page is back and the picture has gone
        notebook.run_all()
        for cell, picture in zip(notebook.page.locator(".jp-CodeCell").all(), PICTURES, strict=True):
            cell.scroll_into_view_if_needed()
            expect(cell.locator(".kvviz").first).to_be_visible()
            expect(cell.locator(f"[data-kv-still] {picture}").first).to_be_hidden()
            expect(cell.get_by_text("A saved picture.")).to_be_hidden()
        # JupyterLab tells the console, too, that it has no model
        assert [said for said in notebook.complaints if "widget model not found" not in said] == []
        notebook.complaints.clear()


def test_with_the_state_of_its_widgets_it_opens_as_the_page_that_scrubs(browser: Browser, jupyter: Jupyter) -> None:
    path = saved(jupyter, "stateful.ipynb", True, state=True)
    with opened(browser, jupyter, path, width=1400) as notebook:
        page = notebook.page
        first = page.locator(".kvviz").first
        # JupyterLab asks the kernel first, which may be starting yet
        expect(first).to_have_attribute("data-step", "40", timeout=60_000)
        first.focus()
        page.keyboard.press("n")
        expect(first).to_have_attribute("data-step", "41")
        for cell, picture in zip(page.locator(".jp-CodeCell").all(), PICTURES, strict=True):
            cell.scroll_into_view_if_needed()
            expect(cell.locator(".kvviz .kv-app").first).to_be_visible()
            expect(cell.locator(f"[data-kv-still] {picture}").first).to_be_hidden()
        lane = page.locator(".jp-CodeCell").nth(1).locator('[data-kv="lane"]').last
        lane.locator('[data-kv="lane-name"]').click()
        expect(lane).to_have_attribute("data-shown", "1")
        first.scroll_into_view_if_needed()
        first.locator('[data-kv="share"]').first.click()
        expect(first.locator('[data-kv="share-menu"]')).to_be_visible()


def test_untrusted_it_opens_as_the_picture_and_keeps_its_look_when_another_version_saved_it(
    browser: Browser, jupyter: Jupyter
) -> None:
    # given the state of an older page, whose rules are not ours
    path = jupyter.root / saved(jupyter, "older.ipynb", False, state=True)
    notebook = nbformat.read(path, as_version=4)
    (state,) = notebook.metadata.widgets.values()
    pages = [model["state"] for model in state["state"].values() if "_css" in model["state"]]
    assert len(pages) == len(CELLS)
    for model in pages:
        model["_css"] = ".kvviz { color: red }"
    nbformat.write(notebook, path)
    with opened(browser, jupyter, path.name, width=1400) as shown:
        # JupyterLab restores no widget of a notebook that nobody trusts: the picture is there
        cell = shown.page.locator(".jp-CodeCell").first
        expect(cell.locator(PICTURES[0]).first).to_be_visible()
        for error in cell.get_by_text("Error displaying widget").all():
            expect(error).to_be_hidden()
        shown.run_all()
        sheets = shown.page.locator('style[id^="kvviz."]')
        expect(shown.page.locator(".kvviz .kv-app").first).to_be_visible()
        shown.page.wait_for_timeout(8000)  # JupyterLab restores what was saved seconds after the cells have run
        texts = sheets.evaluate_all("(all) => all.map((sheet) => sheet.textContent)")
        assert texts and [text for text in texts if "color: red" in text] == []
        shown.complaints[:] = [said for said in shown.complaints if "widget model not found" not in said]


def test_a_static_view_of_a_notebook_has_a_picture_and_tables(browser: Browser, jupyter: Jupyter) -> None:
    from nbconvert import HTMLExporter

    # given nbconvert's HTML without its scripts from elsewhere
    notebook = nbformat.read(jupyter.root / saved(jupyter, "static.ipynb", True), 4)
    text, _ = HTMLExporter().from_notebook_node(notebook)
    (jupyter.root / "static.html").write_text(text, "utf-8")
    page = browser.new_page()
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto((jupyter.root / "static.html").as_uri(), wait_until="domcontentloaded")
    expect(page.locator('img[alt^="Step 40 of 96: "], img[src^="data:image"]').first).to_be_visible()
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    page.close()


def renumbered(payload: bytes, number: int) -> bytes:
    """A payload that says it is of another format."""
    raw = gzip.decompress(payload)
    size = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + size])
    header["format"] = number
    told = json.dumps(header).encode()
    told += b" " * (-(4 + len(told)) % 8)
    return gzip.compress(len(told).to_bytes(4, "little") + told + raw[4 + size :])


def test_a_page_that_cannot_read_a_recording_says_why_and_leaves_the_picture(
    browser: Browser, tmp_path: Path, llama: kvviz.Trace
) -> None:
    # given the page beside a saved picture, with a recording of another format
    text = to_html(llama)
    block = re.search(r'id="kvviz-payload">([^<]+)<', text)
    assert block is not None
    text = text.replace(block[1], base91(renumbered(unpacked(block[1]), 99)))
    text = text.replace('id="kvviz-state">{', 'id="kvviz-state">{"still": "abc", ')
    text = text.replace('<div id="kvviz"></div>', '<div id="kvviz"></div><p data-kv-still="abc">the picture</p>')
    (tmp_path / "other.html").write_text(text, "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "other.html").as_uri())
    # one sentence, and nothing that hides the picture: neither the rule of now nor one that asks for `.kvviz`
    expect(page.get_by_role("alert")).to_contain_text("made by a newer kvviz")
    assert page.get_by_role("alert").inner_text().count(".") == 1
    expect(page.get_by_text("the picture")).to_be_visible()
    expect(page.locator(".kvviz")).to_have_count(0)
    page.close()
