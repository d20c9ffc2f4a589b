"""Every value of a log as a number, what every step reads, and the lifetime of every storage, from the log's columns.

Invariant: at every step the storages alive here have as many bytes as the log says were alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np

from kvviz.trace.records import StorageRecord
from kvviz.trace.schema.declared import HOST
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.schema.events import ORIGINS, POOL, VIEW, Bind, OpNode
from kvviz.trace.schema.log import COLUMNS, OUT, Ints, Log

Key = tuple[int, str]
"""A value: number of its frame, and its name there."""


class Life(NamedTuple):
    """A storage from its birth, or from its reuse by a pool, to its death.

    ``first`` and ``last`` are moments: one before each run, when its inputs are bound, and one for each step. ``born``
    and ``freed`` are steps, ``used`` is the last step that read or wrote it; ``freed`` is None while it lives.
    ``bytes`` is its final capacity, ``grew`` has (moment, bytes) of every growth.
    """

    storage: int
    first: int
    last: int
    born: int
    used: int
    freed: int | None
    bytes: int
    grew: tuple[tuple[int, int], ...] = ()


class LogValues:
    """The values of a log by number: the outputs of its ops, in order, then the bindings of its frames.

    ``ops, frame``: of every step.
    ``form``: of every output, its entry in the log's table.
    ``begins, counts``: of every step, the number of its first output, and how many it has.
    ``outputs``: their total number.
    ``binds, bind_frames``: bindings and their frames.
    ``storage``: -1 for an absent output.
    ``step``: the maker, or the step before which the frame was opened.
    ``how``: a code of `kvviz.trace.schema.events`, -1 for bindings.
    ``order``: existing values in the order in which they were made.
    """

    def __init__(self, log: Log) -> None:
        numbers, outs = log.tables()
        self.log = log
        nodes = log.nodes.entries
        self.ops: list[OpNode] = [nodes[node] for node in numbers[:, 1].tolist()]
        self.frame: Ints = numbers[:, 0].copy()
        self.counts: Ints = np.diff(numbers[:, -1], prepend=0)
        self.begins: Ints = numbers[:, -1] - self.counts
        self.form: Ints = outs[:, 4].copy()
        self.outputs = len(outs)
        given = [frame.bindings for frame in log.frames]
        self.binds: list[Bind] = list(chain.from_iterable(given))
        self.bind_frames: Ints = np.repeat(np.arange(len(given)), [len(binds) for binds in given])
        opened: Ints = np.array([frame.opened for frame in log.frames], np.int64)
        steps = np.repeat(np.arange(len(numbers)), self.counts)
        bound: Ints = np.array([bind.storage for bind in self.binds], np.int64)
        self.storage: Ints = np.concatenate([outs[:, 0], bound])
        self.step: Ints = np.concatenate([steps, opened[self.bind_frames]])
        self.how: Ints = np.concatenate([outs[:, 2], np.full(len(bound), -1)])
        late = 2 * self.step
        late[: self.outputs] += 1
        order = np.argsort(late, kind="stable")
        self.order: Ints = order[self.storage[order] >= 0]

    def key(self, value: int) -> Key:
        if value >= self.outputs:
            at = value - self.outputs
            return int(self.bind_frames[at]), self.binds[at].name
        step = int(self.step[value])
        return int(self.frame[step]), self.ops[step].node.outputs[value - int(self.begins[step])]

    def made_in(self, first: int, last: int) -> slice:
        return slice(*(int(self.begins[step]) if step < len(self.begins) else self.outputs for step in (first, last)))

    @cached_property
    def unshaped(self) -> list[int]:
        """Numbers of sequences and optionals."""
        shapeless = np.array([shape is None for shape, *_ in self.log.forms.entries], bool)[self.form]
        bound = np.array([bind.shape is None for bind in self.binds], bool)
        return np.flatnonzero(np.concatenate([shapeless, bound]) & (self.storage >= 0)).tolist()

    @cached_property
    def sizes(self) -> Ints:
        forms = [0 if dtype is None else nbytes(shape, dtype) for shape, dtype, _ in self.log.forms.entries]
        bound = [nbytes(bind.shape, bind.dtype) for bind in self.binds]
        return np.concatenate([np.array(forms, np.int64)[self.form], np.array(bound, np.int64)])


class Ran:
    """Ops that ran one after the other, in one frame or several.

    ``order``: node indices in the model.
    ``makers``: by value name, the position of the op that made it, and which output it is.
    ``reads``: (reader, input, maker, output) for each input that an earlier op made.
    ``given``: (reader, input) of the others, and ``names`` their names.
    """

    __slots__ = ("given", "makers", "names", "order", "reads")

    def __init__(self, ops: tuple[OpNode, ...]) -> None:
        self.order = [op.node.index for op in ops]
        self.makers: dict[str, tuple[int, int]] = {}
        self.names: list[str] = []
        reads: list[tuple[int, ...]] = []
        given: list[tuple[int, int]] = []
        for position, op in enumerate(ops):
            for place, name in enumerate(op.node.inputs):
                if name and name in self.makers:
                    reads.append((position, place, *self.makers[name]))
                else:
                    given.append((position, place))
                    self.names.append(name)
            self.makers.update((name, (position, slot)) for slot, name in enumerate(op.node.outputs))
        self.reads: Ints = np.array(reads, np.int64).reshape(-1, 4)
        self.given: Ints = np.array(given, np.int64).reshape(-1, 2)


NO_INPUT, UNMADE = -1, -2


class FrameSteps:
    """The steps of every frame, in order, and what they read.

    ``ran``: the ops, by frame.
    ``read``: of every input of every step, in order, the number of the value; `NO_INPUT` for an input that is left out,
      `UNMADE` for a value that does not exist.
    """

    def __init__(self, values: LogValues) -> None:
        self.values = values
        count = len(values.log.frames)
        self._steps: Ints = np.argsort(values.frame, kind="stable")
        self._starts: Ints = np.searchsorted(values.frame[self._steps], np.arange(count + 1))
        alike: dict[tuple[OpNode, ...], list[int]] = {}
        for frame in range(count):
            ops = tuple(map(values.ops.__getitem__, self.of(frame).tolist()))
            alike.setdefault(ops, []).append(frame)
        starts = self.begins()
        self.read = np.full(int(starts[-1]), UNMADE, np.int32)
        known: dict[int, Ran] = {}
        bounds = np.searchsorted(values.bind_frames, np.arange(count + 1)).tolist()
        for ops, frames in alike.items():
            ran = Ran(ops)
            known.update(dict.fromkeys(frames, ran))
            begins = starts[steps := np.stack([self.of(frame) for frame in frames])]
            reader, place, maker, slot = ran.reads.T
            made = steps[:, maker]
            found = np.where(slot < values.counts[made], values.begins[made] + slot, UNMADE)
            self.read[begins[:, reader] + place] = found
            reader, place = ran.given.T
            given = [self._given(ran.names, *bounds[frame : frame + 2]) for frame in frames]
            self.read[begins[:, reader] + place] = given
        self.ran = [known[frame] for frame in range(count)]
        self.read[np.append(values.storage, [UNMADE, 0])[self.read] < 0] = UNMADE

    def of(self, frame: int) -> Ints:
        return self._steps[self._starts[frame] : self._starts[frame + 1]]

    def begins(self) -> Ints:
        """Of every step, the place of its first input among those that are read, and the number of all."""
        log = self.values.log
        sizes = np.array([len(op.node.inputs) for op in log.nodes.entries], np.int64)
        return np.append(0, np.cumsum(sizes[np.array(log.column("node"), np.int64)]))

    def reader(self) -> Ints:
        """Of every input, the step that reads it."""
        return np.repeat(np.arange(len(self.values.ops)), np.diff(self.begins()))

    def _given(self, names: list[str], first: int, stop: int) -> list[int]:
        """The numbers of the bindings of a frame with these names."""
        values = self.values
        numbers = {values.binds[at].name: at + values.outputs for at in range(first, stop)} | {"": NO_INPUT}
        return [numbers.get(name, UNMADE) for name in names]


def offsets(steps: FrameSteps) -> Ints:
    """By value, the bytes from the start of its storage to where it begins. If that is not recorded of an output, it
    begins where the input begins that its op viewed or overwrote, and so on to a value whose offset is recorded."""
    values, log = steps.values, steps.values.log
    # The log may have grown since.
    made = np.array(log.outs[COLUMNS["out"].index("offset") :: OUT][: values.outputs], np.int64)
    chained = np.flatnonzero((made < 0) & (values.storage[: values.outputs] >= 0))
    found = np.concatenate([made, np.array([bind.offset for bind in values.binds], np.int64)])
    step = values.step[chained]
    refusal = np.array(log.column("refusal"), np.int64)[step]
    taken = np.array([taken[0] if taken else 0 for taken, _ in log.refusals.entries], np.int64)[refusal]
    source = steps.read[steps.begins()[step] + taken]
    found[chained] = np.where(source < 0, 0, found[source])
    before, further = np.arange(len(chained)), np.flatnonzero(found[chained] < 0)
    before[further] = np.searchsorted(chained, source[further])
    # All of them follow twice as many views at a time, until each is at the last one.
    while not np.array_equal(before, before[before]):
        before = before[before]
    found[chained] = found[chained[before]]
    return found


class Lives(Sequence[Life]):
    """The lives of the storages of a log, in order of birth.

    ``storage, first, last, born, freed, used, bytes``: by life; ``freed`` is -1 while it lives.
    ``weights``: which are of weights.
    ``begun``: the value with which it began, -1 for a weight.
    ``moment``: by step.
    ``made``: the moment at which each value was made.
    ``life``: by value, the number of the life in which it was made; -1 for an absent output.
    """

    def __init__(self, values: LogValues, moments: int) -> None:
        log, size = values.log, len(values.ops) + 1
        self.values = values
        frees = np.array(log.frees, np.int64).reshape(-1, 2)
        frees = frees[frees[:, 0] >= 0]
        # The time of a storage has one part up to each free, and one for the rest.
        self._ends: Ints = np.sort(frees[:, 1] * size + frees[:, 0])
        self._size = size
        parts = np.full(len(values.storage), -1)
        parts[values.order] = self._part(values.storage[values.order], values.step[values.order])
        begun: Ints = np.full(len(self._ends) + len(log.storages), -2)
        begun[parts[values.order[::-1]]] = values.order[::-1]
        weights = np.array(log.storages.origins) == ORIGINS.index("weights")
        begun[self._part(np.flatnonzero(weights), 0)] = -1
        elements = self._with_elements(parts, begun)
        there = np.flatnonzero(begun > -2)
        starts = self._part(np.arange(len(log.storages)), 0)
        self.storage: Ints = np.searchsorted(starts, there, "right") - 1
        self.begun: Ints = begun[there]
        ends = np.append(self._ends, -1)[there - self.storage]
        self.freed: Ints = np.where(ends // size == self.storage, ends % size, -1)
        self.born: Ints = np.where(self.begun < 0, -1, np.append(values.step, -1)[self.begun])
        runs: Ints = np.array([frame.run for frame in log.frames] or [0], np.int64)
        self.moment: Ints = np.arange(size - 1) + runs[values.frame] + 1
        inner: Ints = np.array([frame.run + (frame.parent is not None) for frame in log.frames], np.int64)
        self.made: Ints = np.append(self.moment[values.step[: values.outputs]], values.step[values.outputs :])
        self.made[values.outputs :] += inner[values.bind_frames]
        self.first: Ints = np.where(self.begun < 0, 0, np.append(self.made, 0)[self.begun])
        self.last: Ints = np.where(self.freed < 0, moments - 1, np.append(self.moment, 0)[self.freed])
        order = np.lexsort((self.storage, self.first))
        for name in ("storage", "begun", "freed", "born", "first", "last"):
            setattr(self, name, getattr(self, name)[order])
        self._lives: Ints = np.full(len(begun) + 1, -1)
        self._lives[there[order]] = np.arange(len(order))
        self.life: Ints = self._lives[parts]
        self.elements = {int(self._lives[part]) for part in elements}
        self.used = self.born.copy()
        self.weights: np.ndarray[Any, np.dtype[np.bool_]] = weights[self.storage]
        self.bytes: Ints = np.array(log.storages.capacities, np.int64)[self.storage]
        self.grew: dict[int, tuple[tuple[int, int], ...]] = {}
        grown: dict[int, list[int]] = {storage: [] for _, storage, _ in log.grew}
        for life in np.flatnonzero(np.isin(self.storage, list(grown))).tolist():
            grown[int(self.storage[life])].append(life)
        for step, storage, more in log.grew:
            at = int(self.moment[step]) if step < size - 1 else moments - 1
            for life in grown[storage]:
                if self.first[life] <= at <= self.last[life]:
                    self.grew[life] = (*self.grew.get(life, ()), (at, more))
                self.bytes[life] -= more * (at > self.last[life])

    def _part(self, storage: Ints | int, step: Ints | int) -> Ints:
        return np.searchsorted(self._ends, storage * self._size + step) + storage

    def at(self, storage: Ints | int, step: Ints | int) -> Ints:
        """Numbers of the lives that storages have at steps; -1 for a dead one."""
        return self._lives[self._part(storage, step)]

    def _with_elements(self, parts: Ints, begun: Ints) -> list[int]:
        """Let the elements of a sequence, which have no name of their own, begin with it; returns their parts of time.
        So does a value of a run whose steps were dropped, if it is no element."""
        values, found = self.values, []
        if not values.unshaped:
            return []
        rank = np.zeros(len(parts), np.int64)
        rank[values.order] = np.arange(len(values.order))
        anonymous = self._anonymous()
        for value in sorted(values.unshaped, key=rank.__getitem__):
            storage = int(values.storage[value]) + 1
            while begun[parts[value]] == value and storage in anonymous:
                anonymous.discard(storage)
                part = int(self._part(storage, int(values.step[value])))
                if begun[part] == -2 or (begun[part] >= 0 and rank[begun[part]] > rank[value]):
                    begun[part] = value
                    found.append(part)
                storage += 1
        return found

    def _anonymous(self) -> set[int]:
        values = self.values
        # A former element may be viewed later, or handed out by a pool and bound to a frame.
        first: dict[int, tuple[int, int]] = {}
        for value in np.flatnonzero(values.storage[: values.outputs] >= 0)[::-1].tolist():
            first[int(values.storage[value])] = int(values.step[value]), int(values.how[value])
        named = {storage for storage, (_, how) in first.items() if how not in (POOL, VIEW)}
        for frame in values.log.frames:
            given = (bind.storage for bind in frame.bindings)
            named.update(storage for storage in given if frame.opened <= first.get(storage, (frame.opened,))[0])
        return set(range(len(values.log.storages))) - named

    def __len__(self) -> int:
        return len(self.storage)

    @overload
    def __getitem__(self, index: int) -> Life: ...
    @overload
    def __getitem__(self, index: slice) -> list[Life]: ...
    def __getitem__(self, index: int | slice) -> Life | list[Life]:
        if isinstance(index, slice):
            return list(self.some(np.arange(len(self))[index]))
        return next(self.some(np.arange(len(self))[[index]]))

    def __iter__(self) -> Iterator[Life]:
        return self.some(np.arange(len(self)))

    def some(self, numbers: Ints) -> Iterator[Life]:
        freed = [None if step < 0 else step for step in self.freed[numbers].tolist()]
        columns = (self.storage, self.first, self.last, self.born, self.used)
        facts = (column[numbers].tolist() for column in columns)
        grew = (self.grew.get(number, ()) for number in numbers.tolist())
        return map(Life._make, zip(*facts, freed, self.bytes[numbers].tolist(), grew))

    def alive(self, moment: int) -> list[Life]:
        return list(self.some(np.flatnonzero((self.first <= moment) & (self.last >= moment))))


def storage_records(log: Log) -> list[StorageRecord]:
    values = LogValues(log)
    lives = Lives(values, len(log))
    total, steps = len(log.storages), len(log)
    # Storages of no known step were made after all of them, in a run whose steps were dropped.
    born, died = np.full(total, steps), np.full(total, -1)
    before = np.where((lives.begun >= values.outputs) & (lives.born == 0), -1, lives.born)
    before[list(lives.elements)] = lives.born[list(lives.elements)]
    born[lives.storage[::-1]] = before[::-1]
    died[lives.storage] = lives.freed
    names = _names(values, lives)
    grew: dict[int, tuple[tuple[int, int], ...]] = {}
    for index, grown, more in log.grew:
        grew[grown] = (*grew.get(grown, ()), (index, more))
    records = []
    for (id, capacity, origin), name, first, last in zip(log.storages, names, born.tolist(), died.tolist()):
        place = log.declared.places.get(id, HOST)
        freed = None if last < 0 else last
        record = StorageRecord(id, capacity, place.space, origin, name, first, freed, grew.get(id, ()), *place[1:])
        records.append(record)
    return records


def _names(values: LogValues, lives: Lives) -> list[str]:
    """The value that each storage was made for; empty if unknown."""
    bound = np.arange(values.outputs, len(values.storage))
    chosen = np.concatenate([bound, lives.begun[lives.begun >= 0]])
    storages = np.concatenate([values.storage[bound], lives.storage[lives.begun >= 0]])
    late = 2 * values.step[chosen] + (chosen < values.outputs)
    order = np.argsort(late, kind="stable")[::-1]
    namers = np.full(len(values.log.storages), -1)
    namers[storages[order]] = chosen[order]
    # A storage whose first value is a view, or comes from the pool, existed before, if only as an element of a
    # sequence.
    hidden = (namers < 0) | np.isin(np.append(values.how, -1)[namers], (POOL, VIEW))
    return ["" if skip else values.key(value)[1] for value, skip in zip(namers.tolist(), hidden.tolist())]
