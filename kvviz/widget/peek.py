"""A look at one value for the page: its type, its range, and a corner of its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.trace import Trace

SIDE = 64


def peek(trace: Trace, name: str, step: int) -> dict[str, Any]:
    """A value after a step, computed again by replaying its run.

    Returns
    -------
    dict
        ``info`` (type and shape), ``stats`` (min, max, mean, and the number of NaN), ``rows`` (at most 64 × 64
        numbers: the last two axes, the
        first entry of all others).

    Raises
    ------
    ReplayError
        If it was not recorded.
    """
    array = trace.value(name, step)
    info = f"{array.dtype} {list(array.shape)}"
    if array.dtype == object or array.dtype.kind in "USO":
        return {"info": info, "stats": {}, "rows": [[str(v) for v in array.reshape(-1)[:SIDE]]]}
    numbers = array.astype(np.float64) if array.dtype.kind != "c" else np.abs(array)
    stats: dict[str, float | int] = {}
    if numbers.size:
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            stats = {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
        stats["nan"] = int(np.isnan(numbers).sum())
    while numbers.ndim > 2:
        numbers = numbers[0] if numbers.shape[0] else numbers.reshape(0, 0)
    grid = np.atleast_2d(numbers)[:SIDE, :SIDE]
    rows = [[float(v) if np.isfinite(v) else None for v in row] for row in grid]
    return {"info": info, "stats": stats, "rows": rows}
