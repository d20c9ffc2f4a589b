"""A walk over the rows of a trace: where every value lay, and how long every storage lived.

Invariant: at every step the storages that are alive here have as many bytes as the trace says were alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import islice
from typing import Any, NamedTuple

from kvviz.trace.declared import HOST
from kvviz.trace.events import IN_PLACE, NEW, PASSED, POOL, VIEW, Op
from kvviz.trace.records import StorageRecord

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


class Births:
    """One walk over the ops and frames of a log, in order, that keeps account of which storages are alive.

    ``rows``: the ops, where somebody has them as a list.
    ``open``: of those alive, the moment and the step of their birth.
    ``born``: the step of the first birth of each; what the first frame starts with was there before it.
    ``died``: the step of its last death, of those that are dead.
    ``names``: the value that each was made for; empty where that is not known.
    """

    def __init__(self, log: Any, rows: Sequence[Op] | None = None) -> None:
        self.log = log
        self.rows = log if rows is None else rows
        self.frames = log.frames
        self.open: dict[int, tuple[int, int]] = {}
        self.born: dict[int, int] = {}
        self.died: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self._unnamed: set[int] | None = None
        # How far it came: storages, frames and ops; how often ops had been dropped from the log.
        self._listed = self._opened = self._walked = 0
        self.cuts = log.cuts

    def run(self) -> None:
        """Walk from where it is to the last op."""
        self.walk(len(self.log))
        for frame in range(self._opened, len(self.frames)):
            self._bind(frame)

    def walk(self, stop: int) -> None:
        """Walk on to an op. What died with the last op of a log is not settled before there is another one."""
        frames = self.frames
        for storage in islice(self.log.storages, self._listed, None):
            if storage.origin == "weights":
                # Those of a body that never runs are held too.
                self._begin(storage.id, 0, -1)
        self._listed = len(self.log.storages)
        for step, row in enumerate(self.rows[self._walked : stop] if self._walked else self.rows, self._walked):
            if step >= stop:
                break
            while self._opened < len(frames) and frames[self._opened].opened <= step:
                self._bind(self._opened)
                self._opened += 1
            moment = step + frames[row.frame].run + 1
            for name, where in zip(row.op.node.outputs, row.outs):
                if where is not None and where.storage not in self.open:
                    # What is a view first, or out of the pool, was there before, if only as an element of a sequence.
                    named = "" if where.how in (POOL, VIEW) else name
                    self._begin(where.storage, moment, step, named, where.shape is None)
            self._row(step, row, moment)
            for storage in row.freed:
                if storage in self.open:
                    self.died[storage] = step
                    self._close(storage, step, moment)
        self._walked = max(self._walked, stop)

    def apart(self) -> Births:
        """The same, to go on from here by itself; from the start, where elements of sequences were looked for."""
        if self._unnamed is not None:
            return Births(self.log)
        twin = copy(self)
        twin.open, twin.born, twin.died, twin.names = (
            dict(self.open),
            dict(self.born),
            dict(self.died),
            dict(self.names),
        )
        return twin

    def _bind(self, number: int) -> None:
        frame = self.frames[number]
        moment = frame.opened + frame.run + (frame.parent is not None)
        for bound in frame.bindings:
            storage, first = bound.storage, bound.storage not in self.born
            self._begin(storage, moment, frame.opened, bound.name, bound.shape is None)
            self.names.setdefault(storage, bound.name)
            if first and not frame.opened:
                self.born[storage] = -1

    def _begin(self, storage: int, moment: int, born: int, name: str | None = None, elements: bool = False) -> None:
        if storage in self.open:
            return
        self.open[storage] = moment, born
        self.died.pop(storage, None)
        self.born.setdefault(storage, born)
        if name is not None:
            self.names.setdefault(storage, name)
        # The elements of a sequence have no name of their own and follow it; so does what a run made whose steps were
        # dropped, and that is no element.
        while elements and (storage := storage + 1) in self._anonymous():
            self._anonymous().discard(storage)
            self._begin(storage, moment, born, name, elements)

    def _row(self, step: int, row: Op, moment: int) -> None:
        """What else there is to note of an op, when its outputs are alive and its inputs not yet dead."""

    def _close(self, storage: int, step: int | None, moment: int) -> tuple[int, int]:
        return self.open.pop(storage)

    def _anonymous(self) -> set[int]:
        """Storages that no value is recorded to lie in: elements of sequences."""
        if self._unnamed is None:
            first: dict[int, tuple[int, int]] = {}
            for step, row in enumerate(self.rows):
                for where in row.outs:
                    if where is not None:
                        first.setdefault(where.storage, (step, where.how))
            # What was an element may be viewed, or handed out by a pool and be given to a frame, later on.
            named = {storage for storage, (_, how) in first.items() if how not in (POOL, VIEW)}
            for frame in self.frames:
                given = (bound.storage for bound in frame.bindings)
                named.update(storage for storage in given if frame.opened <= first.get(storage, (frame.opened,))[0])
            self._unnamed = {storage.id for storage in self.log.storages} - named
        return self._unnamed


def settled(log: Any, known: Births | None) -> Births:
    """What is settled of a log that goes on: a walk up to its last op, with which more may still die.

    ``known``: as it was when it was asked for last; only new ops are walked.
    """
    births = Births(log) if known is None or known.cuts != log.cuts else known
    births.walk(len(log) - 1)
    return births


def storage_records(births: Births) -> list[StorageRecord]:
    """All storages of a log, by id. The walk stays where it is."""
    log, births = births.log, births.apart()
    births.run()
    grew: dict[int, tuple[tuple[int, int], ...]] = {}
    for index, grown, more in log.grew:
        grew[grown] = (*grew.get(grown, ()), (index, more))
    records = []
    for id, capacity, origin in log.storages:
        # What is known of no step was made after all of them, in a run whose steps were dropped.
        born, died, name = births.born.get(id, len(log)), births.died.get(id), births.names.get(id, "")
        place = log.declared.places.get(id, HOST)
        larger = grew.get(id, ())
        records.append(StorageRecord(id, capacity, place.space, origin, name, born, died, larger, *place[1:]))
    return records


class Walk(Births):
    """The walk that fills an index (`kvviz.trace.value_index.Index`): where values lie, too, and who used them last."""

    def __init__(self, index: Any) -> None:
        super().__init__(index.trace.log, index.rows)
        self.index = index
        self.contents: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.grew = self._growth()
        self.numbers = 0

    def run(self) -> None:
        """Walk from the first op to the last, and tell the lives of all storages."""
        index = self.index
        super().run()
        for storage in list(self.open):
            self._close(storage, None, index.moments - 1)
        lives = sorted(index.lives, key=lambda life: (life.first, life.storage))
        index.lives = [life._replace(bytes=self._bytes(life)) for life in lives]

    def _bind(self, number: int) -> None:
        super()._bind(number)
        index, frame = self.index, self.frames[number]
        for name, storage, _, how, shape, dtype, offset in frame.bindings:
            outer = None if frame.parent is None or how == "weight" else index.places.get(index.outer(number, name))
            # In the memory that it had outside it is laid out as it was there.
            kept = outer is not None and outer.storage == storage and outer.shape == shape
            strides = outer.strides if outer is not None and kept else None
            self._place((number, name), storage, -1, how, frame.opened, shape, dtype, strides, offset)

    def _row(self, step: int, row: Op, moment: int) -> None:
        index, places = self.index, self.index.places
        number, planned = row.frame, row.op
        node = planned.node
        index.step_of[number, node.index] = step
        when = step
        bodies = index.bodies.get((number, node.index)) if planned.control else None
        if bodies:
            # What the node itself reads, it reads when it is entered; the rest is read by the steps of its bodies.
            when = min(self.frames[bodies[0]].opened, step)
            for body in bodies:
                for name in index.scanned(body):
                    if (place := places.get((body, name))) is not None:
                        self.used[place.storage] = step
        for name in node.inputs:
            if name and (place := places.get((number, name))) is not None:
                self.used[place.storage] = max(when, self.used.get(place.storage, -1))
        for name, where in zip(node.outputs, row.outs):
            if where is None:
                continue
            storage, _, how, shape, dtype, offset, strides = where
            if how in (NEW, POOL, IN_PLACE):
                self._renew(storage)
            if how != PASSED:
                self.used[storage] = step
            if offset is None:
                # It begins where that begins which it overwrote, or is a view of.
                source = places.get((number, node.inputs[row.taken[0] if row.taken else 0]))
                offset = 0 if source is None else source.offset
            self._place((number, name), storage, how, "", step, shape, dtype, strides, offset)

    def _growth(self) -> dict[int, list[tuple[int, int]]]:
        """(moment, bytes) of every time that a storage was made larger."""
        index = self.index
        grew: dict[int, list[tuple[int, int]]] = {}
        for step, storage, more in index.trace.log.grew:
            moment = index.moment(step) if step < len(index.rows) else index.moments - 1
            grew.setdefault(storage, []).append((moment, more))
        return grew

    def _begin(self, storage: int, moment: int, born: int, name: str | None = None, elements: bool = False) -> None:
        if storage not in self.open:
            self.used[storage] = born
            self._renew(storage)
        super()._begin(storage, moment, born, name, elements)

    def _close(self, storage: int, step: int | None, moment: int) -> tuple[int, int]:
        first, born = super()._close(storage, step, moment)
        grew = tuple(event for event in self.grew.get(storage, ()) if first <= event[0] <= moment)
        self.index.lives.append(Life(storage, first, moment, born, self.used[storage], step, 0, grew))
        return first, born

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
