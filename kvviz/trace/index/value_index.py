"""Where every value of a trace lay, who read it, and how long every storage lived: computed once for all readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from weakref import proxy

import numpy as np

from kvviz.graph.model import Node
from kvviz.trace.index.frame_values import FrameValues
from kvviz.trace.index.lifetimes import FrameSteps, Key, Lives, LogValues, offsets
from kvviz.trace.outcome import Kinds
from kvviz.trace.reasons import looked_up
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import IN_PLACE, NEW, PASSED, POOL
from kvviz.trace.schema.log import Ints
from kvviz.trace.trace_data import noted


def last_uses(steps: FrameSteps, lives: Lives, entered: dict[int, int], scanned: list[tuple[int, int]]) -> Ints:
    """The last step that made or read every value; sets ``used`` of the lives. ``entered``: by step of a control node,
    the step at which its first body was opened. The node reads its inputs then, and the steps of its bodies read the
    rest; this does not count as reading a value. ``scanned``: (storage, step) of what a loop collected at its end."""
    values = steps.values
    there = steps.read >= 0
    value, step = steps.read[there], steps.reader()[there]
    enters = np.array([bool(op.control) for op in values.ops], bool)[step]
    last = values.step.copy()
    np.maximum.at(last, value[~enters], step[~enters])
    when = np.arange(len(values.ops))
    for node, opened in entered.items():
        when[node] = min(opened, node)
    made = np.flatnonzero((values.storage[: values.outputs] >= 0) & (values.how[: values.outputs] != PASSED))
    taken: Ints = np.array(scanned, np.int64).reshape(-1, 2)
    life = np.concatenate([lives.at(values.storage[value], step), lives.life[made], lives.at(*taken.T)])
    used = np.concatenate([when[step], values.step[made], taken[:, 1]])
    np.maximum.at(lives.used, life[life >= 0], used[life >= 0])
    return last


class Place(NamedTuple):
    """Where a value lay: ``offset`` bytes from the start of a storage. ``how``: a code of `kvviz.trace.schema.events`,
    -1 for a binding, whose kind is in ``bound`` (``"weight"``, ``"borrowed"`` …). ``step``: the maker, or the step
    before which its frame was opened."""

    storage: int
    how: int
    bound: str
    step: int
    shape: tuple[int, ...] | None
    dtype: Any
    strides: tuple[int, ...] | None
    offset: int = 0


class Index:
    """Answers to the usual questions about a trace.

    ``places``: where every value lay, computed on demand.
    ``bodies, before, outputs, scanned, outer``: how values cross frames; see `FrameValues`.
    ``by_run``: frames of every run.
    ``lives``: of all storages, in order of birth.
    ``last_use``: by value number, the last step that made or read it; bodies read what they captured themselves.
    ``mains``: the main frame of every run whose steps were kept.
    ``moments``: their total number.
    ``notes``: results that readers keep here.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace.apart()
        self.trace.caches = trace.caches
        self.rows = trace.log
        self.frames = trace.log.frames
        self.places = Places(self)
        self._flow = FrameValues(self.frames)
        self.bodies, self.before = self._flow.opened, self._flow.before
        self.outputs, self.scanned, self.outer = self._flow.outputs, self._flow.scanned, self._flow.outer
        self.by_run: dict[int, list[int]] = {}
        self.moments = len(self.rows) + len(trace.runs)
        self.notes: dict[Any, Any] = {}
        self.mains = {frame.run: i for i, frame in enumerate(self.frames) if frame.parent is None}
        for number, frame in enumerate(self.frames):
            self.by_run.setdefault(frame.run, []).append(number)
        self.values = LogValues(trace.log)
        self.lives = Lives(self.values, self.moments)
        self.steps = FrameSteps(self.values)
        entered, scanned = {}, []
        for node, bodies in self.bodies.items():
            if (step := self.step_of(*node)) is not None:
                entered[step] = self.frames[bodies[0]].opened
                places = (self.places.get((body, name)) for body in bodies for name in self.scanned(body))
                scanned += [(place.storage, step) for place in places if place is not None]
        self.last_use = last_uses(self.steps, self.lives, entered, scanned)

    def moment(self, step: int) -> int:
        return int(self.lives.moment[step])

    def step_of(self, frame: int, node_index: int) -> int | None:
        return self.rows.step_of(frame, node_index)

    def binding(self, run: int) -> int:
        """The moment before the first step of a run, when its inputs are bound."""
        return self.trace.runs[run].first + run

    def run_at(self, moment: int) -> int:
        return max(bisect_right(self.trace.runs, moment, key=lambda run: run.first + run.index) - 1, 0)

    def in_storage(self, storage: int) -> list[Key]:
        """Values that ever lay in a storage, in the order in which they were made."""
        return [self.values.key(number) for number in self.numbers_in(storage).tolist()]

    def in_life(self, number: int) -> list[int]:
        there = self.numbers_in(int(self.lives.storage[number]))
        return there[self.lives.life[there] == number].tolist()

    def sharing(self, key: Key) -> tuple[Key, ...]:
        """Values that share bytes with one, itself included, in the order in which they were made: those of its storage
        between two ops that overwrite all of it."""
        values, life = self.values, -1
        found: list[Key] = []
        last: list[Key] = []
        for value in self.numbers_in(self.places[key].storage).tolist():
            if self.lives.life[value] != life or values.how[value] in (NEW, POOL, IN_PLACE):
                found, life = [], self.lives.life[value]
            found.append(values.key(value))
            last = found if found[-1] == key else last
        return tuple(last)

    def numbers_in(self, storage: int) -> Ints:
        order, starts = self._by_storage
        return order[starts[storage] : starts[storage + 1]]

    @cached_property
    def offsets(self) -> Ints:
        return offsets(self.steps)

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.rows)

    @cached_property
    def _by_storage(self) -> tuple[Ints, Ints]:
        """The values storage by storage, in the order in which they were made, and where each storage begins."""
        order = self.values.order[np.argsort(self.values.storage[self.values.order], kind="stable")]
        numbers = np.arange(len(self.trace.log.storages) + 1)
        return order, np.searchsorted(self.values.storage[order], numbers)

    def readers(self, frame: int, name: str) -> Iterator[tuple[Node, int]]:
        for node in self.frames[frame].program.graph.consumers.get(name, ()):
            step = self.step_of(frame, node.index)
            if step is not None:
                yield node, step

    def path(self, frame: int) -> list[int]:
        found = [frame]
        while (parent := self.frames[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]

    def inner(self, frame: int, name: str) -> Key | None:
        """The value of a body that a control node returned under this name, or the initial value of a loop without
        iterations; None for what it made itself, such as scan outputs."""
        place = self.places[frame, name]
        node = self.rows[place.step].op.node
        found = self._flow.inner(frame, node, node.outputs.index(name))
        if found is None or found[0] != frame:
            return found
        given = self.places.get(found)
        return found if given is not None and given.storage == place.storage else None


class Places:
    def __init__(self, index: Index) -> None:
        self._index = proxy(index)
        self._known: dict[Key, Place] = {}

    def __getitem__(self, key: Key) -> Place:
        place = self.get(key)
        if place is None:
            raise KeyError(key)
        return place

    def get(self, key: Key | None) -> Place | None:
        if key is None:
            return None
        place = self._known.get(key) or self._found(*key)
        if place is not None:
            self._known[key] = place
        return place

    def items(self) -> Iterator[tuple[Key, Place]]:
        keys = dict.fromkeys(map(self._index.values.key, self._index.values.order.tolist()))
        return ((key, self[key]) for key in keys)

    def _found(self, frame: int, name: str) -> Place | None:
        index = self._index
        if not 0 <= frame < len(index.frames):
            return None
        position, slot = index.steps.ran[frame].makers.get(name, (-1, -1))
        if position >= 0:
            step = int(index.steps.of(frame)[position])
            where = index.rows.output(step, slot) if slot < index.values.counts[step] else None
            if where is not None:
                storage, _, how, shape, dtype, offset, strides = where
                offset = int(index.offsets[index.values.begins[step] + slot]) if offset is None else offset
                return Place(storage, how, "", step, shape, dtype, strides, offset)
        row = index.frames[frame]
        bind = row.bound(name)
        if bind is None:
            return None
        outer = None if row.parent is None or bind.how == "weight" else self.get(index.outer(frame, name))
        # In the memory that it had outside, it keeps its layout.
        kept = outer is not None and outer.storage == bind.storage and outer.shape == bind.shape
        strides = outer.strides if outer is not None and kept else None
        return Place(bind.storage, -1, bind.how, row.opened, bind.shape, bind.dtype, strides, bind.offset)


def index_of(trace: Trace) -> Index:
    """The index of a trace, kept as long as the trace does not grow."""
    return looked_up(trace, "index", lambda: Index(trace))


Curve = np.ndarray[Any, np.dtype[np.int64]]


def live_curve(index: Index) -> Curve:
    """Bytes alive at every moment: before each run, and while each step ran."""
    return noted(index.notes, "curve", lambda: _live_curve(index.lives, index.moments))


def _live_curve(lives: Lives, moments: int) -> Curve:
    curve = np.zeros(moments + 1, np.int64)
    np.add.at(curve, lives.first, lives.bytes)
    np.subtract.at(curve, lives.last + 1, lives.bytes)
    for life, grew in lives.grew.items():
        for moment, more in grew:
            curve[lives.first[life]] -= more
            curve[moment] += more
    return np.cumsum(curve)[:-1]
