"""Bytes alive at every moment of a trace, from the lives of storages."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.trace.value_index import Index

Curve = np.ndarray[Any, np.dtype[np.int64]]


def live_curve(index: Index) -> Curve:
    """Bytes alive at every moment: before each run, and while each step ran."""
    if "curve" not in index.notes:
        curve = np.zeros(index.moments + 1, np.int64)
        lives = index.lives
        np.add.at(curve, lives.first, lives.bytes)
        np.subtract.at(curve, lives.last + 1, lives.bytes)
        for life, grew in lives.grew.items():
            for moment, more in grew:
                curve[lives.first[life]] -= more
                curve[moment] += more
        index.notes["curve"] = np.cumsum(curve)[:-1]
    found: Curve = index.notes["curve"]
    return found
