"""Recorded values for the page: the bytes of `kvviz.trace.value_summaries`, one value, and attention weights.

Steps have their numbers in the trace here, since the steps in a payload may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.caches.cache_heat import attention as weights_of
from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.units import run_label
from kvviz.trace.value_numbers import ABOVE, BELOW, BINS, EMPTY, NAN, SHADES
from kvviz.trace.value_summaries import COLUMNS, WHOLE
from kvviz.trace.values_view import NotFinite, Values
from kvviz.view.page_data.packed_columns import Columns, pack
from kvviz.view.page_data.payload import FORMAT

CODES = {"bins": BINS, "shades": SHADES, "empty": EMPTY, "below": BELOW, "above": ABOVE, "nan": NAN, "whole": WHOLE}


def values_payload(trace: Trace) -> bytes:
    """The values in a recording as compressed bytes; empty if it has none. The header has ``about``, one sentence on
    what is kept; ``first``: the first value with a NaN, and with an infinity; ``codes``. The columns are those of
    `COLUMNS`; 8-bit and 16-bit columns are packed into 32 bits."""
    kept = trace.value_summaries
    if kept is None:
        return b""
    columns = Columns()
    for name, (dtype, _) in COLUMNS.items():
        flat = kept.columns[name].ravel()
        if dtype == "<f8":
            columns.floats(name, flat)
        elif dtype == "<i4":
            columns.ints(name, flat)
        else:
            data = flat.astype(dtype).tobytes()
            columns.packed(name, data)
    values = Values(trace, kept)
    header = {
        "format": FORMAT,
        "codes": CODES,
        "about": values.about(),
        "budget": kept.budget,
        "steps": kept.counted.steps,
        "first": {"nan": _position(trace, values.first_nan()), "inf": _position(trace, values.first_inf())},
    }
    return pack(header, columns)


def _position(trace: Trace, found: NotFinite | None) -> dict[str, Any] | None:
    if found is None:
        return None
    text = f"{found.op_type} {found.node}" if found.step is not None else f"the input of {run_label(trace, found.run)}"
    return {"step": -1 if found.step is None else found.step, "value": found.value, "text": text}


SIDE = 64


def peek(trace: Trace, name: str, step: int) -> dict[str, Any]:
    """A value after a step, recomputed by replaying its run.

    Returns ``info`` (type and shape), ``stats`` (smallest and largest number, the mean of the finite ones, how many are
    NaN and how many infinite), ``rows`` (at most 64 × 64 numbers: the last two axes, the first entry of all others).
    JSON has no infinity: an infinite number is encoded as ``"inf"`` or ``"-inf"``, and NaN among the rows as None.

    Raises `ReplayError`: if it was not recorded.
    """
    array = trace.value(name, step)
    info = f"{array.dtype} {list(array.shape)}"
    if array.dtype == object or array.dtype.kind in "USO":
        return {"info": info, "stats": {}, "rows": [[str(v) for v in array.reshape(-1)[:SIDE]]]}
    numbers = array.astype(np.float64) if array.dtype.kind != "c" else np.abs(array)
    stats = _stats(numbers)
    while numbers.ndim > 2:
        numbers = numbers[0] if numbers.shape[0] else numbers.reshape(0, 0)
    grid = np.atleast_2d(numbers)[:SIDE, :SIDE]
    rows = [[_as_json(v) for v in row] for row in grid]
    return {"info": info, "stats": stats, "rows": rows}


def _stats(numbers: np.ndarray) -> dict[str, float | str]:
    present = numbers[~np.isnan(numbers)]
    finite = present[np.isfinite(present)]
    stats: dict[str, float | str] = {}
    if present.size:
        stats = {"min": _as_json(present.min()), "max": _as_json(present.max())}
    if finite.size:
        stats["mean" if finite.size == numbers.size else "mean of the finite"] = float(finite.mean())
    if numbers.size:
        stats["nan"] = numbers.size - present.size
    stats |= {name: n for name in ("inf", "-inf") if (n := int((present == float(name)).sum()))}
    return stats


def _as_json(number: Any) -> Any:
    if np.isfinite(number):
        return float(number)
    return None if np.isnan(number) else str(float(number))


def attention(trace: Trace, cache: int, run: int, query: int = -1) -> dict[str, Any]:
    """The attention weights of one query of a run (-1: the last), by query head and row, recomputed by replaying the
    run. ``cache``: its place in ``trace.caches``. Raises `KvvizError`: if the graph does not show them, or the run's
    inputs were not kept."""
    if not (0 <= cache < len(trace.caches) and 0 <= run < len(trace.caches[cache].runs)):
        raise KvvizError(f"cache {cache} has no run {run}")
    weights = weights_of(trace, trace.caches[cache], run, query)
    if weights is None:
        raise KvvizError(
            "the graph does not show what attention weighed here: it is inside an operator that gives no scores, its "
            "mask is not known, or the run has no such query"
        )
    rows = int(np.flatnonzero(weights.any(0)).max(initial=-1)) + 1
    return {"heads": [[_as_json(round(float(w), 5)) for w in head[:rows]] for head in weights]}
