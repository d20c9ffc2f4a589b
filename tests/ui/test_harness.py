"""The harness itself, and what it must notice."""

import pytest

from tests.ui.conftest import OpenNotebook


def test_themes_change_and_a_failing_cell_requests_beyond_loopback_and_exceptions_are_noticed(
    open_notebook: OpenNotebook,
) -> None:
    notebook = open_notebook(["def fail(): 1 / 0"])
    style = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim()"
    light = notebook.page.evaluate(style)
    notebook.theme("dark")
    assert notebook.page.evaluate(style) != light
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        notebook.execute("fail()")
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
