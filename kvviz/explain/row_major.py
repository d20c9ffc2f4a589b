"""Whether a value is surely one row-major block: what a trace does not say of values in memory of their own.

Invariant: yes is certain; where it cannot be told, the answer is no.
"""

from __future__ import annotations

import numpy as np

from kvviz.engine.decide import rows_are_in_order
from kvviz.trace.element_types import unit
from kvviz.trace.events import VIEW
from kvviz.trace.lifetimes import Place
from kvviz.trace.regions import packed_strides
from kvviz.trace.value_index import Index

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


def is_row_major(index: Index, frame: int, name: str, in_order: bool = False) -> bool:
    """Whether a value is C-contiguous for certain.

    ``in_order``: its rows must lie as `kvviz.engine.decide.rows_are_in_order` asks, too, which looks at a single row
      as well.
    """
    place = index.places.get((frame, name))
    if place is None or place.shape is None:
        return False
    if place.bound:
        return _is_bound_packed(index, frame, name, place, in_order)
    if place.strides is not None:
        return _are_packed(place.strides, place, in_order)
    if sum(n != 1 for n in place.shape) < 2 and not in_order:
        return True
    if index.trace.policy.places_outputs:
        # Such a policy gives every value that is no view a row-major block.
        return True
    op = index.rows[place.step].op
    if op.control or op.foreign or not (op.overwrites or op.node.op_type in _KEEPS):
        return False
    return all(is_row_major(index, frame, given, in_order) for given in op.node.inputs if given)


def _is_bound_packed(index: Index, frame: int, name: str, place: Place, in_order: bool) -> bool:
    if place.bound == "weight":
        return name in index.frames[frame].program.graph.weights
    if place.bound in ("borrowed", "donated"):
        given = index.trace.options.given
        # A carried cache of a later run is told by the run that made it.
        if given is None or index.frames[frame].run or name not in given.names:
            return False
        layout = given.layouts.get(name)
        return layout is None or _are_packed(layout.strides, place, in_order)
    outer = index.outer(frame, name)
    if outer is None:
        # An iteration number, or a slice of what a Scan reads.
        return not place.shape
    return is_row_major(index, *outer, in_order)


def _are_packed(strides: tuple[int, ...], place: Place, in_order: bool) -> bool:
    """Whether these are the strides of a row-major block, where there is a step to make."""
    if in_order and not rows_are_in_order(place.shape or (), strides, np.dtype(place.dtype).itemsize):
        return False
    packed = packed_strides(*unit(place.shape or (), place.dtype))
    return 0 in (place.shape or ()) or all(
        n == 1 or one == two for n, one, two in zip(place.shape or (), strides, packed)
    )


def is_spread(index: Index, frame: int, name: str) -> bool:
    """Whether a value is an Expand's view or a part of one: nobody may write to it, however few elements it has."""
    while (place := index.places.get((frame, name))) is not None:
        found: tuple[int, str] | None
        if place.bound:
            found = None if place.bound == "weight" else index.outer(frame, name)
        elif index.rows[place.step].op.control:
            found = index.inner(frame, name)
        elif place.how == VIEW:
            op = index.rows[place.step].op
            given = [op.node.inputs[position] for position in op.views]
            found = next(((frame, one) for one in given if _lies_in(index, frame, one, place)), None)
            if found is not None and op.node.op_type == "Expand" and index.places[found].shape != place.shape:
                return True
        else:
            found = None
        if found is None or not _lies_in(index, *found, place):
            return False
        frame, name = found
    return False


def _lies_in(index: Index, frame: int, name: str, place: Place) -> bool:
    other = index.places.get((frame, name))
    return other is not None and other.storage == place.storage
