"""The different numbers in a long column: what is the same of many rows is looked at once."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def distinct(numbers: Ints, limit: int) -> tuple[Ints, Ints]:
    """The different ones of some numbers from 0 up to a limit, ascending, and the place among them of each number.

    A table of all numbers that there could be takes a tenth of the time that sorting takes, unless there are far fewer.
    """
    if limit > 8 * len(numbers) + (1 << 16):
        found, places = np.unique(numbers, return_inverse=True)
        return found, places
    there = np.zeros(limit, bool)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]
