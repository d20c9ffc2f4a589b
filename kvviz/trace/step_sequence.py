"""The steps of a trace as a sequence of records, made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import overload

from kvviz import public_trace
from kvviz.trace.outcome import outcome
from kvviz.trace.reasons import decision_of, offset_of
from kvviz.trace.records import Placed, Step
from kvviz.trace.schema.element_types import name_of, nbytes
from kvviz.trace.schema.events import HOW
from kvviz.trace.trace_data import TraceData


class Steps(Sequence[Step]):
    """The steps of a trace as a sequence; each `Step` is made when it is asked for."""

    __slots__ = ("trace",)

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace

    def __len__(self) -> int:
        return len(self.trace.log)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice | str) -> list[Step]: ...
    def __getitem__(self, index: int | slice | str) -> Step | list[Step]:
        """One step by its number, some by a slice, or all steps of a node by its name."""
        if isinstance(index, slice):
            return [make_step(self.trace, i) for i in range(*index.indices(len(self)))]
        if isinstance(index, str):
            return self._named(index)
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"step {index} does not exist; the trace has {size} steps")
        return make_step(self.trace, index % size)

    def __iter__(self) -> Iterator[Step]:
        for index in range(len(self)):
            yield make_step(self.trace, index)

    def _named(self, name: str) -> list[Step]:
        ran = [(i, row.op.node) for i, row in enumerate(self.trace.log)]
        if found := [make_step(self.trace, i) for i, node in ran if node.name == name]:
            return found
        if any(node.op_type == name for _, node in ran):
            raise KeyError(f"no node is named {name!r}; the steps of an operator are trace.find('op:{name}')")
        close = get_close_matches(name, dict.fromkeys(node.name for _, node in ran), 1)
        raise KeyError(f"no node that ran is named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))

    __repr__ = public_trace.steps_text
    _repr_html_ = public_trace.steps_html


def make_step(trace: TraceData, index: int) -> Step:
    """The record of one step."""
    frame_id, planned, *_, freed, allocated, copied, written, live = trace.log[index]
    node = planned.node
    frame = trace.frames[frame_id]
    return Step(
        index=index,
        run=frame.run,
        frame=frame.path,
        frame_id=frame_id,
        node=node.name,
        node_index=node.index,
        graph_node=node,
        op_type=node.op_type,
        inputs=node.inputs,
        outputs=node.outputs,
        decision=decision_of(trace, index),
        live_bytes=live,
        allocated=allocated,
        copied=copied,
        written=written,
        outs=tuple(outs_of(trace, index)),
        freed=freed,
        foreign=planned.foreign,
        outcome=outcome(trace, trace.log[index]),
    )


def outs_of(trace: TraceData, index: int) -> Iterator[Placed]:
    """Records of where a step's outputs live."""
    row = trace.log[index]
    for name, where in zip(row.op.node.outputs, row.outs):
        if where is not None:
            storage, generation, how, shape, dtype, offset, strides = where
            if offset is None:
                offset = offset_of(trace, index)
            size = nbytes(shape, dtype)
            yield Placed(name, storage, generation, HOW[how], shape, name_of(dtype), offset, strides, size)
