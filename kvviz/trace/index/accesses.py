"""Which bytes each step reads and writes, and which write made the bytes that an access finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kvviz.trace.index.lifetimes import Key
from kvviz.trace.index.value_index import Index, Place
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import APPEND, PASSED, POOL, VIEW, Op
from kvviz.trace.schema.regions import Region, bounds, packed_strides, whole
from kvviz.trace.trace_data import noted


def accesses_of(index: Index, step: int) -> tuple[Access, ...]:
    """What a step reads and writes, as its producer declared it or as the table of operators implies. Implied accesses
    have the reads first, and no weights, which are never overwritten. An op whose outputs are all views, or come out of
    a body, touches no bytes itself."""
    declared = index.trace.log.declared.accesses.get(step)
    if declared is not None:
        return declared
    row = index.rows[step]
    made = [where for where in row.outs if where is not None and where.how not in (VIEW, PASSED)]
    return (*_reads(index, row), *writes_of(index, step)) if made and not row.op.control else ()


def writes_of(index: Index, step: int) -> tuple[Access, ...]:
    log, row = index.trace.log.declared, index.rows[step]
    if step in log.accesses:
        return tuple(access for access in log.accesses[step] if access.writes)
    return () if row.op.control else tuple(_writes(index, row, dict(log.written.get(step, ()))))


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
    """The region of a value, or of the part of it that is known to be touched."""
    if part is not None:
        region = part._replace(offset=place.offset + part.offset)
    else:
        shape, dtype, strides = place.shape, place.dtype, place.strides
        assert shape is not None
        if not isinstance(dtype, str) and dtype.hasobject:
            dtype = np.dtype(np.intp)
        if strides is None:
            run = index.frames[row.frame].run
            known = noted(index.notes, ("append strides", run), lambda: _append_strides(index, run))
            appended = known.get(place.storage, ())
            strides = appended if len(appended) == len(shape) else packed_strides(*unit(shape, dtype))
        region = Region(place.offset, shape, strides, dtype)
    low, high = bounds(region)
    capacity = index.trace.log.storages[place.storage].capacity
    # If its place is not known: the whole block.
    return region if low >= 0 and high <= capacity else whole(capacity)


def _append_strides(index: Index, run: int) -> dict[int, tuple[int, ...]]:
    """The strides of each block that an op of a run appended to; a caller's past has them too."""
    log, values, part = index.trace.log, index.values, index.trace.runs[run]
    outs = values.made_in(part.first, part.last)
    found = {}
    for value in (np.flatnonzero(values.how[outs] == APPEND) + outs.start).tolist():
        strides = log.forms.entries[values.form[value]][2]
        if strides is not None and log.called(int(values.step[value]))[2]:
            found[int(values.storage[value])] = strides
    return found


def _appended(index: Index, row: Op, present: Region) -> Region:
    places = (index.places.get((row.frame, row.op.node.inputs[position])) for position in row.taken)
    for past in (place.shape for place in places if place is not None and place.shape is not None):
        if past == present.shape:
            # Nothing was written behind a past that was full.
            return present._replace(shape=(0, *past), strides=(0, *present.strides))
        if len(past) == len(present.shape):
            axes = [axis for axis, (n, m) in enumerate(zip(past, present.shape)) if n != m]
            if len(axes) == 1:
                (axis,), shape = axes, list(present.shape)
                shape[axis] = max(shape[axis] - past[axis], 0)
                offset = present.offset + past[axis] * present.strides[axis]
                return present._replace(offset=offset, shape=tuple(shape))
    return present


class Touch(NamedTuple):
    """One read or write of bytes by a step.

    ``low, high``: the region's first byte, and the one behind its last.
    ``source``: index, among the touches of the storage, of the write that made the bytes found here, -1 if it is older
      than all of them; the graph orders that write, and everything before it, before this step.
    ``made``: its step, or one less than the step before which the value came from elsewhere.
    ``latest``: the latest write in program order is meant, whatever the edges say, because tensors are memory that ops
      change, as in ggml and in all accesses that a producer declared.
    """

    step: int
    writes: bool
    value: str
    region: Region
    low: int
    high: int
    source: int
    made: int
    latest: bool


class _Source(NamedTuple):
    """The write that made a value: its index in a list of touches, and its step."""

    touches: list[Touch] | None
    number: int
    made: int


class Touches:
    """The touches of every storage in the steps ``first`` to ``last`` (half open) of one run, in order."""

    def __init__(self, index: Index, first: int, last: int) -> None:
        self.index = index
        self.first, self.last = first, last
        self._found: dict[int, list[Touch]] = {}
        # For every value the list that its storage had then, and the index of the write that made the bytes.
        self._sources: dict[Key, _Source] = {}

    def __iter__(self) -> Iterator[tuple[int, list[Touch]]]:
        """(storage, its touches); a storage that a pool hands out again starts a new list."""
        declared = self.index.trace.log.declared.accesses
        for step in range(self.first, self.last):
            row = self.index.rows[step]
            number, node = row.frame, row.op.node
            anew = {where.storage for where in row.outs if where is not None and where.how == POOL}
            latest = step in declared
            for storage, writes, value, region in accesses_of(self.index, step):
                if writes and storage in anew and storage in self._found:
                    yield storage, self._found.pop(storage)
                anew.discard(storage if writes else -1)
                source = self._source_in(storage, number, node.inputs if writes else (value,))
                touches = self._found.setdefault(storage, [])
                ends = bounds(region)
                touches.append(Touch(step, writes, value, region, *ends, source.number, source.made, latest))
                # No edge leads from an op that writes an operand and has no result.
                if writes and value in node.outputs:
                    self._sources[number, value] = _Source(touches, len(touches) - 1, step)
            for name, where in zip(node.outputs, row.outs):
                if where is None or where.how not in (VIEW, PASSED) or (number, name) in self._sources:
                    continue
                inner = self.index.inner(number, name) if where.how == PASSED else None
                if inner is not None:
                    self._sources[number, name] = self._source(inner)
                else:
                    self._sources[number, name] = self._viewed(where.storage, number, node.inputs, where.how == VIEW)
        yield from self._found.items()

    def _viewed(self, storage: int, number: int, names: Any, element: bool) -> _Source:
        places = (self.index.places.get((number, name)) for name in names if name)
        if not element or any(place is not None and place.storage == storage for place in places):
            return self._source_in(storage, number, names)
        # An element of a sequence: sequences are never written into, so the last write made it.
        return self._last_write(storage, self.last)

    def _last_write(self, storage: int, before: int) -> _Source:
        touches = self._found.get(storage)
        for number in reversed(range(len(touches or ()))):
            touch = (touches or [])[number]
            if touch.writes and touch.step < before:
                return _Source(touches, number, touch.step)
        return _Source(touches, -1, self.first - 1)

    def _source_in(self, storage: int, number: int, names: Any) -> _Source:
        """The last write that made one of these values, among those in a storage."""
        touches = self._found.get(storage)
        best = _Source(touches, -1, self.first - 1)
        for name in names:
            place = self.index.places.get((number, name)) if name else None
            if place is not None and place.storage == storage:
                source = self._source((number, name))
                if source.touches is not touches:
                    # It came here with its frame.
                    source = _Source(touches, -1, place.step - 1)
                best = max(best, source, key=lambda one: (one.number, one.made))
        return best

    def _source(self, key: Key) -> _Source:
        asked = []
        outer: Key | None = key
        while outer is not None and outer not in self._sources:
            asked.append(outer)
            place = self.index.places.get(outer)
            outer = self.index.outer(*outer) if place is not None and place.bound else None
        if outer is not None:
            found = self._sources[outer]
        else:
            place = self.index.places.get(asked[-1])
            # A slice of a Scan input has the contents from when its iteration began.
            found = _Source(None, -1, self.first - 1) if place is None else self._last_write(place.storage, place.step)
        self._sources.update(dict.fromkeys(asked, found))
        return found
