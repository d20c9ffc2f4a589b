"""Ctrl-C waits until an op is done and written down, so that a step is done whole or not at all.

Python runs the handler of a signal between any two bytecodes of the main thread. A `KeyboardInterrupt` between a kernel
that has overwritten its input and the accounts of it would let that op run again on the new bytes. Signals other than
SIGINT are the application's.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_handler: Callable[..., Any] | None = None  # the caller's, while it is held back
_callers: Callable[..., Any] = signal.default_int_handler  # the same, also until `_hold` is no handler any more
_at_once = False

WAITING: list[tuple[Callable[..., Any], int, Any]] = []
"""What came since `held_back` began: its handler, with the frame that it came in; empty as a rule."""


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back in here, but for calls of `deliver`; what is left is delivered at the end.

    Only a handler in Python is held back, and only in the main thread: no other can raise here.
    """
    global _handler, _callers
    handler = signal.getsignal(signal.SIGINT)
    if _handler is not None or not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        _handler = _callers = handler
        signal.signal(signal.SIGINT, _hold)
        yield
    finally:
        _handler = None
        if signal.getsignal(signal.SIGINT) is _hold:
            signal.signal(signal.SIGINT, handler)
        deliver()


def deliver() -> None:
    """Call the handler of what came meanwhile, which raises `KeyboardInterrupt` as a rule."""
    while WAITING:
        handler, number, frame = WAITING.pop(0)
        handler(number, frame)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be heard in here, although it is held back around: for long work that changes nothing.

    What is raised is marked, so that nobody repairs what is whole; see `changed_nothing`.
    """
    global _at_once
    try:
        _at_once = True
        if _handler is not None:
            deliver()
        yield
    except BaseException as error:
        error.changed_nothing = True  # type: ignore[attr-defined]
        raise
    finally:
        _at_once = False


def changed_nothing(error: BaseException) -> bool:
    """Whether it was raised where nothing was being changed."""
    return getattr(error, "changed_nothing", False)


def _hold(number: int, frame: Any) -> None:
    if _handler is not None and _at_once:
        _handler(number, frame)
    else:
        WAITING.append((_callers, number, frame))
