"""Fixtures of the browser tests: one server and one browser for all of them, a page and a kernel for each."""

import json
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
import onnx
import pytest
from nbformat import NotebookNode
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.view.export import to_html
from tests.decode.small import small
from tests.test_models import graph_of, reference
from tests.ui.browser import ADVICE, chromium, find_browser
from tests.ui.filepage import FilePage
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter, jupyterlab

ROOT = Path(__file__).resolve().parents[2]

# A kernel that shares two cores with a second browser may answer late; what is asked for must come, not come soon.
expect.set_options(timeout=20_000)

OpenNotebook = Callable[..., NotebookPage]
Show = Callable[..., Any]

# Pages that are open now, for the picture that a failed test leaves.
OPEN: list[NotebookPage] = []
# Pages whose notebook was left, for the next one.
FREE: list[NotebookPage] = []
NUMBERS = count()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder drive a browser."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ui)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure, leave pictures of the open pages in test-results."""
    report = yield
    if report.failed and report.when != "teardown":
        for number, page in enumerate(OPEN):
            page.screenshot(f"failed-{file_name(item.name)}-{number}")
    return report


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """A server over a copy of notebooks/, with the models that they load beside it."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    (root / "assets").symlink_to(ROOT / "assets")
    onnx.save(small("concat").proto, root / "small.onnx")
    with jupyterlab(root, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.fail(ADVICE, pytrace=False)
    with chromium(path) as running:
        yield running
        FREE.clear()


@pytest.fixture(scope="session")
def story() -> kvviz.Trace:
    """Four tokens of the storyteller, whose caches have no room."""
    return kvviz.decode(graph_of("storyteller/concat"), [1, 77, 108], 4, progress=False)


def in_words(prompt: str, tokens: int, **options: Any) -> kvviz.Trace:
    """A story of the storyteller in its words."""
    words = json.loads((ROOT / "assets" / "models" / "storyteller" / "vocab.json").read_text("utf-8"))
    return kvviz.decode(graph_of("storyteller/concat"), prompt, tokens, tokenizer=words, progress=False, **options)


def decoded(name: str) -> kvviz.Trace:
    return kvviz.decode(graph_of(name), reference(name)["prompt"].tolist(), 5, progress=False)


@pytest.fixture(scope="session")
def llama() -> kvviz.Trace:
    """Five tokens of a model with two layers, whose caches have no room."""
    return decoded("o01_optimum_llama")


@pytest.fixture(scope="session")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The page of a trace or a comparison, written once."""
    known: dict[Any, tuple[Any, Path]] = {}

    def written(trace: Any, **options: Any) -> Path:
        key = id(trace), *options.items()
        if key not in known:
            known[key] = trace, tmp_path_factory.mktemp("page") / "trace.html"
            to_html(trace, known[key][1], **options)
        return known[key][1]

    return written


@pytest.fixture
def show(browser: Browser, file_of: Callable[..., Path]) -> Iterator[Show]:
    """Open the page of a trace, or a file; when the test ends, none of them must have complained."""
    with ExitStack() as pages:

        def one(what: Any, address: str = "", kind: type[FilePage] = FilePage, **options: Any) -> Any:
            page = kind(browser, what if isinstance(what, Path) else file_of(what), address, **options)
            pages.callback(page.close)
            return page

        yield one


@contextmanager
def opened(browser: Browser, jupyter: Jupyter, path: str, **size: int) -> Iterator[NotebookPage]:
    """A page with a notebook of the server's folder; at the end it must have been quiet, and its kernel is ended."""
    page = FREE.pop() if FREE else NotebookPage(browser, jupyter)
    OPEN.append(page)
    try:
        page.open(path, **size)
        yield page
        page.check()
        if not page.page.is_closed():
            page.leave()
            FREE.append(page)
    finally:
        OPEN.remove(page)
        if page not in FREE:
            page.close()


def cells(jupyter: Jupyter, sources: list[str]) -> str:
    """The path of a new notebook with these cells for this environment's kernel."""
    path = f"cells-{next(NUMBERS)}.ipynb"
    nbformat.write(from_cells(sources), jupyter.root / path)
    return path


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    """A notebook of the module's CELLS, run once for all of its tests."""
    with opened(browser, jupyter, cells(jupyter, request.module.CELLS), width=1700) as page:
        page.run_all()
        yield page


@pytest.fixture
def open_notebook(browser: Browser, jupyter: Jupyter) -> Iterator[OpenNotebook]:
    """Open one of notebooks/, or one of the cells that are given, which are run."""
    with ExitStack() as pages:

        def open_one(notebook: str | list[str], **size: int) -> NotebookPage:
            if isinstance(notebook, str):
                return pages.enter_context(opened(browser, jupyter, f"notebooks/{notebook}", **size))
            page = pages.enter_context(opened(browser, jupyter, cells(jupyter, notebook), **size))
            page.run_all()
            return page

        yield open_one


def file_name(test: str) -> str:
    return re.sub(r"\W+", "-", test).strip("-")


def from_cells(sources: list[str]) -> NotebookNode:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources], metadata=kernel)
