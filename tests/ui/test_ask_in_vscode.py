"""Questions by keyboard where VS Code shows outputs: in a page of their own, whose keys go on to the notebook.

The page imitates the webview: its marks, the boxes around an ipywidget, and the listener on the window that passes keys
on to the editor, where an arrow goes to another cell, unless a field for text has the focus. The widget is the module
that is shipped; its answers are graded by the widget's own Python.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from kvviz.lessons import Question, ask, begin
from kvviz.view.page_modules import bundled
from tests.ui.hosts import DARK

pytestmark = pytest.mark.ui

PAGE = """<!doctype html><html {html}><head><style>{sheet}</style></head><body {body}>
<div id="cell" tabindex="0">the next cell</div>
<div class="output_container"><div class="output"><div class="cell-output-ipywidget-background"><div id="place"></div>
</div></div></div><script type="module">
const state = {state}, heard = {{}};
window.keys = [];
window.addEventListener("keydown", (event) => {{
  const text = event.target.matches?.('input[type="text"], textarea');
  window.keys.push(event.key);
  if (!text && /^(Arrow|[0-9]$)/.test(event.key)) document.getElementById("cell").focus();
}});
window.model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  on: (name, call) => (heard[name] ??= []).push(call),
  off: () => {{}},
  save_changes: () => {{}},
  send: (message) => window.toKernel(message),
}};
window.fromKernel = (changed) => {{
  Object.assign(state, changed);
  for (const name of Object.keys(changed)) for (const call of heard["change:" + name] ?? []) call();
}};
const {{ default: widget }} = await import("data:text/javascript;base64,{module}");
widget.render({{ model: window.model, el: document.getElementById("place") }});
</script></body></html>"""


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Callable[[Question], Page]]:
    page = browser.new_page()

    def show(question: Question) -> Page:
        traits = ("kind", "question", "unit", "choices", "curve", "solution", "verdict", "score", "still", "theme")

        def state() -> dict[str, Any]:
            return json.loads(
                json.dumps({name: getattr(question, name) for name in traits if question.has_trait(name)})
            )

        def grade(message: dict[str, Any]) -> None:
            question._receive(question, message, [])
            page.evaluate("(changed) => setTimeout(() => fromKernel(changed))", state())

        question.task  # noqa: B018 - what is shown is made when it is first looked at
        host = DARK["vscode"]
        page.expose_function("toKernel", grade)
        module = base64.b64encode(bundled("ask.js")).decode()
        sheet = host.sheet + bundled("ask.css").decode()
        text = PAGE.format(html=host.html, body=host.body, sheet=sheet, module=module, state=json.dumps(state()))
        (tmp_path / "output.html").write_text(text, "utf-8")
        page.goto((tmp_path / "output.html").as_uri())
        expect(page.get_by_role("group", name="Question")).to_be_visible()
        return page

    begin("test")
    yield show
    page.close()


def grades(page: Page, text: str) -> None:
    """Enter has the answer graded, with this verdict."""
    page.keyboard.press("Enter")
    expect(page.locator('[data-kv="ask-said"]')).to_contain_text(text)


def stayed(page: Page) -> bool:
    """Whether the focus is in the question, and the notebook got none of its keys, but the Enter of a button."""
    return page.evaluate("!!document.activeElement.closest('.kv-ask')") and set(page.evaluate("keys")) <= {"Enter"}


def test_digits_arrows_and_enter_answer_a_choice(shown: Callable[[Question], Page]) -> None:
    page = shown(ask("Which?", "two", choices=["one", "two", "three"], hint={"one": "That is too few."}))
    page.locator('[data-kv="ask-choice"]').first.focus()
    page.keyboard.press("1")
    grades(page, "Not yet: That is too few.")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    grades(page, "Right")
    assert stayed(page)


def test_a_number_is_typed_and_graded(shown: Callable[[Question], Page]) -> None:
    page = shown(ask("How much?", 128_000, unit="B"))
    page.locator('[data-kv="ask-field"]').focus()
    page.keyboard.type("64 kB")
    grades(page, "Not yet")
    page.keyboard.press("Control+a")
    page.keyboard.type("128 kB")
    grades(page, "Right")
    assert page.evaluate("!!document.activeElement.closest('.kv-ask')")


def test_a_curve_is_drawn_with_arrows(shown: Callable[[Question], Page]) -> None:
    page = shown(ask("How does it grow?", [0.0, 50.0, 100.0], curve=("a", "b", "c"), top=100.0))
    page.locator('[data-kv="ask-board"]').focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.locator('[data-kv="ask-check"]').focus()
    grades(page, "Not yet")
    page.locator('[data-kv="ask-board"]').focus()
    for key in ["PageUp"] * 10 + ["ArrowLeft"] + ["PageUp"] * 5 + ["ArrowLeft"]:
        page.keyboard.press(key)
    assert stayed(page)
    page.locator('[data-kv="ask-check"]').focus()
    grades(page, "Right")
