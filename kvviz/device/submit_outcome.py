"""The result of a submit: its ops in the log, handles of its outputs, and the tensors that died with it. Nothing in
here fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvviz.device.device_layout import Layout, converted, sizes
from kvviz.device.device_program import Computed, DeviceProgram, Placed, Result
from kvviz.device.device_state import DeviceState, Room
from kvviz.device.handles import Buffer, Handle, Kept, Wrapper
from kvviz.device.releases import let_go
from kvviz.trace.blockers import BORROWED_INPUT, rule
from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.value_index import index_of
from kvviz.trace.reasons import placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access, Timing
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import PASSED, Bind, Op, Output
from kvviz.trace.schema.regions import packed_strides
from kvviz.trace.writer import Writer


@dataclass
class Work:
    """A submit that was computed but not recorded.

    ``wrappers``: of the inputs, after conversions; ``odd``: those converted for this submit alone.
    ``dying``: inputs that are deallocated with it; ``donated``: those of them whose memory the run has.
    ``returned``: outputs that are inputs.
    ``kept``: by input, why the run does not have its memory.
    ``copies``: blocks for outputs that are copies, by name.
    ``constants``: as those of the program, with new ones.
    """

    program: DeviceProgram
    inputs: Mapping[str, Handle]
    wrappers: dict[str, Wrapper]
    run: Computed
    dying: list[str]
    donated: set[str]
    returned: set[str]
    odd: list[str]
    kept: Mapping[str, Kept | None]
    copies: dict[str, Room] = field(default_factory=dict)
    constants: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.constants = dict(self.program.constants)

    @property
    def given(self) -> dict[int, Wrapper]:
        return {number: self.wrappers[name] for name, number in self.run.given.items()}

    def buffer(self, name: str) -> Buffer:
        return self.wrappers[name].held

    def buffers(self) -> list[Buffer]:
        return list({id(b): b for b in map(self.buffer, self.wrappers)}.values())

    def place_constants(self, state: DeviceState) -> None:
        for number, capacity, origin in self.run.trace.log.storages:
            if origin == "weights" and number not in self.constants:
                found = state.room("dram", capacity, 0, state.clock.now, f"a weight of program {self.program.name!r}")
                self.constants[number] = state.storage(found, "caller")

    def place_copies(self, state: DeviceState, placed: Placed, ready: float) -> None:
        """Room for copies: a program keeps its weights, and another shape may need other tiles."""
        held = {number: block.extent for number, block in placed.blocks.items()}
        held |= {number: wrapper.held.extent for number, wrapper in self.given.items()}
        for name, result in self.run.results.items():
            layout = self.program.output_layout(name).of(result.array)
            extent, page = sizes(result.array.shape, layout)
            if result.storage in self.constants or (layout.tiled and extent != held.get(result.storage)):
                self.copies[name] = state.room(layout.memory, extent, page, ready, f"{name!r}")


def commit(state: DeviceState, work: Work, placed: Placed, queue: int, start: float) -> dict[str, Handle]:
    """Record a submit; returns handles of the outputs."""
    program, run = work.program, work.run
    end = placed.times[-1][1] if placed.times else start
    state.placed = placed
    state.submits += 1
    program.constants = work.constants
    program.constant_bytes = sum(run.trace.log.storages[number].capacity for number in work.constants)
    state.forward(f"submit {state.submits} · {program.name}")
    state.clock.now += state.cost.issue
    state.clock.queues[queue] = end
    for buffer in work.buffers():
        buffer.read_until = max(buffer.read_until, end)
    for name, handle in work.inputs.items():
        handle.wrapper.used, handle.wrapper.converted = state.submits, None
        _round_trip(state, name, handle)
    _blame(state, work, placed)
    for number, block in placed.blocks.items():
        state.allocated_bytes += block.extent
        state.freed_bytes += block.extent * (number in placed.died)
    storages = dict(program.constants) | {number: wrapper.held.storage for number, wrapper in work.given.items()}
    for number, block in placed.blocks.items():
        storages[number] = state.storage(block)
    made = _Outputs(state, work, placed, storages, end)
    for name, result in run.results.items():
        made.add(name, result)
    _write(state, work, made, f"queue {queue}", start)
    _bury(state, work, made)
    handles = {}
    for name in program.results:
        if name in work.returned:
            source = work.inputs[name]
            source.wrapper.handles += 1
            text = f"submit {state.submits} returns its argument {name!r}: the same wrapper"
            handles[name] = state.handle(source.wrapper, source.name, "returned", text, end)
        else:
            text = f"submit {state.submits} of {program.name!r}, output {name!r}"
            handles[name] = state.handle(made.wrappers[name], name, "create", text, end)
    return handles


class _Outputs:
    """The outputs of a submit, one after the other: in new memory, in that of an input, or views of either."""

    def __init__(self, state: DeviceState, work: Work, placed: Placed, storages: Mapping[int, int], end: float) -> None:
        self.state = state
        self.work = work
        self.placed = placed
        self.storages = storages
        self.end = end
        self.names = {work.run.given[name]: name for name in work.donated}
        self.wrappers: dict[str, Wrapper] = {}
        self.owners: dict[int, Wrapper] = {}  # outputs with memory of their own, by storage of the run
        self.overwritten: dict[str, str] = {}  # inputs, and how they ended

    def add(self, name: str, result: Result) -> None:
        state, work = self.state, self.work
        layout = work.program.output_layout(name).of(result.array)
        source = self.owners.get(result.storage) or work.given.get(result.storage)
        donor = self.names.get(result.storage)
        if name in work.copies:
            array = converted(result.array, str(layout.dtype))
            wrapper, _ = state.new(array, layout, name, self.end, work.copies[name])
            state.writer.op("copy", [], [wrapper.value], copied=array.nbytes)
        elif result.storage in self.placed.blocks and result.storage not in self.owners:
            wrapper = self._own(self.placed.blocks[result.storage], result, layout, name)
        elif donor is not None and result.generation and donor not in self.overwritten:
            wrapper = self._over(donor, result, name)
        else:
            assert source is not None
            if donor is not None:
                # The run had a copy of the input, which this is a view of.
                source.held.array = _root(result.array)
            wrapper = state.wrap(source.held, state.model.view(source.tensor), result.array, source.layout, name)
        wrapper.used = state.submits
        self.wrappers[name] = wrapper

    def _own(self, block: Room | Buffer, result: Result, layout: Layout, name: str) -> Wrapper:
        root, storage = _root(result.array), self.storages[result.storage]
        buffer = Buffer(block.number, block.memory, block.extent, root, storage)
        buffer.ready = buffer.read_until = self.end
        self.state.buffers[buffer.number] = buffer
        self.state.by_buffer[buffer.number] = []
        wrapper = self.state.wrap(buffer, self.state.model.create(buffer), result.array, layout, name)
        self.owners[result.storage] = wrapper
        return wrapper

    def _over(self, donor: str, result: Result, name: str) -> Wrapper:
        """An output that the run put in the place of an input: the memory changes hands."""
        state, source = self.state, self.work.wrappers[donor]
        state.model.deallocate(source.tensor)
        why = f"submit {state.submits} put output {name!r} in its place, as it was not retained"
        source.fate = why
        self.overwritten[donor] = why
        return self._own(source.held, result, source.layout, name)


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _write(state: DeviceState, work: Work, made: _Outputs, lane: str, start: float) -> None:
    program, run = work.program, work.run
    inputs = {name: work.wrappers[name].value for name in program.inputs}
    outputs = {name: wrapper.value for name, wrapper in made.wrappers.items()}
    if len(run.trace.log):
        call(
            state.writer,
            "submit",
            run.trace,
            inputs,
            outputs,
            made.storages,
            name=program.name,
            lane=lane,
            times=made.placed.times,
            kept={run.given[name]: rule(why) for name, why in work.kept.items() if why is not None},
        )
    else:
        values = list(inputs.values())
        state.writer.op("submit", values, [], reads=[], name=program.name, lane=lane, start=start, end=made.end)


def _bury(state: DeviceState, work: Work, made: _Outputs) -> None:
    """Free what dies with the submit: inputs that are not retained, and converted inputs."""
    for name in work.dying:
        wrapper = work.wrappers[name]
        why = f"submit {state.submits} of {work.program.name!r}, whose input {name!r} was not retained"
        if name in made.overwritten:
            state.mark("overwritten", wrapper, made.overwritten[name], time=made.end, nbytes=wrapper.held.extent)
            state.evict(wrapper)
        elif name in work.donated and (died := made.placed.died.get(work.run.given[name])) is not None:
            wrapper.fate = wrapper.fate or why
            state.model.deallocate(wrapper.tensor)
            state.gone(work.buffer(name), died, why, logged=True)
        elif state.model.is_allocated(wrapper.tensor) and work.buffer(name).alive:
            let_go(state, work.inputs[name], False, why)
    for name in work.odd:
        wrapper = work.wrappers[name]
        state.model.deallocate(wrapper.tensor)
        state.gone(wrapper.held, made.end, f"it was converted for submit {state.submits}, which is over")


def _round_trip(state: DeviceState, name: str, handle: Handle) -> None:
    found, handle.wrapper.reuploaded = handle.wrapper.reuploaded, None
    if found is not None:
        output, line = found
        text = (
            f"has the contents of {output}, which was taken to the host at {line}, and comes "
            f"back as {name!r} of submit {state.submits}: {2 * handle.nbytes:,} B over the link"
        )
        state.warn("HOST_ROUND_TRIP", handle, text, 2 * handle.nbytes, handle.line)


def _blame(state: DeviceState, work: Work, placed: Placed) -> None:
    """Blame a tensor in L1 that the program does not read for taking its room."""
    if not placed.spilled:
        return
    mine = {id(buffer) for buffer in work.buffers()}
    (name, _), nbytes = placed.spilled[0], sum(size for _, size in placed.spilled)
    for buffer in list(state.buffers.values()):
        wrappers = state.of_buffer(buffer)
        if buffer.memory == "l1" and id(buffer) not in mine and wrappers:
            text = f"lies in L1; {work.program.name!r} does not read it and had to put {name!r} into DRAM"
            state.warn("L1_SPILL", state.handle_of(wrappers[0]), text, nbytes)
            return


def call(
    writer: Writer,
    op_type: str,
    body: Trace,
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    storages: Mapping[int, int],
    *,
    name: str = "",
    lane: str = "",
    times: Sequence[tuple[float, float]] = (),
    kept: Mapping[int, int] | None = None,
) -> int:
    """Write an op that ran a program, after the program's own ops; returns its step.

    ``body``: the program, in one run.
    ``inputs``, ``outputs``: by name in the program, the writer's values that it read (all of them) and made.
    ``storages``: the writer's storage for each of the recording; others are new, in host memory.
    ``times``: start and end of each op on ``lane``.
    ``kept``: by storage, reasons why the program must not overwrite its inputs, as bits of `kvviz.trace.blockers`; they
      replace the recording's reason that the caller did not donate them.
    """
    for value in inputs.values():
        writer.give(value)
    run, graph = writer.run(), body.log.frames[0].program.graph
    names = writer.named(inputs.values()), writer.named(outputs.values())
    place = run.node(op_type, name or graph.name, *names, function=graph)
    here = _Here(writer, storages, body, kept or {})
    here.write(place, lane, times)
    placed = []
    for value in outputs.values():
        storage, offset, shape, dtype, strides = writer.where(value)
        strides = packed_strides(*unit(shape, dtype)) if strides is None else strides
        placed.append(Output(storage, writer.generation.get(storage, 0), PASSED, shape, dtype, offset, strides))
    run.made.update(outputs.values())
    timing = Timing(lane, times[0][0], times[-1][1]) if times else None
    writer.add(Op(0, run.ops[place], (), (), tuple(placed), (), 0, 0, 0, 0), None, timing)
    return writer.steps - 1


class _Here:
    def __init__(self, writer: Writer, storages: Mapping[int, int], body: Trace, kept: Mapping[int, int]) -> None:
        self.writer = writer
        self.kept = kept
        self.known = dict(storages)
        self.body = body
        self.before = dict(writer.generation)

    def write(self, place: int, lane: str, times: Sequence[tuple[float, float]]) -> None:
        writer, log, run = self.writer, self.body.log, self.writer.run()
        base, first = 1 + len(run.called), writer.steps - run.first
        for frame in log.frames:
            bindings = tuple(self.bind(bind, frame.parent is None) for bind in frame.bindings)
            made = replace(frame, program=writer.same(frame.program), opened=first + frame.opened, bindings=bindings)
            if frame.parent is None:
                run.called.append(replace(made, parent=0, caller=run.ops[place], attribute="program"))
            else:
                run.called.append(replace(made, parent=base + frame.parent))
        index = index_of(self.body)
        for number, row in enumerate(log):
            outs = tuple(None if out is None else self.out(out) for out in row.outs)
            accesses = tuple(self.access(access) for access in accesses_of(index, number))
            masks = tuple((i, self.mask(number, row, i, mask)) for i, mask in row.masks)
            op = row._replace(frame=base + row.frame, masks=masks, outs=outs, freed=())
            writer.add(op, accesses, Timing(lane, *times[number]) if times else None)
            writer.let_go(map(self.storage, row.freed))

    def mask(self, step: int, row: Any, position: int, mask: int) -> int:
        """Reasons as the writer's runtime has them; the caller of the program is another op here."""
        if not mask & BORROWED_INPUT:
            return mask
        here = placed_before(self.body, row.frame, row.op.node.inputs[position], step)
        why = 0 if here is None else self.kept.get(here.storage, 0)
        return (mask & ~BORROWED_INPUT) | why if why else mask

    def storage(self, number: int) -> int:
        if number not in self.known:
            _, capacity, origin = self.body.log.storages[number]
            self.known[number] = self.writer.storage(capacity, origin=origin)
        return self.known[number]

    def bind(self, bind: Bind, outermost: bool) -> Bind:
        storage = self.storage(bind.storage)
        self.writer.hold(storage)
        how = bind.how
        if outermost and how != "weight":
            how = "passed" if how == "donated" else "captured by reference"
        return bind._replace(storage=storage, generation=self.before.get(storage, 0) + bind.generation, how=how)

    def out(self, out: Output) -> Output:
        storage = self.storage(out.storage)
        generation = self.before.get(storage, 0) + out.generation
        self.writer.hold(storage)
        self.writer.generation[storage] = max(generation, self.writer.generation.get(storage, 0))
        return out._replace(storage=storage, generation=generation)

    def access(self, access: Access) -> Access:
        return access._replace(storage=self.storage(access.storage))
