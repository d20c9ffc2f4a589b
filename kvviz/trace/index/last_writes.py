"""The accesses of every storage in order, and for each one the write that made what it reads or overwrites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.lifetimes import Key
from kvviz.trace.index.value_index import Index
from kvviz.trace.schema.events import PASSED, POOL, VIEW
from kvviz.trace.schema.regions import Region, bounds


class Touch(NamedTuple):
    """One step's reading or writing of bytes.

    ``low, high``: the region's first byte, and the one behind its last.
    ``source``: number, among the touches of the storage, of the write that made what is read or overwritten here, -1
      where it is older than all of them. The graph has it, and all that it has before that one, before this step.
    ``made``: its step; the one before which the value came from elsewhere, less one, where it has none.
    ``latest``: whatever was last written there is meant, in the order of the program, and not what the edges say that
      the value is. So it is where tensors are memory that ops change, as in ggml: of all accesses that a producer
      declared.
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
    """The write that made a value: its number in a list of touches, and its step."""

    touches: list[Touch] | None
    number: int
    made: int


class Touches:
    """The touches of every storage in some steps of a trace, in order.

    ``first, last``: half-open range of steps: those of one run.
    """

    def __init__(self, index: Index, first: int, last: int) -> None:
        self.index = index
        self.first, self.last = first, last
        self._found: dict[int, list[Touch]] = {}
        # For every value the list that its storage had then, and the number of the write in it that made the bytes.
        self._sources: dict[Key, _Source] = {}

    def __iter__(self) -> Iterator[tuple[int, list[Touch]]]:
        """(storage, its touches); a storage that a pool hands out again begins anew."""
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
                # No edge leads from an op that writes an operand and gives no result.
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
