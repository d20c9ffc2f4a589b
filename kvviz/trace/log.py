"""The log: columns that grow at their ends. What is written is never changed; `Op` events are made when somebody reads.

Columns of numbers take 8 bytes an entry, columns of objects a reference to something that many events share, so that
an op of one output takes some 150 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, overload

import numpy as np

from kvviz.collector import unwatched
from kvviz.interrupts import held_back
from kvviz.trace.declared import Declared
from kvviz.trace.events import FrameEvent, Op, Output
from kvviz.trace.storages import Storages

OP, FACTS, OUT, FORM, FREE = 6, 3, 4, 3, 2
"""Entries of one event in each column."""
# Ops that are kept once they were made, and how many are made together.
_KEPT, _BLOCK = 1 << 17, 1 << 8
_ABSENT = (-1, 0, 0, None, None, 0, None)


class Log(Sequence[Op]):
    """The ops of a trace, in the order in which they were completed, and the frames that they ran in.

    ``declared``: what only some producers tell.
    ``cuts``: how often ops were dropped: what was made of those before is out of date.
    ``allocated, copied, written, peak``: bytes in all; the peak is of the runs so far.
    ``later``: storages that died in a run whose steps were dropped: with the last op before it.
    ``grew``: ops at which storages became larger, the storages, and the bytes by which they did; their capacity is
      that at the end.
    ``write``: ``write(op)`` appends a tuple of all that `Op` has; its outputs are tuples of all that `Output` has.
    """

    __slots__ = (
        "_block",
        "_freed",
        "_ops",
        "_rows",
        "_steps",
        "_whole",
        "allocated",
        "copied",
        "cuts",
        "declared",
        "facts",
        "forms",
        "frames",
        "frees",
        "grew",
        "later",
        "numbers",
        "outs",
        "peak",
        "storages",
        "write",
        "written",
    )

    def __init__(self) -> None:
        self.frames: list[FrameEvent] = []
        self.storages = Storages()
        self.declared = Declared()
        self.allocated = self.copied = self.written = self.peak = self.cuts = 0
        self.later: set[int] = set()
        self.grew: list[tuple[int, int, int]] = []
        # Columns: only what packs a log into a file looks at them.
        self.outs = array("q")  # storage (-1: an absent output), generation, how, offset (-1: that of the input)
        self.forms: list[Any] = []  # shape, dtype, strides
        self.facts: list[Any] = []  # node, taken, masks
        self.frees = array("q")  # op, storage
        self.numbers = array("q")  # frame, allocated, copied, written, live, outputs so far
        # What was written down lately, as it came; `write` is all that a step pays.
        self._rows: list[tuple] = []
        self._freed: list[tuple[int, int]] = []
        self.write: Callable[[tuple], None] = self._rows.append
        self._whole = (0, 0, 0)  # ops, outputs and frees in the columns
        self._ops: list[Op] = []
        self._block: tuple[int, list[Op]] = (0, [])
        # By frame, the step at which each node ran, and how many ops were looked at for that.
        self._steps: tuple[list[dict[int, int]], int] = ([], 0)

    def free(self, storages: Sequence[int]) -> None:
        """Write down storages that died after the last op."""
        at = len(self) - 1
        del self._ops[at:]
        for storage in storages:
            self._freed.append((at, storage))

    def settle(self) -> None:
        """Put what was written down lately into the columns.

        Whatever is raised in here, even by a function that traces the lines, it is done whole or not at all.
        """
        if not self._rows and not self._freed:
            return
        with held_back():
            first, outs, frees = self._whole
            # Left by a try that was stopped.
            del self.numbers[first * OP :], self.facts[first * FACTS :], self.frees[frees * FREE :]
            del self.outs[outs * OUT :], self.forms[outs * FORM :]
            self._block = (0, [])
            died = self._pack(self._rows) if self._rows else []
            # Those that died with an op come before those that died after it.
            self.frees.extend(part for pair in sorted((*died, *self._freed), key=itemgetter(0)) for part in pair)
            whole = len(self.numbers) // OP, len(self.outs) // OUT, len(self.frees) // FREE
            self._whole, self._rows[:], self._freed[:] = whole, (), ()

    def _pack(self, rows: list[tuple]) -> list[tuple[int, int]]:
        """Put ops into the columns; gives (op, storage) of what died with them."""
        frames, ops, taken, masks, outs, freed, allocated, copied, written, live = zip(*rows)
        flat = [_ABSENT if out is None else out for found in outs for out in found]
        ends = (np.cumsum(list(map(len, outs))) + len(self.outs) // OUT).tolist()
        first = len(self.numbers) // OP
        self.numbers.frombytes(_side_by_side(frames, allocated, copied, written, live, ends).tobytes())
        self.facts += _in_turns(ops, taken, masks)
        if flat:
            storages, generations, hows, shapes, dtypes, offsets, strides = zip(*flat)
            known = [-1 if offset is None else offset for offset in offsets]
            self.outs.frombytes(_side_by_side(storages, generations, hows, known).tobytes())
            self.forms += _in_turns(shapes, dtypes, strides)
        return [(op, storage) for op, died in enumerate(freed, first) if died for storage in died]

    def __len__(self) -> int:
        return self._whole[0] + len(self._rows)

    @property
    def version(self) -> tuple[int, int, int]:
        """Something else whenever something was written."""
        self.settle()
        return self._whole

    @overload
    def __getitem__(self, index: int) -> Op: ...
    @overload
    def __getitem__(self, index: slice) -> list[Op]: ...
    def __getitem__(self, index: int | slice) -> Op | list[Op]:
        if self._rows or self._freed:
            self.settle()
        made, size = self._ops, self._whole[0]
        if len(made) == size:
            return made[index]
        if size <= _KEPT:
            with unwatched():
                made += self._made(len(made), size)
            return made[index]
        if isinstance(index, slice):
            return list(self._between(*index.indices(size)))
        if not -size <= index < size:
            raise IndexError(index)
        return self._of_many(index % size)

    def __iter__(self) -> Iterator[Op]:
        self.settle()
        return iter(self[:]) if len(self) <= _KEPT else self._between(0, len(self), 1)

    def _between(self, first: int, stop: int, step: int) -> Iterator[Op]:
        if step != 1:
            yield from map(self._of_many, range(first, stop, step))
            return
        for at in range(first, stop, _BLOCK):
            yield from self._made(at, min(at + _BLOCK, stop))

    def _of_many(self, index: int) -> Op:
        """An op of a log that is too long to keep all of them. Who asks for ops in order gets them from a block."""
        first, block = self._block
        if not first <= index < first + len(block):
            in_order = index == first + len(block)
            made = self._made(index, min(index + _BLOCK, self._whole[0])) if in_order else (self._one(index),)
            first, block = self._block = index, list(made)
        return block[index - first]

    def _one(self, index: int) -> Op:
        frame, *sums, end = self.numbers[index * OP : (index + 1) * OP]
        begin = self.numbers[index * OP - 1] if index else 0
        op, taken, masks = self.facts[index * FACTS : (index + 1) * FACTS]
        freed = tuple(storage for _, storage in self.died(index, index + 1))
        return Op(frame, op, taken, masks, tuple(map(self._output, range(begin, end))), freed, *sums)

    def output(self, index: int, at: int) -> Output | None:
        """One output of an op. Of a long log the op is not made with it."""
        if index >= self._whole[0] or len(self._ops) == self._whole[0]:
            return self[index].outs[at]
        return self._output(at + (self.numbers[index * OP - 1] if index else 0))

    def _output(self, at: int) -> Output | None:
        storage, generation, how, offset = self.outs[at * OUT : (at + 1) * OUT]
        shape, dtype, strides = self.forms[at * FORM : (at + 1) * FORM]
        return (
            None
            if storage < 0
            else Output(storage, generation, how, shape, dtype, None if offset < 0 else offset, strides)
        )

    def _made(self, first: int, stop: int) -> Iterator[Op]:
        """The ops from one place to another."""
        numbers = self.numbers[first * OP : stop * OP].tolist()
        begin = self.numbers[first * OP - 1] if first else 0
        ends = numbers[OP - 1 :: OP]
        places, forms = (column[begin * w : ends[-1] * w] for column, w in ((self.outs, OUT), (self.forms, FORM)))
        offsets = [None if offset < 0 else offset for offset in places[3::OUT]]
        columns = (*(places[k::OUT] for k in range(3)), forms[::FORM], forms[1::FORM], offsets, forms[2::FORM])
        outs = [None if out.storage < 0 else out for out in map(Output._make, zip(*columns))]
        parts = [tuple(outs[a - begin : b - begin]) for a, b in pairwise((begin, *ends))]
        facts = self.facts[first * FACTS : stop * FACTS]
        sums = (numbers[k::OP] for k in range(1, OP - 1))
        freed = self._died(first, stop)
        return map(Op._make, zip(numbers[::OP], *(facts[k::FACTS] for k in range(FACTS)), parts, freed, *sums))

    def _died(self, first: int, stop: int) -> list[tuple[int, ...]]:
        """Storages that died with each of these ops or after it."""
        found: list[tuple[int, ...]] = [()] * (stop - first)
        for op, storage in self.died(first, stop):
            found[op - first] += (storage,)
        return found

    def step_of(self, frame: int, node_index: int) -> int | None:
        """The step at which a node of a frame ran, or None if it has not."""
        steps, known = self._steps
        if known < len(self):
            self.settle()
            steps += ({} for _ in range(len(steps), len(self.frames)))
            ran = zip(self.numbers[known * OP :: OP], self.facts[known * FACTS :: FACTS])
            for step, (number, op) in enumerate(ran, known):
                steps[number][op.node.index] = step
            self._steps = steps, len(self)
        return steps[frame].get(node_index) if frame < len(steps) else None

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the numbers of all ops (frame, allocated, copied, written, live, outputs so far), one row an op,
        and of all outputs (storage, generation, how, offset), one row an output."""
        self.settle()
        return np.array(self.numbers, np.int64).reshape(-1, OP), np.array(self.outs, np.int64).reshape(-1, OUT)

    def died(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """(op, storage) of what died from one place to another."""
        self.settle()
        frees = self.frees
        low = bisect_left(range(len(frees) // FREE), first, key=lambda at: frees[at * FREE]) * FREE
        for at in range(low, len(frees), FREE):
            if frees[at] >= stop:
                break
            yield frees[at], frees[at + 1]

    def columns_are_whole(self) -> None:
        """Take note of what is in the columns, after they were changed from outside."""
        self._whole = len(self.numbers) // OP, len(self.outs) // OUT, len(self.frees) // FREE

    def column(self, name: str) -> Sequence[int]:
        """One number of every op: ``frame``, ``allocated``, ``copied``, ``written`` or ``live``."""
        self.settle()
        return self.numbers[("frame", "allocated", "copied", "written", "live").index(name) :: OP]

    def cut(self, ops: int, frames: int) -> None:
        """Drop the last ops and the frames that they ran in."""
        self.settle()
        self.cuts += 1
        last = self.numbers[ops * OP - 1] if ops else 0
        del self.outs[last * OUT :], self.forms[last * FORM :]
        del self.facts[ops * FACTS :], self.numbers[ops * OP :], self.frames[frames:]
        del self.frees[bisect_left(range(len(self.frees) // FREE), ops, key=lambda at: self.frees[at * FREE]) * FREE :]
        self.grew = [(min(at, ops), storage, more) for at, storage, more in self.grew]
        self.declared.cut(ops)
        del self._ops[ops:]
        self._block = (0, [])
        steps, known = self._steps
        del steps[frames:]
        self._steps = steps, min(known, ops)
        self.columns_are_whole()


def _side_by_side(*columns: Sequence[int]) -> np.ndarray:
    made = np.empty((len(columns[0]), len(columns)), np.int64)
    for place, column in enumerate(columns):
        made[:, place] = array("q", column)
    return made


def _in_turns(*columns: Sequence[Any]) -> list[Any]:
    made: list[Any] = [None] * (len(columns) * len(columns[0]))
    for place, column in enumerate(columns):
        made[place :: len(columns)] = column
    return made
