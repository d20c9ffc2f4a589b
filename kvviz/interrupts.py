"""Deferring Ctrl-C until an op is complete and logged, so that a step is done completely or not at all.

Python runs a signal handler between any two bytecodes of the main thread. After a `KeyboardInterrupt` between a kernel
that overwrote its input and the accounting for it, that op would run again on the new bytes. Other signals than SIGINT
are left to the application.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_handler: Callable[..., Any] | None = None  # the caller's handler, while it is held back
_callers: Callable[..., Any] = signal.default_int_handler  # the same, until `_hold` is no longer installed
_at_once = False
# Without turning handlers into enums, which takes half of what a short run may take.
_raw: Any = getattr(signal, "_signal", signal)

WAITING: list[tuple[Callable[..., Any], int, Any]] = []
"""Interrupts since `held_back` began: handler, signal number and the frame that was running; usually empty."""


@contextmanager
def held_back() -> Iterator[None]:
    """Defer Ctrl-C to calls of `deliver` and to the end of the context. Only Python handlers in the main thread are
    deferred: no others can raise here."""
    global _handler, _callers
    handler = None if _handler is not None else _raw.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        _handler = _callers = handler
        _raw.signal(signal.SIGINT, _hold)
        yield
    finally:
        _handler = None
        if _raw.getsignal(signal.SIGINT) is _hold:
            _raw.signal(signal.SIGINT, handler)
        deliver()


def deliver() -> None:
    """Call the handlers of deferred interrupts; they usually raise `KeyboardInterrupt`."""
    while WAITING:
        handler, number, frame = WAITING.pop(0)
        handler(number, frame)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt at once inside `held_back`: for long work that changes no state. Exceptions are marked, so
    that no repair is attempted; see `changed_nothing`."""
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
    """Whether an exception was raised while no state was being changed."""
    return getattr(error, "changed_nothing", False)


def _hold(number: int, frame: Any) -> None:
    if _handler is not None and _at_once:
        _handler(number, frame)
    else:
        WAITING.append((_callers, number, frame))
