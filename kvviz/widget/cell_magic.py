"""``%load_ext kvviz`` and ``%%kvviz``: open the debugger on what a cell ran."""

from __future__ import annotations

import ast
from typing import Any

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.widget.open_widget import debug

_RESULT = "_kvviz_result"


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for ``%load_ext kvviz``."""

    def kvviz(line: str, cell: str) -> Any:
        """Run the cell and open the debugger on its trace: the value of its last line, or the last trace it named."""
        return debug(trace_made(shell, cell))

    shell.register_magic_function(kvviz, "cell", "kvviz")


def trace_made(shell: Any, cell: str) -> Trace:
    """The trace that a cell makes in a shell: the value of its last line, or the last trace that it assigned.

    Raises
    ------
    KvvizError
        If it makes none.
    """
    tree = ast.parse(shell.transform_cell(cell), "<%%kvviz>")
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        named = ast.Assign([ast.Name(_RESULT, ast.Store())], last.value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(named, last))
    names = shell.user_ns
    before = {name: id(value) for name, value in names.items() if isinstance(value, Trace)}
    names.pop(_RESULT, None)
    exec(compile(tree, "<%%kvviz>", "exec"), names)
    result = names.pop(_RESULT, None)
    if isinstance(result, Trace):
        return result
    made = [value for name, value in names.items() if isinstance(value, Trace) and before.get(name) != id(value)]
    if not made:
        raise KvvizError("the cell made no trace; call kvviz.run or kvviz.decode in it")
    return made[-1]
