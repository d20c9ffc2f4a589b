"""The debugger in a page and the same debugger in the kernel, so that one can be held against the other."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator, expect

from tests.ui.page import NotebookPage

# The first debugger that the notebook has shown, under a name that no notebook uses.
FIND = """
import kvviz
_kv = next(shown for shown in Out.values() if isinstance(shown, kvviz.Debugger))
"""


class DebuggerPage:
    """Drive the first debugger of a notebook that has been run."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.root = notebook.page.locator(".kvviz").first
        self.root.scroll_into_view_if_needed()
        notebook.execute(FIND)
        expect(self.kv("sentence")).to_be_visible()

    def kv(self, name: str) -> Locator:
        return self.root.locator(f'[data-kv="{name}"]')

    def python(self, expression: str) -> Any:
        """Value of an expression in which ``d`` is the debugger and ``t`` its trace."""
        return self.notebook.python(f"(lambda d, t: {expression})(_kv, _kv.trace)")

    @property
    def step(self) -> int:
        """Step that the page shows."""
        return int(self.root.get_attribute("data-step") or "-1")

    @property
    def steps(self) -> int:
        """How many steps are recorded, as the page says it."""
        shown = re.search(r"of ([\d,]+)", self.kv("step-number").inner_text())
        assert shown
        return int(shown.group(1).replace(",", ""))

    def expect_step(self, number: int) -> None:
        expect(self.root).to_have_attribute("data-step", str(number))

    def goto(self, number: int) -> None:
        """Type a step number into the toolbar."""
        self.kv("goto").fill(str(number))
        self.kv("goto").press("Enter")
        self.expect_step(number)

    def press(self, *keys: str) -> None:
        """Press keys with the focus on the debugger itself."""
        self.root.focus()
        for key in keys:
            self.notebook.page.keyboard.press(key)
