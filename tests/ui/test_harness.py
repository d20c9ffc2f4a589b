"""The harness itself: a small widget in a real JupyterLab, and what the harness must notice."""

from __future__ import annotations

import pytest

from tests.ui.conftest import OpenNotebook

pytestmark = pytest.mark.ui


def test_the_theme_changes_and_a_cell_that_raises_fails_the_run_with_its_traceback(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(["1 / 0", "'never run'"])
    backgrounds = []
    for name in ("light", "dark"):
        notebook.theme(name)
        style = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim()"
        backgrounds.append(notebook.page.evaluate(style))
        assert notebook.screenshot(f"harness-{name}").stat().st_size > 1000
    assert backgrounds[0] != backgrounds[1]
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        notebook.run_all()


def test_what_a_page_asks_for_beyond_loopback_and_exceptions_in_it_are_recorded(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(["1"])
    address = "http://example.invalid/script.js"
    answer = notebook.page.evaluate("(url) => fetch(url).then(() => 'came', () => 'refused')", address)
    assert answer == "refused"
    assert notebook.outside == [address]
    assert any("ERR_FAILED" in line for line in notebook.complaints)
    notebook.complaints.clear()
    notebook.page.evaluate("() => { setTimeout(() => { throw new Error('lost in the page'); }, 0); }")
    notebook.page.wait_for_timeout(200)
    assert any("lost in the page" in line for line in notebook.complaints)
    notebook.close()  # nothing more can come
    notebook.outside.clear()
    notebook.complaints.clear()
