"""Handles that the caller drops: they wait in a queue until no call of the device is under way.

Python may run a finalizer between any two bytecodes, also in the middle of the device's own bookkeeping, and, for what
is part of a reference cycle, in any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any
from weakref import WeakMethod

from kvviz.device.handles import Wrapper
from kvviz.interrupts import held_back


class DroppedHandles:
    """Wrappers of dropped handles, in the order in which they were dropped.

    ``let_go``: a method of the device, called with a wrapper once for each of its dropped handles.
    """

    def __init__(self, let_go: Callable[[Wrapper], None]) -> None:
        # Finalizers are kept by the interpreter: a strong reference would keep a device whose handles it holds itself.
        self._let_go: Callable[[], Any] = WeakMethod(let_go)
        self._queue: deque[Wrapper] = deque()
        self._lock = RLock()
        self._calls = 0

    def __call__(self, wrapper: Wrapper) -> None:
        """Take a wrapper, from a finalizer: never waits for a lock."""
        self._queue.append(wrapper)
        if self._lock.acquire(blocking=False):
            try:
                if not self._calls:
                    with held_back():
                        self._drain()
            finally:
                self._lock.release()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """A call of the device: what was dropped before it is let go first, what is dropped meanwhile afterwards."""
        with self._lock:
            if not self._calls:
                self._drain()
            self._calls += 1
            try:
                yield
            finally:
                self._calls -= 1
                if not self._calls:
                    self._drain()

    def _drain(self) -> None:
        while self._queue:
            self._calls += 1
            try:
                let_go = self._let_go()
                wrapper = self._queue.popleft()
                if let_go is not None:
                    let_go(wrapper)
            finally:
                self._calls -= 1
