"""The harness itself: a small widget in a real JupyterLab, and what the harness must notice."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import OpenNotebook

pytestmark = pytest.mark.ui

COUNTER = '''
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    export default { render({ model, el }) {
      const button = document.createElement("button"), echo = document.createElement("output");
      button.dataset.kv = "next"; echo.dataset.kv = "sentence"; button.textContent = "next";
      button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
      model.on("change:echo", () => { echo.textContent = model.get("echo"); });
      el.append(button, echo);
    } };
    """
    count = traitlets.Int(0).tag(sync=True)
    echo = traitlets.Unicode("").tag(sync=True)

counter = Counter()
counter.observe(lambda change: setattr(counter, "echo", f"Python counts {change.new}"), "count")
'''


def test_a_click_in_the_page_reaches_python_and_its_answer_comes_back(open_notebook: OpenNotebook) -> None:
    # given
    notebook = open_notebook([COUNTER, "counter"])
    notebook.run_all()
    # when
    for _ in range(3):
        notebook.kv("next").click()
    # then
    expect(notebook.kv("sentence")).to_have_text("Python counts 3")


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
    # given
    notebook = open_notebook(["1"])
    address = "http://example.invalid/script.js"
    # when
    answer = notebook.page.evaluate("(url) => fetch(url).then(() => 'came', () => 'refused')", address)
    # then
    assert answer == "refused"
    assert notebook.outside == [address]
    assert any("ERR_FAILED" in line for line in notebook.complaints)
    # when
    notebook.complaints.clear()
    notebook.page.evaluate("() => { setTimeout(() => { throw new Error('lost in the page'); }, 0); }")
    notebook.page.wait_for_timeout(200)
    # then
    assert any("lost in the page" in line for line in notebook.complaints)
    notebook.close()  # nothing more can come
    notebook.outside.clear()
    notebook.complaints.clear()
