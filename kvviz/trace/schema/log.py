"""The log: append-only columns. Events are made from them when somebody reads.

All columns are 8-byte integers (`COLUMNS`); a file has each in the smallest size that holds it. Facts that many events
share have a number in a table: nodes, refusals (positions taken, masks), and forms (shape, element type, strides). An
op of one output takes some 120 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, overload

import numpy as np

from kvviz.collector import unwatched
from kvviz.interrupts import held_back
from kvviz.trace.schema.declared import Declared
from kvviz.trace.schema.events import FrameEvent, Op, OpNode, Output, Storages

COLUMNS = {
    "op": ("frame", "node", "refusal", "allocated", "copied", "written", "live", "outputs"),
    "out": ("storage", "generation", "how", "offset", "form"),
    "free": ("op", "storage"),
}
"""The columns of ops, of their outputs, and of storages that died.

``outputs`` is cumulative. ``storage`` is -1 for an absent output; ``offset`` is -1 if an output begins where the viewed
or overwritten input began.
"""
OP, OUT, FREE = (len(columns) for columns in COLUMNS.values())
# Number of ops that are kept once made, and number that are made together.
_KEPT, _BLOCK = 1 << 17, 1 << 8
# Orders of frames that are kept to find equal ones, and number of ops that are looked at together.
_ALIKE, _LOOKED = 64, 1 << 16
_ABSENT = (-1, 0, 0, None, None, 0, None)


Ints = np.ndarray[Any, np.dtype[np.int64]]


def distinct(numbers: Ints, limit: int) -> tuple[Ints, Ints]:
    """The distinct values among numbers below a limit, ascending, and the index among them of each number. A table of
    all possible numbers takes a tenth of the time of sorting, unless there are far fewer."""
    if limit > 8 * len(numbers) + (1 << 16):
        found, places = np.unique(numbers, return_inverse=True)
        return found, places
    there = np.zeros(limit, bool)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


class Table(dict[Any, int]):
    """The distinct entries that a column refers to, by number."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        self.entries: list[Any] = list(entries)
        if self.entries:
            self.update((entry, number) for number, entry in enumerate(self.entries))

    def __missing__(self, entry: Any) -> int:
        self.entries.append(entry)
        self[entry] = number = len(self.entries) - 1
        return number

    def numbers(self, entries: Iterable[Any]) -> list[int]:
        return list(map(self.__getitem__, entries))


class Log(Sequence[Op]):
    """The ops of a trace, in the order in which they were completed, and the frames that they ran in.

    ``declared``: see `Declared`.
    ``cuts``: how often ops were dropped, which invalidates derived data.
    ``ops, outs, frees``: the columns of `COLUMNS`, entry by entry.
    ``nodes, refusals, forms``: the tables.
    ``allocated, copied, written, peak``: bytes in all; the peak is of the runs so far.
    ``later``: storages that died in a run whose steps were dropped, with the last op before it.
    ``grew``: ops at which storages grew, the storages, and by how many bytes; capacities are final. ``write(op)``
      appends a tuple of the fields of `Op`, whose outputs are tuples of the fields of `Output`.
    """

    def __init__(self) -> None:
        self.frames: list[FrameEvent] = []
        self.storages = Storages()
        self.declared = Declared()
        self.allocated = self.copied = self.written = self.peak = self.cuts = 0
        self.later: set[int] = set()
        self.grew: list[tuple[int, int, int]] = []
        self.ops, self.outs, self.frees = array("q"), array("q"), array("q")
        self.nodes, self.refusals, self.forms = Table(), Table(), Table()
        # Recent ops as they came; a step costs one `write`.
        self._rows: list[Any] = []
        self._freed: list[tuple[int, int]] = []
        self.write: Callable[[tuple], None] = self._rows.append
        self._more = 0  # how many rows more than entries `write_done` got
        self._whole = (0, 0, 0)  # ops, outputs and frees in the columns
        self._made_ops: list[Op] = []
        self._block: tuple[int, list[Op]] = (0, [])
        # By frame, its first step, and by node how many steps later it ran; frames that ran alike share that.
        self._ran: list[tuple[int, dict[int, int]]] = []
        self._alike: dict[tuple[tuple[int, ...], bytes], dict[int, int]] = {}
        self._grown: set[int] = set()  # frames that share it no longer, as they ran on
        self._looked_at = 0  # ops

    def free(self, storages: Sequence[int]) -> None:
        at = len(self) - 1
        del self._made_ops[at:]
        for storage in storages:
            self._freed.append((at, storage))

    def write_done(self, done: Any) -> None:
        """Append many ops: ``done`` has a length, and columns, which are made when somebody reads."""
        self._rows.append(done)
        self._more += len(done) - 1

    def settle(self) -> None:
        """Put recent ops into the columns, completely or not at all, whatever is raised in here, even by a tracing
        function."""
        if not self._rows and not self._freed:
            return
        with held_back():
            first, outs, frees = self._whole
            # Left by a try that was stopped.
            del self.ops[first * OP :], self.outs[outs * OUT :], self.frees[frees * FREE :]
            self._block = (0, [])
            died: list[Any] = []
            for kind, some in groupby(self._rows, type):
                rows = list(some)
                died += [self._pack(rows)] if kind is tuple else map(self._pack_done, rows)
            together = np.concatenate([np.array(part, np.int64).reshape(-1, FREE) for part in (*died, self._freed)])
            # Those that died with an op come before those that died after it.
            self.frees.frombytes(together[together[:, 0].argsort(kind="stable")].tobytes())
            self.columns_are_whole()
            self._rows[:], self._freed[:], self._more = (), (), 0

    def _pack(self, rows: list[tuple]) -> list[tuple[int, int]]:
        """Put ops into the columns; returns (op, storage) of what died with them."""
        frames, nodes, taken, masks, outs, freed, *sums = zip(*rows)
        flat = [_ABSENT if out is None else out for found in outs for out in found]
        ends = np.cumsum(list(map(len, outs))) + len(self.outs) // OUT
        first = len(self.ops) // OP
        numbers = self.nodes.numbers(nodes), self.refusals.numbers(zip(taken, masks))
        self.ops.frombytes(_side_by_side(frames, *numbers, *sums, ends.tolist()).tobytes())
        if flat:
            storages, generations, hows, shapes, dtypes, offsets, strides = zip(*flat)
            known = [-1 if offset is None else offset for offset in offsets]
            forms = self.forms.numbers(zip(shapes, dtypes, strides))
            self.outs.frombytes(_side_by_side(storages, generations, hows, known, forms).tobytes())
        return [(op, storage) for op, died in enumerate(freed, first) if died for storage in died]

    def _pack_done(self, done: Any) -> Ints:
        """Put many ops into the columns, as `_pack` does."""
        ops, outs, died = done.columns(self)
        ops[:, -1] += len(self.outs) // OUT
        died[:, 0] += len(self.ops) // OP
        self.ops.frombytes(ops.tobytes())
        self.outs.frombytes(outs.tobytes())
        return died

    def __len__(self) -> int:
        return self._whole[0] + len(self._rows) + self._more

    @property
    def version(self) -> tuple[int, int, int]:
        """A value that changes whenever something is written."""
        self.settle()
        return self._whole

    @overload
    def __getitem__(self, index: int) -> Op: ...
    @overload
    def __getitem__(self, index: slice) -> list[Op]: ...
    def __getitem__(self, index: int | slice) -> Op | list[Op]:
        if self._rows or self._freed:
            self.settle()
        made, size = self._made_ops, self._whole[0]
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
        """One op of a log that is too long to keep all of them. Sequential readers get them from a block."""
        first, block = self._block
        if not first <= index < first + len(block):
            # Twice as many as before for sequential readers.
            more = min(2 * len(block), _BLOCK) if block and index == first + len(block) else 1
            first, block = self._block = index, list(self._made(index, min(index + more, self._whole[0])))
        return block[index - first]

    def _begin(self, index: int) -> int:
        return self.ops[index * OP - 1] if index else 0

    def called(self, index: int) -> tuple[int, OpNode, tuple[int, ...]]:
        """The frame and the node of an op, and the positions of the inputs with which it was called in place; cheaper
        than the op."""
        self.settle()
        frame, node, refusal = self.ops[index * OP : index * OP + 3]
        return frame, self.nodes.entries[node], self.refusals.entries[refusal][0]

    def refused(self, index: int) -> tuple[tuple[int, int], ...]:
        """The inputs that an op could not be called in place with, and why, as `Op.masks`; cheaper than the op."""
        self.settle()
        masks: tuple[tuple[int, int], ...] = self.refusals.entries[self.ops[index * OP + 2]][1]
        return masks

    def output(self, index: int, at: int) -> Output | None:
        """One output of an op; cheaper than the op."""
        if index >= self._whole[0] or len(self._made_ops) == self._whole[0]:
            return self[index].outs[at]
        return self._output(at + self._begin(index))

    def moved(self, index: int) -> tuple[int, int]:
        """Bytes that an op only moved, and bytes that it stored in all; cheaper than the op."""
        self.settle()
        _, copied, written = self.ops[index * OP + 3 : index * OP + 6]
        return copied, written

    def _output(self, at: int) -> Output | None:
        storage, generation, how, offset, form = self.outs[at * OUT : (at + 1) * OUT]
        shape, dtype, strides = self.forms.entries[form]
        where = None if offset < 0 else offset
        return None if storage < 0 else Output(storage, generation, how, shape, dtype, where, strides)

    def _made(self, first: int, stop: int) -> Iterator[Op]:
        numbers = self.ops[first * OP : stop * OP].tolist()
        frames, nodes, refusals, *sums, ends = (numbers[k::OP] for k in range(OP))
        begin = self._begin(first)
        places = self.outs[begin * OUT : ends[-1] * OUT].tolist()
        forms, known = self.forms.entries, self.refusals.entries
        outs = [
            None
            if storage < 0
            else Output(storage, generation, how, form[0], form[1], None if offset < 0 else offset, form[2])
            for storage, generation, how, offset, form in zip(
                *(places[k::OUT] for k in range(OUT - 1)), map(forms.__getitem__, places[OUT - 1 :: OUT])
            )
        ]
        parts = [tuple(outs[a - begin : b - begin]) for a, b in pairwise((begin, *ends))]
        taken, masks = zip(*(known[refusal] for refusal in refusals))
        freed = self._died(first, stop)
        ran = (self.nodes.entries[node] for node in nodes)
        return map(Op._make, zip(frames, ran, taken, masks, parts, freed, *sums))

    def _died(self, first: int, stop: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()] * (stop - first)
        for op, storage in self.died(first, stop):
            found[op - first] += (storage,)
        return found

    def step_of(self, frame: int, node_index: int) -> int | None:
        if self._looked_at < len(self):
            self._look()
        if frame >= len(self._ran):
            return None
        first, ran = self._ran[frame]
        later = ran.get(node_index)
        return None if later is None else first + later

    def _look(self) -> None:
        self.settle()
        made = self._ran
        made += ((-1, {}) for _ in range(len(made), len(self.frames)))
        for known in range(self._looked_at, len(self), _LOOKED):
            stop = (known + _LOOKED) * OP
            frames, numbers = (np.array(self.ops[known * OP + place : stop : OP]) for place in range(2))
            order = np.argsort(frames, kind="stable")
            ends = np.flatnonzero(np.diff(frames[order], append=-1)) + 1
            for begin, end in pairwise((0, *ends.tolist())):
                steps, nodes = order[begin:end], numbers[order[begin:end]].tolist()
                frame = int(frames[steps[0]])
                first, ran = made[frame]
                if not ran:
                    made[frame] = int(steps[0]) + known, self._shared(nodes, steps - steps[0])
                    continue
                if frame not in self._grown:
                    made[frame] = first, ran = first, dict(ran)
                    self._grown.add(frame)
                ran.update(self._by_node(nodes, steps + (known - first)))
            self._looked_at = min(known + _LOOKED, len(self))

    def _shared(self, nodes: list[int], later: Ints) -> dict[int, int]:
        key = (tuple(nodes), later.tobytes())
        if key not in self._alike:
            if len(self._alike) == _ALIKE:
                self._alike.clear()
            self._alike[key] = self._by_node(nodes, later)
        return self._alike[key]

    def _by_node(self, nodes: list[int], later: Ints) -> dict[int, int]:
        entries = self.nodes.entries
        return {entries[node].node.index: step for node, step in zip(nodes, later.tolist())}

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the columns of all ops, one row an op, and of all outputs, one row an output; see `COLUMNS`."""
        self.settle()
        return np.array(self.ops, np.int64).reshape(-1, OP), np.array(self.outs, np.int64).reshape(-1, OUT)

    def died(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        self.settle()
        low, high = self._free(first), self._free(stop)
        return zip(*(self.frees[low * FREE + place : high * FREE : FREE] for place in range(FREE)))

    def _free(self, op: int) -> int:
        return bisect_left(memoryview(self.frees)[::FREE], op)

    def columns_are_whole(self) -> None:
        """Note the lengths of the columns after they were changed from outside."""
        self._whole = len(self.ops) // OP, len(self.outs) // OUT, len(self.frees) // FREE

    def column(self, name: str) -> Sequence[int]:
        self.settle()
        return self.ops[COLUMNS["op"].index(name) :: OP]

    def cut(self, ops: int, frames: int) -> None:
        self.settle()
        self.cuts += 1
        dropped = len(self.frames) - frames
        del self.outs[self._begin(ops) * OUT :], self.ops[ops * OP :], self.frames[frames:]
        del self.frees[self._free(ops) * FREE :]
        self.grew = [(min(at, ops), storage, more) for at, storage, more in self.grew]
        self.declared.cut(ops)
        del self._made_ops[ops:]
        self._block = (0, [])
        del self._ran[frames:]
        self._grown.difference_update(range(frames, frames + dropped))
        self._looked_at = min(self._looked_at, ops)
        self.columns_are_whole()


def _side_by_side(*columns: Sequence[int]) -> np.ndarray:
    made = np.empty((len(columns[0]), len(columns)), np.int64)
    for place, column in enumerate(columns):
        made[:, place] = array("q", column)
    return made
