"""What has to change so that an op runs in place where memory safety is all that is asked: the policy ``ideal``.

A step that ran under ``ideal`` has the reasons written down. One that ran under ``never`` has not: its shapes and its
layout are looked at instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kvviz.engine import decide
from kvviz.explain.append_room import make_room
from kvviz.explain.changes import Change, UsePolicy
from kvviz.explain.plans import planned_of
from kvviz.explain.row_major import is_row_major, is_spread
from kvviz.explain.sole_use import Clearing, Unfixable, handed_over
from kvviz.trace import blockers as b
from kvviz.trace.value_index import Index

_HOPELESS = b.CONSTANT | b.SAME_OP_TWICE | b.SHAPE_DIFFERS | b.DTYPE_DIFFERS | b.NOT_CONTIGUOUS | b.OP_CANNOT


def as_refused(index: Index, step: int, position: int, mask: int) -> tuple[Change, ...]:
    """What the mask of reasons asks for."""
    row = index.rows[step]
    if mask & (_HOPELESS | b.POLICY) or row.op.foreign:
        raise Unfixable("no change of the run would do")
    if appends_rows(index, step, position):
        return make_room(index, step, position)
    if is_spread(index, row.frame, row.op.node.inputs[position]):
        # Of what the caller lent that is not among the reasons.
        raise Unfixable("an Expand made it")
    lends = index.trace.policy.captures == "never"
    return tuple(Clearing(index, step, position, partial(handed_over, lends=lends)).changes)


def under_ideal(index: Index, step: int, position: int, mask: int) -> tuple[Change, ...]:
    """What it takes under the policy ``ideal``, for a step that ran under ``never``."""
    use = UsePolicy("ideal")
    if index.rows[step].op.foreign:
        raise Unfixable("the reference kernel never runs in place")
    if appends_rows(index, step, position):
        return use, *make_room(index, step, position)
    row = index.rows[step]
    name = row.op.node.inputs[position]
    grown = any(grow.input == position for grow in row.op.grows)
    if not grown and not _fits(index, step, position):
        raise Unfixable("another shape or type")
    if not is_row_major(index, row.frame, name, in_order=grown) or is_spread(index, row.frame, name):
        raise Unfixable("it may not be row-major")
    return use, *Clearing(index, step, position, handed_over, other_rules=True).changes


def appends_rows(index: Index, step: int, position: int) -> bool:
    """Whether the op would make its past longer; if not, it writes into rows that are there."""
    row = index.rows[step]
    grow = next((g for g in row.op.grows if g.input == position), None)
    if grow is None:
        return False
    past, present = index.places[row.frame, row.op.node.inputs[position]], row.outs[grow.output]
    return present is not None and past.shape != present.shape


def _fits(index: Index, step: int, position: int) -> bool:
    """Whether the first output has exactly the shape and type of an input, as the kernel's table has it."""
    row = index.rows[step]
    if position not in row.op.overwrites:
        return False
    args = [_like(index.places.get((row.frame, name))) if name else None for name in row.op.node.inputs]
    planned = planned_of(index, row)
    if planned.fits is not None:
        return not planned.fits(args, position, planned.attributes)
    return not decide.elementwise_misfit(args, position)


def _like(place: Any) -> np.ndarray | None:
    """An array of the shape and type of a value, without memory."""
    return None if place is None else np.broadcast_to(np.empty((), place.dtype), place.shape)
