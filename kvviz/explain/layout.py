"""Whether a value is surely one row-major block: what a trace does not say of values in memory of their own.

Invariant: yes is certain; where it cannot be told, the answer is no.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.explain.index import Index
from kvviz.explain.lives import Place

# Kernels whose result is row-major if all their inputs are; those that may overwrite an input belong to them too.
_KEEPS = {
    "ArgMax",
    "ArgMin",
    "Cast",
    "Concat",
    "ConstantOfShape",
    "Equal",
    "Gather",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "MatMul",
    "MatMulNBits",
    "Range",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "Shape",
}


def is_row_major(index: Index, frame: int, name: str) -> bool:
    """Whether a value is C-contiguous for certain."""
    place = index.places.get((frame, name))
    if place is None or place.shape is None:
        return False
    if place.bound:
        return _is_bound_packed(index, frame, name, place)
    if sum(n != 1 for n in place.shape) < 2:
        return place.strides is None or _is_packed(place)
    if place.strides is not None:
        return _is_packed(place)
    if index.trace.policy.homes is not None:
        # Such a policy gives every value that is no view a row-major block.
        return True
    op = index.rows[place.step].op
    if op.control or op.foreign or not (op.overwrites or op.node.op_type in _KEEPS):
        return False
    return all(is_row_major(index, frame, given) for given in op.node.inputs if given)


def _is_bound_packed(index: Index, frame: int, name: str, place: Place) -> bool:
    if place.bound == "weight":
        graph = index.frames[frame].program.graph
        return name in graph.weights and bool(graph.weights[name].flags.c_contiguous)
    if place.bound in ("borrowed", "donated"):
        recipe = index.trace.recipe
        kept = None if recipe is None or index.frames[frame].run else recipe.kept()
        # A carried cache of a later run is told by the run that made it.
        if kept is None or name not in kept.values:
            return False
        spot = kept.spots.get(name)
        return spot is None or _are_packed(spot.strides, place)
    outer = index.outer(frame, name)
    if outer is None:
        # An iteration number, or a slice of what a Scan reads.
        return not place.shape
    return is_row_major(index, *outer)


def _is_packed(place: Place) -> bool:
    return place.strides is not None and _are_packed(place.strides, place)


def _are_packed(strides: tuple[int, ...], place: Place) -> bool:
    """Whether these are the strides of a row-major block, where there is a step to make."""
    packed = packed_strides(place.shape, place.dtype)
    return 0 in (place.shape or ()) or all(
        n == 1 or one == two for n, one, two in zip(place.shape or (), strides, packed)
    )


def packed_strides(shape: Any, dtype: Any) -> tuple[int, ...]:
    """Strides in bytes of a row-major block."""
    strides, size = [], np.dtype(dtype).itemsize
    for n in reversed(shape):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))
