"""Writing a trace by hand: for any runtime that knows which op touched which bytes.

A writer takes storages, values in them, and ops; `Writer.finish` gives a `Trace` that every reader takes. Nothing is
inferred: an op writes what is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access, Free, Mark, Place, Timing
from kvviz.trace.schema.element_types import is_known, nbytes, unit
from kvviz.trace.schema.events import BINDINGS, IN_PLACE, NEW, VIEW, Bind, Op, Output, Program
from kvviz.trace.schema.log import Log
from kvviz.trace.schema.regions import Region, anywhere, packed_strides, stored_bytes
from kvviz.trace.trace_data import PolicyFacts
from kvviz.trace.value_summaries import SeenArrays
from kvviz.trace.written_run import WrittenRun, check_refused, unique_name


class Writer:
    """Collects what a runtime did, and makes a trace of it.

    Parameters
    ----------
    title : str
    runtime, about : str
        The runtime that decided where outputs lie, and one sentence about it.
    values : int or str
        Maximum bytes for summaries of the values whose arrays `op` gets, as in `Trace.summarise`.
    decides : bool
        The runtime decided for each op whether it may run in place, and `op` gets the reasons why not.
    rules : sequence of str
        Sentences for reasons that only this runtime has, with ``{op}`` and ``{input}`` in them.

    Examples
    --------
    >>> w = Writer("one copy")
    >>> cache = w.value("cache", (8,), "float32", w.storage(32, origin="caller"))
    >>> w.bind(cache, "donated")
    >>> row = w.value("row", (2,), "float32")
    >>> w.op("NEW", outputs=[row])
    0
    >>> view = w.value("cache (view)", (2,), "float32", w.storage_of(cache), offset=8)
    >>> w.op("CPY", inputs=[row, cache], reads=[row], outputs=[view], writes=[view])
    1
    >>> w.finish([view]).steps[1].outs[0].how
    'in place'
    """

    def __init__(
        self,
        title: str,
        runtime: str = "recorded",
        about: str = "",
        *,
        values: int | str = 0,
        decides: bool = False,
        rules: Sequence[str] = (),
    ) -> None:
        self.title = title
        self.policy = PolicyFacts(runtime, about, rules=tuple(rules), decides=decides)
        self.log = Log()
        self._names: list[str] = []  # of values, by id
        self._said: list[tuple[str, int]] = []  # name and number among its like, by id
        self._labels: dict[str, int] = {}
        self._unplaced: set[int] = set()
        self._where: list[tuple[int, int, tuple[int, ...], Any, Any]] = []  # storage, offset, shape, dtype, strides
        self.generation: dict[int, int] = {}
        self._alive: set[int] = set()
        self._live = 0
        self._runs: list[WrittenRun] = []
        self.steps = 0
        self.freed: dict[int, list[int]] = {}
        self._bound: dict[int, str] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self.arrays = SeenArrays(values)

    def storage(
        self,
        nbytes: int,
        *,
        origin: str = "run",
        space: str = "host",
        arena: str = "",
        address: int | None = None,
    ) -> int:
        """Declare a storage. Memory that is freed and allocated again at the same address of an arena is a new storage.

        Parameters
        ----------
        nbytes : int
            Its capacity.
        origin : str
            ``"weights"``, ``"caller"``, ``"donated"``, ``"run"`` or ``"pool"``.
        space, arena, address
            Its place, if not in the host's memory.
        """
        if not 0 <= nbytes < 1 << 63:
            raise KvvizError(f"a storage cannot have {nbytes} bytes")
        self.log.storages.add(nbytes, origin)
        number = len(self.log.storages) - 1
        if (space, arena, address) != ("host", "", None):
            self.log.declared.places[number] = Place(space, arena, address)
        return number

    def value(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        storage: int | None = None,
        offset: int = 0,
        strides: Sequence[int] | None = None,
        *,
        placed: bool = True,
    ) -> int:
        """Declare a value in a storage, by default in a new one; names may repeat.

        Parameters
        ----------
        shape : sequence of int
            In elements.
        dtype : str or numpy.dtype
            NumPy's types, and block types such as ``"q8_0"``.
        offset : int
            Bytes from the start of the storage.
        strides : sequence of int, optional
            In bytes; for a block type the last one is from block to block. Row-major by default.
        placed : bool
            False if its bytes within the storage are not known: an op that touches it may touch any of them.

        Raises
        ------
        KvvizError
            If the type is not known or the value does not lie in its storage.
        """
        if not is_known(str(dtype)):
            raise KvvizError(f"value {name!r} has the unknown element type {dtype!r}")
        size = nbytes(shape := tuple(shape), dtype := str(dtype))
        storage = self.storage(size) if storage is None else storage
        steps, item = unit(shape, dtype)
        reach = size if strides is None else sum((n - 1) * abs(s) for n, s in zip(steps, strides)) + item
        held = self.log.storages[storage].capacity
        if not size:  # it takes no byte, wherever it says that it begins
            offset, reach = min(max(offset, 0), held), 0
        if not 0 <= offset <= held - reach:
            raise KvvizError(f"value {name!r} lies at bytes {offset} to {offset + reach} of {held} in B{storage}")
        self._names.append(unique_name(name, self._labels))
        self._said.append((name, self._labels[name]))
        if not placed:
            self._unplaced.add(len(self._said) - 1)
        self._where.append((storage, offset, shape, dtype, None if strides is None else tuple(strides)))
        return len(self._names) - 1

    def where(self, value: int) -> tuple[int, int, tuple[int, ...], Any, Any]:
        """Storage, offset, shape, type and strides of a value."""
        return self._where[value]

    def storage_of(self, value: int) -> int:
        """The storage that a value lies in."""
        return self._where[value][0]

    @property
    def keeps_values(self) -> bool:
        """Whether it summarises the arrays of ops."""
        return self.arrays.budget > 0

    def is_alive(self, storage: int) -> bool:
        """Whether a value was made or bound in a storage that has not been freed."""
        return storage in self._alive

    def begin_run(self, text: str = "", keep: Iterable[int] | None = None) -> None:
        """Begin another run: a forward pass, or a program given to a device. Bound values stay bound.

        Afterwards, the names of all values except those to ``keep`` may be reused."""
        if self._runs and not self._runs[-1].rows:
            self._runs.pop()
        self._runs.append(WrittenRun(self.steps, text))
        if keep is not None:
            self._labels = {}
            for value in keep:
                name, times = self._said[value]
                self._labels[name] = max(times, self._labels.get(name, 0))
                self._labels.setdefault(self._names[value], 1)

    def name_run(self, text: str) -> None:
        """Name the current run."""
        self.run().text = text

    def bind(self, value: int, how: str = "borrowed") -> None:
        """Bind a value that runs start with: ``"weight"``, ``"borrowed"``, ``"donated"``, or ``"passed"`` by a run."""
        if how not in BINDINGS:
            raise KvvizError(f"a value is bound as one of {', '.join(BINDINGS)}, not {how!r}")
        self.hold(self._where[value][0])
        self._bound[value] = how

    def give(self, value: int, array: np.ndarray | None = None) -> None:
        """Let the run begin with a value, also if no op declares it; its array is summarised, not kept."""
        self.use(value)
        if array is not None:
            self.arrays.look(-len(self._runs), list(self.run().bound).index(value), array)

    def use(self, value: int) -> None:
        """Let the run begin with a value that it reads but does not make."""
        run = self.run()
        if value not in run.made and value not in run.bound:
            before = self._live
            if value not in self._bound:
                self.bind(value, "passed" if any(value in earlier.made for earlier in self._runs) else "borrowed")
            # It existed when the run began, before the ops that did not need it.
            run.hold(self._live - before)
            storage, offset, shape, dtype, _ = self._where[value]
            generation = self.generation.get(storage, 0)
            how = self._bound[value]
            run.bound[value] = Bind(self._names[value], storage, generation, how, shape, dtype, offset)

    def op(
        self,
        op_type: str,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
        *,
        name: str = "",
        reads: Sequence[int] | None = None,
        writes: Sequence[int] | None = None,
        rows: Mapping[int, Sequence[int]] | None = None,
        regions: Mapping[tuple[int, bool], Region] | None = None,
        copied: int = 0,
        lane: str = "",
        start: float | None = None,
        end: float | None = None,
        arrays: Sequence[np.ndarray | None] = (),
        refused: Mapping[int, int] | None = None,
        position: int | None = None,
        scope: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """Record an op that ran, and return its step.

        Parameters
        ----------
        inputs : sequence of int
            Values that it depends on: the declared edges of the graph.
        outputs : sequence of int
            Values that it makes. A value in a storage that is already in use, and that is not written, is a view.
        reads, writes : sequence of int, optional
            Values whose bytes it touches; by default all inputs, and the outputs whose storages are new.
        rows : mapping of int to sequence of int, optional
            For values of which only some entries of the first axis are touched: these entries.
        regions : mapping of (int, bool) to Region, optional
            For values touched in another part: the bytes of the storage that are read (False) or written (True).
        copied : int
            Bytes that it only moved.
        lane, start, end
            Where and when it ran on the timeline, if time is not the step number.
        arrays : sequence of ndarray
            Known contents of the outputs; they are summarised, not kept.
        refused : mapping of int to int, optional
            By input position, all reasons why the op did not run in its memory, as bits of `kvviz.trace.blockers`. If
            the runtime decides, an op without reasons and without an output in place counts as never in place. Raises
            `KvvizError` for a position without an input, or if the runtime does not decide.
        position : int, optional
            Its place in the program, if the run has another order. Then all ops of the run need one.
        scope, attributes : sequence of str, mapping of str to object
            Its module in the model, outermost first: ``("layer.3",)``; equal layers are folded. Further facts.
        """
        check_refused(f"{op_type} {name!r}", refused or (), len(inputs), self.policy.decides)
        run = self.run()
        for value in inputs:
            self.use(value)
        fresh = [value for value in outputs if self._where[value][0] not in self._alive]
        writes = fresh if writes is None else writes
        allocated = sum(self.hold(self._where[value][0]) for value in fresh)
        placed = []
        for value in outputs:
            storage, offset, shape, dtype, strides = self._where[value]
            how = NEW if value in fresh else IN_PLACE if value in writes else VIEW
            if how == IN_PLACE:
                self.generation[storage] = self.generation.get(storage, 0) + 1
            steps = strides if how == NEW or strides is not None else packed_strides(*unit(shape, dtype))
            placed.append(Output(storage, self.generation.get(storage, 0), how, shape, dtype, offset, steps))
        read, made = self.named(inputs), self.named(outputs)
        label = name or (made[0] if outputs else op_type)
        place = run.node(op_type, label, read, made, None, position, scope, attributes)
        run.made.update(outputs)
        touched = [(value, False) for value in dict.fromkeys(inputs if reads is None else reads)]
        touched += [(value, True) for value in writes]
        accesses = tuple(
            self._access(value, written, (rows or {}).get(value), (regions or {}).get((value, written)))
            for value, written in touched
        )
        timing = None if start is None or end is None else Timing(lane, start, end)
        for slot, array in enumerate(arrays):
            self.arrays.look(self.steps, slot, array)
        written = sum(stored_bytes(access.region) for access in accesses if access.writes)
        over = {storage for storage, _, how, *_ in placed if how == IN_PLACE}
        taken = [i for i, value in enumerate(inputs) if self._where[value][0] in over][:1]
        seen = {storage for storage, _, how, *_ in placed if how == VIEW and self.policy.decides}
        run.ops[place].views = tuple(i for i, value in enumerate(inputs) if self._where[value][0] in seen)
        masks = tuple(sorted((refused or {}).items()))
        row = Op(0, run.ops[place], tuple(taken), masks, tuple(placed), (), allocated, copied, written, 0)
        self.add(row, accesses, timing)
        return self.steps - 1

    def transfer(
        self, source: int, target: int, *, copied: int | None = None, lane: str = "", start: float = 0, end: float = 0
    ) -> int:
        """Record a transfer of bytes from one space to another: an op whose bytes are all copied."""
        size = nbytes(*self._where[target][2:4]) if copied is None else copied
        return self.op("transfer", [source], [target], copied=size, lane=lane, start=start, end=end)

    def free(self, storage: int, why: str = "", done: bool = True) -> None:
        """Free a storage after the last op. With ``done=False`` the free was requested, but the storage stays."""
        if storage not in self._alive:
            raise KvvizError(f"B{storage} is not alive")
        if why or not done:
            self.log.declared.frees.append(Free(self.steps - 1, storage, done, why))
        if done:
            self.let_go([storage])

    def mark(self, kind: str, value: int | None = None, *, time: float = 0.0, **facts: Any) -> None:
        """Record an event of a value after the last op; the rest is as in `kvviz.trace.schema.declared.Mark`."""
        name, storage = ("", -1) if value is None else (self._names[value], self.storage_of(value))
        self.log.declared.marks.append(Mark(self.steps - 1, time, kind, name, storage, **facts))

    @property
    def version(self) -> tuple[int, int, int]:
        """A value that changes whenever something is written."""
        return self.steps, len(self.log.declared.marks), len(self.log.declared.frees)

    def finish(self, outputs: Sequence[int] = ()) -> Trace:
        """Return the trace; ``outputs`` are the values that the last run returns."""
        log = Log()
        # Later writes go into another trace.
        log.storages, log.declared = deepcopy(self.log.storages), self.log.declared.copy()
        written = [run for run in self._runs if run.rows] or self._runs
        ends = [tuple(self.named(outputs)) if run is written[-1] else () for run in written]
        known: dict[Any, Program] = {}
        opened = [run.open(log, i, self.title, ends[i], known) for i, run in enumerate(written)]
        for run, there in zip(written, opened):
            run.pour(log, there, self.freed)
        if not opened:
            raise KvvizError(f"{self.title!r} has no op")
        trace = Trace(log.frames[0].program.graph, self.policy, log, self.title)
        trace.runs = [there.record for there in opened]
        trace.value_summaries = self.arrays.summaries(self.steps)
        return trace

    def run(self) -> WrittenRun:
        """The run being written; the first use begins the first run."""
        if not self._runs:
            self.begin_run()
        return self._runs[-1]

    def hold(self, storage: int) -> int:
        """Bytes that become alive with a storage; 0 if it is alive already."""
        size = 0 if storage in self._alive else self.log.storages[storage].capacity
        self._alive.add(storage)
        self._live += size
        return size

    def same(self, program: Program) -> Program:
        """The first program that equals this one, which runs of one program share."""
        return self._programs.setdefault((id(program.graph), program.outputs, tuple(map(id, program.order))), program)

    def named(self, values: Iterable[int]) -> list[str]:
        """Names of values, by number."""
        return [self._names[value] for value in values]

    def add(self, row: Op, accesses: tuple[Access, ...] | None, timing: Timing | None) -> None:
        """Append an op, and fill in the bytes alive."""
        if accesses is not None:
            self.log.declared.accesses[self.steps] = accesses
        if timing is not None:
            self.log.declared.times[self.steps] = timing
        self.run().add(row._replace(live=self._live))
        self.steps += 1

    def let_go(self, storages: Iterable[int]) -> None:
        """Count storages as dead with the last op."""
        for storage in storages:
            if storage in self._alive:
                self._alive.discard(storage)
                self._live -= self.log.storages[storage].capacity
                self.freed.setdefault(self.steps - 1, []).append(storage)

    def _access(self, value: int, writes: bool, rows: Sequence[int] | None, part: Region | None) -> Access:
        storage, offset, shape, dtype, strides = self._where[value]
        if value in self._unplaced and part is None:
            part = anywhere(self.log.storages[storage].capacity, nbytes(shape, dtype))
        strides = packed_strides(*unit(shape, dtype)) if strides is None else strides
        region = Region(offset, shape, strides, dtype) if part is None else part
        return Access(storage, writes, self._names[value], region if rows is None else region.only(rows))
