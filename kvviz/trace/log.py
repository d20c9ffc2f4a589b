"""The log: columns that grow at their ends. What is written is never changed; `Op` events are made when somebody reads.

Columns of numbers take 8 bytes an entry, columns of objects a reference to something that many events share, so that
an op of one output takes some 150 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, overload

from kvviz.trace.events import FrameEvent, Op, Output
from kvviz.trace.storages import Storages

OP, FACTS, OUT, FORM, FREE = 6, 3, 4, 3, 2
"""Entries of one event in each column."""
_KEPT = 1 << 15


class Log(Sequence[Op]):
    """The ops of a trace, in the order in which they were completed, and the frames that they ran in.

    Attributes
    ----------
    frames : list of FrameEvent
    storages : Storages
    allocated, copied, written, peak : int
        Bytes in all; the peak is of the runs so far.
    later : set of int
        Storages that died in a run whose steps were dropped: with the last op before it.
    """

    __slots__ = (
        "_kept",
        "allocated",
        "copied",
        "facts",
        "forms",
        "frames",
        "frees",
        "later",
        "numbers",
        "outs",
        "peak",
        "storages",
        "written",
    )

    def __init__(self) -> None:
        self.frames: list[FrameEvent] = []
        self.storages = Storages()
        self.allocated = self.copied = self.written = self.peak = 0
        self.later: set[int] = set()
        # Columns: only what packs a log into a file looks at them.
        self.outs = array("q")  # storage (-1: an absent output), generation, how, offset (-1: that of the input)
        self.forms: list[Any] = []  # shape, dtype, strides
        self.facts: list[Any] = []  # node, taken, masks
        self.frees = array("q")  # op, storage
        self.numbers = array("q")  # frame, allocated, copied, written, live, outputs so far
        self._kept: dict[int, Op] = {}

    def add(
        self,
        frame: int,
        op: Any,
        taken: tuple[int, ...],
        masks: tuple[tuple[int, int], ...],
        outs: Sequence[tuple | None],
        freed: Sequence[int],
        allocated: int,
        copied: int,
        written: int,
        live: int,
    ) -> None:
        """Write an op down; see `Op`."""
        numbers, forms = self.outs, self.forms
        for out in outs:
            if out is None:
                numbers.extend((-1, 0, 0, 0))
                forms.extend((None, None, None))
            else:
                storage, generation, how, shape, dtype, offset, strides = out
                numbers.extend((storage, generation, how, -1 if offset is None else offset))
                forms.extend((shape, dtype, strides))
        self.facts.extend((op, taken, masks))
        if freed:
            self.free(freed, len(self))
        self.numbers.extend((frame, allocated, copied, written, live, len(numbers) >> 2))

    def free(self, storages: Sequence[int], op: int | None = None) -> None:
        """Write down that storages died, with an op or, as a rule, after the last one."""
        at = len(self) - 1 if op is None else op
        self._kept.pop(at, None)
        for storage in storages:
            self.frees.extend((at, storage))

    def __len__(self) -> int:
        return len(self.numbers) // OP

    @property
    def version(self) -> tuple[int, int]:
        """Something else whenever something was written."""
        return len(self.numbers), len(self.frees)

    @overload
    def __getitem__(self, index: int) -> Op: ...
    @overload
    def __getitem__(self, index: slice) -> list[Op]: ...
    def __getitem__(self, index: int | slice) -> Op | list[Op]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        kept = self._kept
        found = kept.get(index)
        if found is None:
            size = len(self)
            if not -size <= index < size:
                raise IndexError(index)
            index %= size
            found = kept.get(index)
            if found is None:
                if len(kept) >= _KEPT:
                    kept.clear()
                found = kept[index] = self._made(index)
        return found

    def __iter__(self) -> Iterator[Op]:
        return map(self.__getitem__, range(len(self)))

    def _made(self, index: int) -> Op:
        at = index * OP
        frame, allocated, copied, written, live, last = self.numbers[at : at + OP]
        first = self.numbers[at - 1] if index else 0
        node, taken, masks = self.facts[index * FACTS : (index + 1) * FACTS]
        outs = tuple([self._out(number) for number in range(first, last)])
        return Op(frame, node, taken, masks, outs, self.freed(index), allocated, copied, written, live)

    def _out(self, number: int) -> Output | None:
        storage, generation, how, offset = self.outs[number * OUT : (number + 1) * OUT]
        if storage < 0:
            return None
        shape, dtype, strides = self.forms[number * FORM : (number + 1) * FORM]
        return Output(storage, generation, how, shape, dtype, None if offset < 0 else offset, strides)

    def freed(self, index: int) -> tuple[int, ...]:
        """Storages that died with an op or after it."""
        free = self.frees
        at = bisect_left(_Every(free), index)
        found = []
        while at * FREE < len(free) and free[at * FREE] == index:
            found.append(free[at * FREE + 1])
            at += 1
        return tuple(found)

    def column(self, name: str) -> Sequence[int]:
        """One number of every op: ``frame``, ``allocated``, ``copied``, ``written`` or ``live``."""
        return self.numbers[("frame", "allocated", "copied", "written", "live").index(name) :: OP]

    def cut(self, ops: int, frames: int) -> None:
        """Drop the last ops and frames."""
        last = self.numbers[ops * OP - 1] if ops else 0
        del self.outs[last * OUT :], self.forms[last * FORM :]
        del self.facts[ops * FACTS :], self.numbers[ops * OP :], self.frames[frames:]
        del self.frees[bisect_left(_Every(self.frees), ops) * FREE :]
        self._kept.clear()


class _Every(Sequence[int]):
    """The ops of the column of frees, to be searched."""

    def __init__(self, free: array[int]) -> None:
        self._free = free

    def __len__(self) -> int:
        return len(self._free) // FREE

    def __getitem__(self, index: Any) -> Any:
        return self._free[index * FREE]
