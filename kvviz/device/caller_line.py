"""The line of the caller's code that asked for something: the nearest one outside of kvviz."""

from __future__ import annotations

import linecache
import re
import sys
from os.path import basename

_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*=[^=]")


def caller_line() -> tuple[str, str]:
    """``file:line code`` of the nearest frame outside of kvviz, and the name that the line assigns to, if it does.

    Of a file only its base name is told: a recording may go to other people.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _inside(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    path, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, number, frame.f_globals).strip()
    assigned = _ASSIGNED.match(text)
    name = "notebook cell" if "ipykernel" in path else basename(path)
    return f"{name}:{number} {text}".rstrip(), assigned[1] if assigned else ""


def _inside(module: str) -> bool:
    return module in ("contextlib", "weakref") or module.split(".")[0] == "kvviz"
