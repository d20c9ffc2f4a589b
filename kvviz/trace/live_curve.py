"""Bytes alive at every moment of a trace, from the lives of storages."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.trace.lifetimes import Life
from kvviz.trace.value_index import Index

Curve = np.ndarray[Any, np.dtype[np.int64]]


def live_curve(index: Index) -> Curve:
    """Bytes alive at every moment: before each run, and while each step ran."""
    if "curve" not in index.notes:
        curve = np.zeros(index.moments + 1, np.int64)
        for life in index.lives:
            _add(curve, life, 1)
        index.notes["curve"] = np.cumsum(curve)[:-1]
    found: Curve = index.notes["curve"]
    return found


def _add(curve: Curve, life: Life, sign: int) -> None:
    curve[life.first] += sign * (life.bytes - sum(more for _, more in life.grew))
    for moment, more in life.grew:
        curve[moment] += sign * more
    curve[life.last + 1] -= sign * life.bytes
