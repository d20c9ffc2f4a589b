"""Signals wait until an op is done and written down, so that a step is done whole or not at all.

Python runs the handler of a signal between any two bytecodes of the main thread. A `KeyboardInterrupt` between a kernel
that has overwritten its input and the accounts of it would let that op run again on the new bytes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# SIGINT is the last, so that it is held back for as long as the others are not restored.
_NAMES = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", "SIGINT")
_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_handlers: dict[int, Callable[..., Any]] = {}
_holding = False

WAITING: list[tuple[int, Any]] = []
"""Signals that came since `held_back` began, with the frame that they came in; empty as a rule."""


@contextmanager
def held_back() -> Iterator[None]:
    """Hold signals back in here, but for calls of `deliver`; what is left is delivered at the end.

    Only signals with a handler in Python are held back, and only in the main thread: no others can raise here.
    """
    global _holding
    if _holding or threading.current_thread() is not threading.main_thread():
        yield
        return
    _holding = True
    try:
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler):
                _handlers[number] = handler
                signal.signal(number, _hold)
        yield
    finally:
        _holding = False
        _restore(list(_handlers.items()))
        deliver()


def deliver() -> None:
    """Call the handlers of the signals that came meanwhile; that of SIGINT raises `KeyboardInterrupt`."""
    while WAITING:
        number, frame = WAITING.pop(0)
        _handlers[number](number, frame)


def _restore(handlers: list[tuple[int, Callable[..., Any]]]) -> None:
    try:
        while handlers:
            if signal.getsignal(handlers[0][0]) is _hold:
                signal.signal(*handlers[0])
            del handlers[0]
    finally:
        # A handler that is back already may have raised.
        if handlers:
            _restore(handlers)


def _hold(number: int, frame: Any) -> None:
    WAITING.append((number, frame))
