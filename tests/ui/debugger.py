"""The debugger in a page and the same debugger in the kernel, so that one can be held against the other."""

import re
from typing import Any

from playwright.sync_api import expect

from tests.ui.filepage import Shown
from tests.ui.page import NotebookPage

# The first debugger that the notebook has shown, under a name that no notebook uses.
FIND = """
import kvviz
_kv = next(shown for shown in Out.values() if isinstance(shown, kvviz.Debugger))
"""


class DebuggerPage(Shown):
    """Drive the first debugger of a notebook that has been run."""

    def __init__(self, notebook: NotebookPage) -> None:
        super().__init__(notebook.page)
        self.notebook = notebook
        self.root.scroll_into_view_if_needed()
        notebook.execute(FIND)
        expect(self.kv("sentence")).to_be_visible()

    def python(self, expression: str) -> Any:
        """Value of an expression in which ``d`` is the debugger and ``t`` its trace."""
        return self.notebook.python(f"(lambda d, t: {expression})(_kv, _kv.trace)")

    @property
    def steps(self) -> int:
        shown = re.search(r"of ([\d,]+)", self.kv("step-number").inner_text())
        assert shown
        return int(shown.group(1).replace(",", ""))

    def press(self, *keys: str) -> None:
        self.root.focus()
        for key in keys:
            self.notebook.page.keyboard.press(key)
