"""How much Python runs: counted in lines, which are the same on every machine, however busy it is.

What a C function does within one call is one line here; ``make bench`` measures time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Lines:
    """Lines that ran; more than ``limit`` of them end the call, which would otherwise take for ever."""

    def __init__(self, limit: float) -> None:
        self.limit, self.ran = limit, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Lines:
        if event == "line":
            self.ran += 1
            if self.ran > self.limit:
                raise AssertionError(f"more than {self.limit:,} lines of Python ran")
        return self


@contextmanager
def at_most(limit: float) -> Iterator[Lines]:
    """Fail when the block runs more lines of Python than this; gives what counts them."""
    lines, before = Lines(limit), sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)
    assert lines.ran <= limit


def lines_of(action: Callable[[], Any]) -> int:
    """How many lines of Python run in a call."""
    with at_most(float("inf")) as lines:
        action()
    return lines.ran
