"""A walk over the rows of a trace: where every value lay, and how long every storage lived.

Invariant: at every step the storages that are alive here have as many bytes as the trace says were alive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.trace.events import IN_PLACE, NEW, PASSED, POOL, VIEW, Op

Key = tuple[int, str]
"""A value: number of its frame, and its name there."""


class Place(NamedTuple):
    """Where a value lay.

    ``contents``: values of one storage with the same number share bytes; an op that writes over a storage begins a
      new number.
    ``how``: a code of `kvviz.engine.rows`, -1 for what a frame started with.
    ``bound``: for what a frame started with, how: ``"weight"``, ``"borrowed"``, …; empty otherwise.
    ``step``: the step that made it, or before which its frame was opened.
    ``offset``: bytes from the start of the storage.
    """

    storage: int
    contents: int
    how: int
    bound: str
    step: int
    shape: tuple[int, ...] | None
    dtype: Any
    strides: tuple[int, ...] | None
    offset: int = 0


class Life(NamedTuple):
    """A storage from its birth, or from being handed out again by a pool, to its death.

    ``first`` and ``last`` are moments: one before each run, when its inputs are bound, and one for each step. ``born``
    and ``freed`` are steps, ``used`` is the last step that read or wrote it; ``freed`` is None where it lives.
    ``bytes``
    is its capacity at the end, ``grew`` has (moment, bytes) of every time that it was made larger.
    """

    storage: int
    first: int
    last: int
    born: int
    used: int
    freed: int | None
    bytes: int
    grew: tuple[tuple[int, int], ...] = ()


class Walk:
    """One walk over the rows of a trace, in order, that fills its index (`kvviz.trace.value_index.Index`)."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.contents: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.open: dict[int, tuple[int, int]] = {}
        self.grew = self._growth()
        self.anonymous = self._anonymous()
        self.numbers = 0

    def run(self) -> None:
        index = self.index
        rows, frames = index.rows, index.frames
        opened = 0
        for storage in index.trace.log.storages:
            if storage.origin == "weights":
                # Those of a body that never runs are held too.
                self._begin(storage.id, 0, -1)
        for step, row in enumerate(rows):
            while opened < len(frames) and frames[opened].opened <= step:
                self._bind(opened)
                opened += 1
            self._row(step, row)
        for frame in range(opened, len(frames)):
            self._bind(frame)
        for storage in list(self.open):
            self._close(storage, None, index.moments - 1)
        lives = sorted(index.lives, key=lambda life: (life.first, life.storage))
        index.lives = [life._replace(bytes=self._bytes(life)) for life in lives]

    def _bind(self, number: int) -> None:
        index, frame = self.index, self.index.frames[number]
        moment = index.binding(frame.run) if frame.parent is None else frame.opened + frame.run + 1
        for name, storage, _, how, shape, dtype, offset in frame.bindings:
            self._begin(storage, moment, frame.opened, elements=shape is None)
            outer = None if frame.parent is None or how == "weight" else index.places.get(index.outer(number, name))
            # In the memory that it had outside it is laid out as it was there.
            kept = outer is not None and outer.storage == storage and outer.shape == shape
            strides = outer.strides if outer is not None and kept else None
            self._place((number, name), storage, -1, how, frame.opened, shape, dtype, strides, offset)

    def _row(self, step: int, row: Op) -> None:
        index, places = self.index, self.index.places
        number, planned, placed, freed = row.frame, row.op, row.outs, row.freed
        node = planned.node
        index.step_of[number, node.index] = step
        moment = step + index.frames[number].run + 1
        when = step
        bodies = index.bodies.get((number, node.index)) if planned.control else None
        if bodies:
            # What the node itself reads, it reads when it is entered; the rest is read by the steps of its bodies.
            when = min(index.frames[bodies[0]].opened, step)
            for body in bodies:
                for name in index.scanned(body):
                    if (place := places.get((body, name))) is not None:
                        self.used[place.storage] = step
        for name in node.inputs:
            if name and (place := places.get((number, name))) is not None:
                self.used[place.storage] = max(when, self.used.get(place.storage, -1))
        for name, where in zip(node.outputs, placed):
            if where is None:
                continue
            storage, _, how, shape, dtype, offset, strides = where
            if storage not in self.open:
                self._begin(storage, moment, step, elements=shape is None)
            if how in (NEW, POOL, IN_PLACE):
                self._renew(storage)
            if how != PASSED:
                self.used[storage] = step
            if offset is None:
                # It begins where that begins which it overwrote, or is a view of.
                source = places.get((number, node.inputs[row.taken[0] if row.taken else 0]))
                offset = 0 if source is None else source.offset
            self._place((number, name), storage, how, "", step, shape, dtype, strides, offset)
        for storage in freed:
            self._close(storage, step, moment)

    def _growth(self) -> dict[int, list[tuple[int, int]]]:
        """(moment, bytes) of every time that a storage was made larger."""
        index = self.index
        grew: dict[int, list[tuple[int, int]]] = {}
        for step, storage, more in index.trace.log.grew:
            moment = index.moment(step) if step < len(index.rows) else index.moments - 1
            grew.setdefault(storage, []).append((moment, more))
        return grew

    def _begin(self, storage: int, moment: int, born: int, elements: bool = False) -> None:
        if storage in self.open:
            return
        self.open[storage] = moment, born
        self.used[storage] = born
        self._renew(storage)
        # The elements of a sequence have no name of their own and follow it; so does what a run made whose steps were
        # dropped, and that is no element.
        while elements and (storage := storage + 1) in self.anonymous:
            self.anonymous.discard(storage)
            self._begin(storage, moment, born, elements)

    def _close(self, storage: int, step: int | None, moment: int) -> None:
        if storage not in self.open:
            return
        first, born = self.open.pop(storage)
        grew = tuple(event for event in self.grew.get(storage, ()) if first <= event[0] <= moment)
        self.index.lives.append(Life(storage, first, moment, born, self.used[storage], step, 0, grew))

    def _bytes(self, life: Life) -> int:
        """Capacity at the end of a life: what the storage has now, less what it grew by later on."""
        later = sum(nbytes for moment, nbytes in self.grew.get(life.storage, ()) if moment > life.last)
        return self.index.trace.log.storages[life.storage].capacity - later

    def _renew(self, storage: int) -> None:
        self.numbers += 1
        self.contents[storage] = self.numbers

    def _place(
        self, key: Key, storage: int, how: int, bound: str, step: int, shape: Any, dtype: Any, strides: Any, offset: int
    ) -> None:
        contents = self.contents[storage]
        self.index.places[key] = Place(storage, contents, how, bound, step, shape, dtype, strides, offset)
        self.index.members.setdefault((storage, contents), []).append(key)

    def _anonymous(self) -> set[int]:
        """Storages that no value is recorded to lie in: elements of sequences."""
        index = self.index
        first: dict[int, int] = {}
        for where in (where for row in index.rows for where in row.outs if where is not None):
            first.setdefault(where.storage, where.how)
        # What was an element may be viewed, or handed out by a pool, later on.
        named = {storage for storage, how in first.items() if how not in (POOL, VIEW)}
        named.update(bound.storage for frame in index.frames for bound in frame.bindings)
        return {storage.id for storage in index.trace.log.storages} - named
