"""Writing by index into a copy of the data, or, told ``out=``, into the data itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import counted
from kvviz.ops.gather import check_within, element_grid, wrapped
from kvviz.ops.registry import op

_REDUCE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def always_fits(args: list, position: int, attributes: dict) -> str:
    """The output of a scatter has the shape and dtype of its data."""
    return ""


def update_cost(args: list, outs: Any, in_place: bool, attributes: dict, updates: int = 2) -> tuple[int, int]:
    """In place only the updates are written; otherwise the data is copied first."""
    new = args[updates].nbytes
    return (new, 0) if in_place else (args[0].nbytes + new, args[0].nbytes)


@op("ScatterND", overwrites=(0,), fits=always_fits, cost=update_cost)
def scatter_nd(data, indices, updates, *, reduction="none", out=None):
    """Write slices at tuples of leading indices (the last axis of ``indices``); of several writers the last wins."""
    if not indices.ndim:
        raise OpError("indices of ScatterND must have at least one dimension: the index tuples")
    depth = indices.shape[-1]
    if depth > data.ndim:
        raise OpError(f"index tuples of {depth} numbers are too long for data of shape {data.shape}")
    expected = indices.shape[:-1] + data.shape[depth:]
    if updates.shape != expected:
        raise OpError(f"updates must have shape {expected}, but have {updates.shape}")
    y = data.copy() if out is None else out
    if depth == 1:
        flat = wrapped(indices.reshape(-1), data.shape[0], 0)
        _write(y, (flat,), updates.reshape((flat.size, *data.shape[1:])), reduction)
        return y
    # One index over the joined leading axes: NumPy then writes in order, and the last of several writers wins.
    inner = data.shape[depth:]
    flat = np.zeros(math.prod(indices.shape[:-1]), np.int64)
    tuples = indices.reshape(flat.size, depth)
    for axis in range(depth):
        flat *= data.shape[axis]
        flat += wrapped(tuples[:, axis], data.shape[axis], axis)
    rows = y.reshape((math.prod(data.shape[:depth]), *inner))
    _write(rows, (flat,), updates.reshape((flat.size, *inner)), reduction)
    return y


@op("ScatterElements", "Scatter", overwrites=(0,), fits=always_fits, cost=update_cost)
def scatter_elements(data, indices, updates, *, axis=0, reduction="none", out=None):
    """Write element by element along one axis. Of several writers of an element the last one wins."""
    if indices.shape != updates.shape:
        raise OpError(f"indices of shape {indices.shape} and updates of shape {updates.shape} differ")
    if indices.ndim != data.ndim:
        raise OpError(f"indices of shape {indices.shape} and data of shape {data.shape} differ in rank")
    axis = counted(axis, data.ndim)
    check_within(indices.shape, data.shape, axis)
    found = wrapped(indices, data.shape[axis], axis)
    y = data.copy() if out is None else out
    _write(y, element_grid(found, axis), updates, reduction)
    return y


def _write(y: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> None:
    if reduction == "none":
        y[index] = updates
    elif reduction not in _REDUCE:
        raise OpError(f"reduction {reduction!r} is none of none, add, mul, min, max")
    elif y.dtype == np.bool_ and reduction in ("add", "mul"):
        (np.logical_or if reduction == "add" else np.logical_and).at(y, index, updates)
    else:
        _REDUCE[reduction].at(y, index, updates)
