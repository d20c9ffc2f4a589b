"""Which bytes a step reads and writes: what hazards are found from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvviz.trace.index.value_index import Index, Place
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import APPEND, PASSED, VIEW, Op
from kvviz.trace.schema.regions import Region, bounds, packed_strides, whole


def accesses_of(index: Index, step: int) -> tuple[Access, ...]:
    """What a step reads and writes, as its producer declared it or as it follows from the table of operators.

    What follows has the reads first, and no weights, which nobody overwrites; an op whose outputs are all views, or
    come out of a body, touches no bytes itself.
    """
    declared = index.trace.log.declared.accesses.get(step)
    if declared is not None:
        return declared
    row = index.rows[step]
    made = [where for where in row.outs if where is not None and where.how not in (VIEW, PASSED)]
    if not made or row.op.control:
        return ()
    return (*_reads(index, row), *_writes(index, row, dict(index.trace.log.declared.written.get(step, ()))))


def _reads(index: Index, row: Op) -> Iterator[Access]:
    op = row.op
    unread = {*op.unread, *(grow.input for grow in op.grows if grow.input in row.taken and not grow.reads)}
    for name in dict.fromkeys(name for i, name in enumerate(op.node.inputs) if name and i not in unread):
        place = index.places.get((row.frame, name))
        if place is not None and place.shape is not None and place.bound != "weight":
            yield Access(place.storage, False, name, _region(index, row, place))


def _writes(index: Index, row: Op, parts: dict[int, Region]) -> Iterator[Access]:
    for position, (name, where) in enumerate(zip(row.op.node.outputs, row.outs)):
        if where is None or where.how in (VIEW, PASSED):
            continue
        place, part = index.places[row.frame, name], parts.get(position)
        if place.shape is not None:
            region = _region(index, row, place, part)
            appends = part is None and where.how == APPEND
            yield Access(place.storage, True, name, _appended(index, row, region) if appends else region)


def _region(index: Index, row: Op, place: Place, part: Region | None = None) -> Region:
    """Where a value, or the part of it that is known to be touched, lies in its storage."""
    if part is not None:
        region = part._replace(offset=place.offset + part.offset)
    else:
        shape, dtype, strides = place.shape, place.dtype, place.strides
        assert shape is not None
        if not isinstance(dtype, str) and dtype.hasobject:
            dtype = np.dtype(np.intp)
        if strides is None:
            appended = _append_strides(index, index.frames[row.frame].run).get(place.storage, ())
            strides = appended if len(appended) == len(shape) else packed_strides(*unit(shape, dtype))
        region = Region(place.offset, shape, strides, dtype)
    low, high = bounds(region)
    capacity = index.trace.log.storages[place.storage].capacity
    # Where its true place is not known: all of the block.
    return region if low >= 0 and high <= capacity else whole(capacity)


def _append_strides(index: Index, run: int) -> dict[int, tuple[int, ...]]:
    """The strides of each block that an op of a run appended to; a past that the caller gave has them too."""
    known: dict[int, dict[int, Any]] = index.notes.setdefault("append strides", {})
    if run not in known:
        part = index.trace.runs[run]
        outs = (where for row in index.rows[part.first : part.last] if row.taken for where in row.outs)
        known[run] = {
            where.storage: where.strides
            for where in outs
            if where and where.how == APPEND and where.strides is not None
        }
    return known[run]


def _appended(index: Index, row: Op, present: Region) -> Region:
    """The part of a present that an append wrote."""
    places = (index.places.get((row.frame, row.op.node.inputs[position])) for position in row.taken)
    for past in (place.shape for place in places if place is not None and place.shape is not None):
        if past == present.shape:
            # Behind a past that was full already nothing was written.
            return present._replace(shape=(0, *past), strides=(0, *present.strides))
        if len(past) == len(present.shape):
            axes = [axis for axis, (n, m) in enumerate(zip(past, present.shape)) if n != m]
            if len(axes) == 1:
                (axis,), shape = axes, list(present.shape)
                shape[axis] = max(shape[axis] - past[axis], 0)
                offset = present.offset + past[axis] * present.strides[axis]
                return present._replace(offset=offset, shape=tuple(shape))
    return present
