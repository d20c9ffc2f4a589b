"""An op that runs a program recorded on its own: the program's frames and ops become part of the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvviz.trace.blockers import BORROWED_INPUT
from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.value_index import index_of
from kvviz.trace.reasons import placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access, Timing
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import PASSED, Bind, Op, Output
from kvviz.trace.schema.regions import packed_strides
from kvviz.trace.writer import Writer


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
