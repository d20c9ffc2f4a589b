"""A program for a device: an ONNX graph with layouts for its inputs and outputs, and one run of it by the engine.

A run has no consequences yet: it holds the results, and where each storage is to lie.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from kvviz.device.device_layout import Layout, sizes
from kvviz.device.device_state import DeviceState, Room
from kvviz.device.simulated_time import flops
from kvviz.engine.sessions.session import Session
from kvviz.errors import DeviceError
from kvviz.graph.model import Graph, Value
from kvviz.interrupts import deliver
from kvviz.runtimes.named_policies import find_policy
from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.value_index import index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.regions import bounds


class DeviceProgram:
    """See `Device.program`, which makes it.

    Attributes
    ----------
    graph : Graph
    name : str
    number : int
    device : Device
        The device that runs it, and has its weights.
    kept : frozenset of str
        Parameters: inputs that it never deallocates. Source: ``TTNNAdjustDeallocs`` of tt-mlir.
    parts : (DeviceProgram, DeviceProgram) or None
        The part that is evaluated once, and the rest, if there is such a part.
    constants : dict of int to int
        Storages of its weights in the log, by their numbers in a run of the engine; filled by the first submit.
    """

    def __init__(
        self,
        graph: Graph,
        number: int,
        name: str,
        layouts: Mapping[str, Layout],
        outputs: Mapping[str, Layout],
        kept: Sequence[str] = (),
    ) -> None:
        self.graph = graph
        self.number = number
        self.name = name
        self.inputs = {value.name: value for value in graph.inputs}
        self.results = {value.name: value for value in graph.outputs}
        for what, named, known in (
            ("an input", (*layouts, *kept), self.inputs),
            ("an output", outputs, self.results),
        ):
            for unknown in (one for one in named if one not in known):
                raise DeviceError(f"program {name!r} has no {what[3:]} {unknown!r}; it has {', '.join(known)}")
        kinds = [v for v in (*graph.inputs, *graph.outputs) if v.kind != "tensor"]
        if kinds:
            raise DeviceError(f"program {name!r}: {kinds[0].name!r} is a {kinds[0].kind}; a device takes tensors")
        self._layouts = {one: _typed(layouts.get(one, Layout()), value) for one, value in self.inputs.items()}
        self._outputs = {one: outputs.get(one, Layout()) for one in self.results}
        self.kept = frozenset(kept)
        self.parts: tuple[DeviceProgram, DeviceProgram] | None = None
        self.device: Any = None
        self.constants: dict[int, int] = {}
        self.constant_bytes = 0

    def layout(self, name: str) -> Layout:
        """The layout that it wants for an input.

        Raises
        ------
        DeviceError
            If it has no such input.
        """
        if name not in self._layouts:
            raise DeviceError(f"program {self.name!r} has no input {name!r}; it has {', '.join(self._layouts)}")
        return self._layouts[name]

    def output_layout(self, name: str) -> Layout:
        """The layout of an output."""
        return self._outputs[name]

    def __repr__(self) -> str:
        return f"<DeviceProgram {self.name!r}: {len(self.graph.nodes)} nodes, {len(self.inputs)} inputs>"


class Binary:
    """Programs by number, as in a compiler's executable file; `Device.binary` makes it.

    Inputs and outputs have numbers, too: their places in the program.

    Attributes
    ----------
    programs : tuple of DeviceProgram
    """

    def __init__(self, programs: Sequence[DeviceProgram]) -> None:
        self.programs = tuple(programs)

    def program(self, index: SupportsIndex) -> DeviceProgram:
        """A program by its number, from 0.

        Raises
        ------
        DeviceError
            If there is none.
        """
        return self.programs[_number(index, len(self.programs), "a program", "this binary")]

    def layout(self, program_index: int, input_index: int) -> Layout:
        """The layout that a program wants for an input.

        Raises
        ------
        DeviceError
            If there is no such program or input.
        """
        program = self.program(program_index)
        where = f"program {program_index}, {program.name!r},"
        return program.layout(list(program.inputs)[_number(input_index, len(program.inputs), "an input", where)])

    def __repr__(self) -> str:
        return f"<Binary: {', '.join(f'{number} {one.name!r}' for number, one in enumerate(self.programs))}>"


def _number(index: SupportsIndex, count: int, what: str, where: str) -> int:
    try:
        number = int(operator.index(index))
    except TypeError:
        raise DeviceError(f"{what} of {where} is chosen by its number, not by {str(index)[:40]!r}") from None
    if not 0 <= number < count:
        known = f"it has 0 to {count - 1}" if count else "it has none"
        raise DeviceError(f"{where} has no {what.split()[-1]} {number}: {known}")
    return number


def _typed(layout: Layout, value: Value) -> Layout:
    return layout if layout.dtype is not None or value.dtype is None else replace(layout, dtype=str(value.dtype))


class Result(NamedTuple):
    array: np.ndarray
    storage: int
    generation: int


class Computed(NamedTuple):
    """A run: its recording, the outputs, and the storages of the inputs by name."""

    trace: Trace
    results: dict[str, Result]
    given: dict[str, int]


class Placed(NamedTuple):
    """Places and times of a run.

    ``blocks``: by storage of the engine.
    ``died``: when storages died.
    ``times``: start and end of every op.
    ``spilled``: names and bytes of tensors that L1 had no room for.
    """

    blocks: dict[int, Room]
    died: dict[int, float]
    times: list[tuple[float, float]]
    spilled: list[tuple[str, int]]


def compute(graph: Graph, feeds: Mapping[str, np.ndarray], donate: Collection[str], wanted: Any = None) -> Computed:
    """Run a graph by kvviz's engine. An interrupt between two ops stops it, without consequences."""
    session = Session(graph, wanted, find_policy("ideal"))
    session.begin(feeds, tuple(donate))
    while not session.run_is_over:
        session.advance()
        deliver()
    execution = session.execution
    assert execution is not None
    main = execution.main
    results = {}
    for slot in main.plan.outputs:
        storage = main.stores[slot]
        assert storage is not None
        results[main.plan.names[slot]] = Result(main.vals[slot], storage.id, storage.generation)
    session.finish_run()
    bound = session.log.frames[0].bindings
    return Computed(session.trace, results, {bind.name: bind.storage for bind in bound if bind.name in feeds})


def place(
    state: DeviceState,
    run: Computed,
    memories: dict[int, str],
    outputs: Mapping[int, tuple[Layout, tuple[int, ...]]],
    start: float,
    owners: Mapping[int, int],
) -> Placed:
    """Give every storage of a run a block, at its time: results where they are to lie, the rest in L1 if it fits.
    ``memories``: of the storages that existed, inputs and weights; the others are added. ``outputs``: layout and shape
    of results, by storage. ``owners``: numbers of the blocks that the run may free: those of donated inputs."""
    log, index = run.trace.log, index_of(run.trace)
    blocks: dict[int, Room] = {}
    placed = Placed(blocks, {}, [], [])
    names = {out.storage: name for row in log for name, out in zip(row.op.node.outputs, row.outs) if out is not None}
    now = start
    for number, row in enumerate(log):
        for out in row.outs:
            if out is None or out.storage in memories:
                continue
            capacity = log.storages[out.storage].capacity
            layout, shape = outputs.get(out.storage, (None, ()))
            extent, page = (capacity, 0) if layout is None else sizes(shape, layout)
            extent = max(extent, capacity)
            memory = "l1" if layout is None else layout.memory
            found = state.allocate(memory, extent, page, now)
            if layout is None and found is None:
                memory = "dram"
                placed.spilled.append((names.get(out.storage, ""), extent))
            who = f"{names.get(out.storage, 'a value')!r} of {run.trace.title!r}"
            blocks[out.storage] = room = found or state.room(memory, extent, page, now, who)
            now = max(now, room.when)
            memories[out.storage] = memory
        moved = {"dram": 0, "l1": 0}
        for access in accesses_of(index, number):
            low, high = bounds(access.region)
            moved[memories.get(access.storage, "dram")] += high - low
        node = row.op.node
        shapes = [place.shape for name in node.inputs if (place := index.places.get((row.frame, name))) is not None]
        work = flops(node, shapes, [out.shape for out in row.outs if out is not None]) if sum(moved.values()) else 0
        end = now + (state.cost.of_op(moved["dram"], moved["l1"], work) if sum(moved.values()) else 0.0)
        placed.times.append((now, end))
        now = end
        for storage in row.freed:
            placed.died[storage] = end
            if storage in blocks:
                state.banks[blocks[storage].memory].free(blocks[storage].number, end, state.clock.now)
            elif storage in owners:
                state.banks[memories[storage]].free(owners[storage], end, state.clock.now)
    return placed
