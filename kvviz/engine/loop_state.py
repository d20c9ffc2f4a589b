"""What a running Loop or Scan remembers between iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.plan import Plan
from kvviz.memory.storage import Storage


class LoopState:
    """What a running Loop or Scan remembers between iterations.

    Attributes
    ----------
    trips : int or None
        Iterations at most.
    head : int
        Body inputs before the carried values: 2 for Loop (iteration, condition), 0 for Scan.
    carried : int
        Number of carried values (Loop) or state variables (Scan).
    collected : list of list
        For each scan output the (value, storage) of every iteration.
    sliced : list of (slot of the parent, array, axis, backward)
        Scan inputs.
    restarts : dict of int to list of (slot of the parent, ndarray)
        Scan-8 only: iterations that begin a new batch item, with the state variables that they begin with.
    finals : list of list of (value, storage)
        Scan-8 only: the state variables that each batch item ended with.
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
        self.allocated = 0
