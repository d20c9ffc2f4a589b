"""Who touched which bytes of a storage, step by step: what hazards are found from."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kvviz.trace.element_types import unit
from kvviz.trace.events import APPEND, PASSED, POOL, VIEW, Output
from kvviz.trace.lifetimes import Key
from kvviz.trace.regions import packed_strides
from kvviz.trace.value_index import Index

# What these ask of a value is not in its bytes.
_SHAPE_ONLY = {"Shape", "Size"}
_WORK: Any = 20_000  # beyond this, bytes are taken to overlap


class Region(NamedTuple):
    """Bytes of a storage: from the first to behind the last one, and which of these an array there would have."""

    low: int
    high: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]


class Touch(NamedTuple):
    """One step's reading or writing of bytes.

    Attributes
    ----------
    step : int
    writes : bool
    value : str
    region : Region
    source : int
        Number, among the touches of the storage, of the write that made what is read or overwritten here, -1 where it
        is older than all of them. The graph has it, and all that it has before that one, before this step.
    made : int
        Its step; the one before which the value came from elsewhere, less one, where it has none.
    """

    step: int
    writes: bool
    value: str
    region: Region
    source: int
    made: int


class _Source(NamedTuple):
    """The write that made a value: its number in a list of touches, and its step."""

    touches: list[Touch] | None
    number: int
    made: int


class Touches:
    """The touches of every storage in some steps of a trace, in order.

    Parameters
    ----------
    index : Index
    first, last : int
        Half-open range of steps: those of one run.
    """

    def __init__(self, index: Index, first: int, last: int) -> None:
        self.index = index
        self.first, self.last = first, last
        self._found: dict[int, list[Touch]] = {}
        # For every value the list that its storage had then, and the number of the write in it that made the bytes.
        self._sources: dict[Key, _Source] = {}
        rows = (row for row in index.rows[first:last] if row.taken)
        made = (where for row in rows for where in row.outs if where is not None)
        # The strides of each block that an op appended to; a past that the caller gave has them too.
        self._strides = {
            where.storage: where.strides for where in made if where.how == APPEND and where.strides is not None
        }

    def __iter__(self) -> Iterator[tuple[int, list[Touch]]]:
        """(storage, its touches); a storage that a pool hands out again begins anew."""
        for step in range(self.first, self.last):
            number, planned, taken, _, placed = self.index.rows[step][:5]
            node = planned.node
            if not planned.control and any(where and where.how not in (VIEW, PASSED) for where in placed):
                self._read(step, number, node, taken)
            for name, where in zip(node.outputs, placed):
                if where is None:
                    continue
                if where.how == VIEW:
                    self._sources[number, name] = self._viewed(where.storage, number, node.inputs)
                elif where.how == PASSED:
                    inner = self.index.inner(number, name)
                    self._sources[number, name] = (
                        self._source(inner)
                        if inner is not None
                        else self._source_in(where.storage, number, node.inputs)
                    )
                else:
                    if where.how == POOL and where.storage in self._found:
                        yield where.storage, self._found.pop(where.storage)
                    self._write(step, number, name, where, node, taken)
        yield from self._found.items()

    def _read(self, step: int, number: int, node: Any, taken: tuple[int, ...]) -> None:
        if node.op_type in _SHAPE_ONLY:
            return
        # What Concat appends to it does not read.
        skipped = {node.inputs[t] for t in taken} if node.op_type == "Concat" else ()
        for name in dict.fromkeys(node.inputs):
            place = self.index.places.get((number, name)) if name else None
            if place is not None and place.shape is not None and place.bound != "weight" and name not in skipped:
                source = self._source_in(place.storage, number, (name,))
                self._note(place.storage, Touch(step, False, name, self._region(place), *source[1:]))

    def _write(self, step: int, number: int, name: str, where: Output, node: Any, taken: tuple[int, ...]) -> None:
        place = self.index.places[number, name]
        if place.shape is None:
            return
        region = self._region(place)
        if where.how == APPEND:
            region = self._new_rows(number, [node.inputs[t] for t in taken], region)
        source = self._source_in(place.storage, number, node.inputs)
        self._note(place.storage, Touch(step, True, name, region, *source[1:]))
        touches = self._found[place.storage]
        self._sources[number, name] = _Source(touches, len(touches) - 1, step)

    def _note(self, storage: int, touch: Touch) -> None:
        self._found.setdefault(storage, []).append(touch)

    # -- which write made a value -----------------------------------------------------------------------------------

    def _viewed(self, storage: int, number: int, names: Any) -> _Source:
        places = (self.index.places.get((number, name)) for name in names if name)
        if any(place is not None and place.storage == storage for place in places):
            return self._source_in(storage, number, names)
        # An element of a sequence: nobody writes to what a sequence holds, so the last write made it.
        return self._last_write(storage, self.last)

    def _last_write(self, storage: int, before: int) -> _Source:
        touches = self._found.get(storage)
        for number in reversed(range(len(touches or ()))):
            touch = (touches or [])[number]
            if touch.writes and touch.step < before:
                return _Source(touches, number, touch.step)
        return _Source(touches, -1, self.first - 1)

    def _source_in(self, storage: int, number: int, names: Any) -> _Source:
        """The last write that made one of these values, of those that lie in a storage."""
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
            # A slice of what a Scan reads shows what was there when its iteration began.
            found = _Source(None, -1, self.first - 1) if place is None else self._last_write(place.storage, place.step)
        self._sources.update(dict.fromkeys(asked, found))
        return found

    # -- bytes ------------------------------------------------------------------------------------------------------

    def _region(self, place: Any) -> Region:
        shape, dtype = place.shape, np.dtype(place.dtype)
        dtype = np.dtype(np.intp) if dtype.hasobject else dtype
        strides = place.strides
        appended = self._strides.get(place.storage, ())
        if strides is None:
            strides = appended if len(appended) == len(shape) else packed_strides(*unit(shape, dtype))
        region = _bounded(place.offset, shape, dtype, strides)
        capacity = self.index.trace.log.storages[place.storage].capacity
        if region.low < 0 or region.high > capacity:
            # Its true place is not known: all of the block.
            return Region(0, capacity, 0, (capacity,), np.dtype(np.uint8), (1,))
        return region

    def _new_rows(self, number: int, taken: list[str], present: Region) -> Region:
        """The part of a present that an append wrote."""
        places = [self.index.places.get((number, name)) for name in taken]
        for past in (place.shape for place in places if place is not None and place.shape is not None):
            if len(past) == len(present.shape):
                axes = [axis for axis, (n, m) in enumerate(zip(past, present.shape)) if n != m]
                if len(axes) == 1:
                    (axis,), shape = axes, list(present.shape)
                    shape[axis] = max(shape[axis] - past[axis], 0)
                    offset = present.offset + past[axis] * present.strides[axis]
                    return _bounded(offset, tuple(shape), present.dtype, present.strides)
        return present


def overlap(one: Region, two: Region) -> bool:
    """Whether two regions of one storage have a byte in common."""
    low, high = min(one.low, two.low), max(one.high, two.high)
    # The block is never touched, so it costs no memory.
    block = np.empty(high - low, np.uint8)
    first, second = (np.ndarray(r.shape, r.dtype, block, r.offset - low, r.strides) for r in (one, two))
    try:
        return np.shares_memory(first, second, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True


def _bounded(offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Region:
    if not prod(shape):
        return Region(offset, offset, offset, shape, dtype, strides)
    reaches = [(n - 1) * stride for n, stride in zip(shape, strides)]
    low = offset + sum(reach for reach in reaches if reach < 0)
    high = offset + sum(reach for reach in reaches if reach > 0) + dtype.itemsize
    return Region(low, high, offset, shape, dtype, strides)
