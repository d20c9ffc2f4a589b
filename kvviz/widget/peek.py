"""A look at one value for the page, or at what attention weighed."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.decode.heat import attention as weights_of
from kvviz.engine.trace import Trace
from kvviz.errors import KvvizError

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


def attention(trace: Trace, cache: int, run: int, query: int = -1) -> dict[str, Any]:
    """What one query of a run weighed, computed again by replaying the run.

    Parameters
    ----------
    trace : Trace
    cache : int
        Its place in ``trace.caches``.
    run : int
    query : int
        Which token of the run; -1 is the last.

    Returns
    -------
    dict
        ``heads``: weights by query head and row.

    Raises
    ------
    KvvizError
        If the graph does not show it, or the run's inputs were not kept.
    """
    if not (0 <= cache < len(trace.caches) and 0 <= run < len(trace.caches[cache].runs)):
        raise KvvizError(f"cache {cache} has no run {run}")
    weights = weights_of(trace, trace.caches[cache], run, query)
    if weights is None:
        raise KvvizError(
            "the graph does not show what attention weighed here: it is inside an operator that gives no scores, its "
            "mask is not known, or the run has no such query"
        )
    rows = int(np.flatnonzero(weights.any(0)).max(initial=-1)) + 1
    return {"heads": [[round(float(w), 5) for w in head[:rows]] for head in weights]}
