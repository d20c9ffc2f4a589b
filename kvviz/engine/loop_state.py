"""What a running Loop or Scan remembers between iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import Plan
from kvviz.memory.ghosts import ghost, is_ghost, packed_copy
from kvviz.memory.storage import Storage, root_of


class LoopState:
    """What a running Loop or Scan remembers between iterations.

    ``trips``: iterations at most.
    ``head``: body inputs before the carried values: 2 for Loop (iteration, condition), 0 for Scan.
    ``carried``: number of carried values (Loop) or state variables (Scan).
    ``collected``: for each scan output the (value, storage) of every iteration.
    ``sliced``: scan inputs.
    ``restarts``: scan-8 only: iterations that begin a new batch item, with the state variables that they begin with.
    ``finals``: scan-8 only: the state variables that each batch item ended with.
    ``taken``: slots of the parent that the policy lets the body take over.
    ``allocated, cloned``: bytes of new capacity for the loop's own values, and of copies of captured values.
    """

    def __init__(self, plan: Plan, trips: int | None, head: int, carried: int, outputs: int) -> None:
        self.plan = plan
        self.trips = trips
        self.head = head
        self.carried = carried
        self.iteration = 0
        self.collected: list[list[tuple[Any, Storage]]] = [[] for _ in range(outputs)]
        self.sliced: list[tuple[int, np.ndarray, int, bool]] = []
        self.out_axes: list[int] = [0] * outputs
        self.out_backward: list[bool] = [False] * outputs
        self.restarts: dict[int, list[tuple[int, np.ndarray]]] = {}
        self.finals: list[list[tuple[Any, Storage]]] = []
        self.batches: list[int] = []
        self.taken: frozenset[int] = frozenset()
        self.allocated = 0
        self.cloned = 0

    def clone(self, ledger: Ledger, value: Any, frame: Frame, slot: int) -> None:
        """Give an iteration its own copy of a captured value."""
        if not isinstance(value, np.ndarray):
            # A sequence, each of its elements for itself.
            parts = [packed_copy(part) for part in value] if isinstance(value, (list, tuple)) else value
            storage = ledger.new(0, None)
            if isinstance(parts, list):
                storage.parts = tuple(self._block(ledger, part) for part in parts)
            for part in storage.parts:
                part.holders += 1
            frame.bind(slot, parts, storage)
            return
        copy, block = _cloned(value)
        frame.bind(slot, copy, self._block(ledger, block))

    def _block(self, ledger: Ledger, block: np.ndarray) -> Storage:
        storage = ledger.new(block.nbytes, root_of(block))
        if ledger.pool is not None:
            ledger.pool.made(storage, block)
        self.allocated += block.nbytes
        self.cloned += block.nbytes
        return storage


def _cloned(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy that keeps the strides, holes included, but no room behind the last element; and the block it is in."""
    if value.flags.c_contiguous or any(stride <= 0 or stride % value.itemsize for stride in value.strides):
        copy = packed_copy(value)
        return copy, copy
    size = 1 + sum((n - 1) * stride for n, stride in zip(value.shape, value.strides)) // value.itemsize
    block = ghost((size,), value.dtype) if is_ghost(value) else np.zeros(size, value.dtype)
    copy = np.ndarray(value.shape, value.dtype, block, 0, value.strides)
    if block.base is None:
        copy[...] = value
    return copy, block
