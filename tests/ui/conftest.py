"""Fixtures of the browser tests: one server and one browser for all of them, a page and a kernel for each."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from playwright.sync_api import Browser

from tests.ui.browser import ADVICE, chromium, find_browser
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter, jupyterlab

ROOT = Path(__file__).resolve().parents[2]
FAILED = pytest.StashKey[bool]()

OpenNotebook = Callable[..., NotebookPage]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """A server over a copy of notebooks/, with the models that they load beside it."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    (root / "assets").symlink_to(ROOT / "assets")
    with jupyterlab(root, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.fail(ADVICE, pytrace=False)
    with chromium(path) as running:
        yield running


@pytest.fixture
def open_notebook(request: pytest.FixtureRequest, browser: Browser, jupyter: Jupyter) -> Iterator[OpenNotebook]:
    """Open a notebook: the name of one in notebooks/, or a list of cell sources. Keywords go to `NotebookPage`.

    When the test ends, each page must have stayed on loopback and complained of nothing; after a failure it leaves
    a picture in test-results.
    """
    pages: list[NotebookPage] = []
    name = re.sub(r"\W+", "-", request.node.name).strip("-")

    def open_one(notebook: str | list[str], **size: int) -> NotebookPage:
        page = NotebookPage(browser, jupyter, **size)
        pages.append(page)
        if isinstance(notebook, str):
            page.open(f"notebooks/{notebook}")
        else:
            file = f"{name}-{len(pages)}.ipynb"
            nbformat.write(from_cells(notebook), jupyter.root / file)
            page.open(file)
        return page

    yield open_one
    for number, page in enumerate(pages):
        if request.node.stash.get(FAILED, False):
            page.screenshot(f"failed-{name}-{number}")
        page.close()
    assert [page.outside for page in pages] == [[] for _ in pages], "the page asked for something outside"
    assert [page.complaints for page in pages] == [[] for _ in pages], "the console shows errors"


def from_cells(sources: list[str]) -> NotebookNode:
    """A notebook of code cells for this environment's kernel."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources], metadata=kernel)
