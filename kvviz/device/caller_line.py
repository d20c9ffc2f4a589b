"""The line of the caller's code that asked for something: the nearest one outside of kvviz."""

from __future__ import annotations

import dis
import linecache
import sys
from functools import lru_cache
from os.path import basename
from types import CodeType, FrameType


def caller_line() -> str:
    """``file:line code`` of the nearest frame outside of kvviz.

    Of a file only its base name is given: a recording may go to other people.
    """
    frame = _caller()
    path, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, number, frame.f_globals).strip()
    name = "notebook cell" if "ipykernel" in path else basename(path)
    return f"{name}:{number} {text}".rstrip()


def assigned_name() -> str:
    """The variable that takes what the caller's call returns; empty where nothing takes exactly that."""
    frame = _caller()
    return _stored(frame.f_code, frame.f_lasti)


def _caller() -> FrameType:
    frame = sys._getframe(2)
    while frame.f_back is not None and _inside(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return frame


def _inside(module: str) -> bool:
    return module in ("contextlib", "weakref") or module.split(".")[0] == "kvviz"


@lru_cache(1024)
def _stored(code: CodeType, place: int) -> str:
    """What the instructions behind a call store its result in: ``x``, the ``x`` of ``x[…]`` or of ``self.x``."""
    every = list(dis.get_instructions(code))
    # Since 3.11 the place may be within what a call caches, which is behind it.
    at = max((n for n, one in enumerate(every) if one.offset <= place), default=0)
    if not every[at].opname.startswith("CALL"):
        return ""
    loaded = ""
    for name, argument in ((one.opname, one.argval) for one in every[at + 1 :]):
        # Since 3.13 one instruction may store or load two variables.
        variable = str(argument[0] if isinstance(argument, tuple) else argument)
        if name == "STORE_SUBSCR":
            return loaded
        if name.startswith("STORE_"):
            return variable
        if name.startswith("LOAD_") and (loaded or name != "LOAD_ATTR"):
            loaded = variable if name == "LOAD_ATTR" else loaded or variable
        elif name not in ("COPY", "DUP_TOP"):
            return ""
    return ""
