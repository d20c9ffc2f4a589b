"""What a writer keeps of the arrays that it is shown: they are looked at, counted and let go."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.trace.value_numbers import axes_of, has_numbers
from kvviz.trace.value_plan import Seen, as_bytes, plan
from kvviz.trace.value_summaries import Collector, Counted, ValueSummaries


class SeenArrays:
    """Summaries of arrays, within a budget of bytes.

    ``budget``: as in `Trace.summarise`; at 0 nothing is looked at.
    """

    def __init__(self, budget: int | str) -> None:
        self.budget = as_bytes(budget)
        self._collector = Collector(None)
        self._seen: list[Seen] = []

    def look(self, at: int, slot: int, array: np.ndarray | None) -> None:
        """Look at an output of a step, or, where ``at`` is negative, at what a run begins with."""
        if self.budget and array is not None and has_numbers(array.shape, array.dtype):
            self._seen.append(Seen(at, slot, 1, array.nbytes, array.shape))
            self._collector.add(at, slot, array)

    def summaries(self, steps: int) -> ValueSummaries | None:
        """What is kept of them in a trace of so many steps."""
        if not self.budget:
            return None
        pictures = sum(axes_of(seen.shape) is not None for seen in self._seen)
        counted: Any = Counted(len(self._seen), pictures, 0, steps)
        return self._collector.done(self.budget, counted).within(plan(self._seen, (), self.budget))
