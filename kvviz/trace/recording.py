"""The trace: everything views know about a run. Rows are written once and never change; records are derived from
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from kvviz import public_trace
from kvviz.errors import ReplayError
from kvviz.other_names import not_there
from kvviz.trace.file.trace_reader import load
from kvviz.trace.file.trace_writer import save
from kvviz.trace.outcome import outcome
from kvviz.trace.reasons import decision_of, offset_of
from kvviz.trace.records import Placed, Step
from kvviz.trace.schema.element_types import name_of, nbytes
from kvviz.trace.schema.events import HOW
from kvviz.trace.schema.run_options import RunOptions
from kvviz.trace.trace_data import TraceData
from kvviz.trace.values_view import Values


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
        nodes = [op.node for op in self.trace.log.nodes.entries]
        there = [number for number, node in enumerate(nodes) if node.name == name]
        if there:
            ran = np.isin(self.trace.log.column("node"), there)
            return [make_step(self.trace, step) for step in np.flatnonzero(ran).tolist()]
        if any(node.op_type == name for node in nodes):
            raise KeyError(f"no node is named {name!r}; the steps of an operator are trace.find('op:{name}')")
        close = get_close_matches(name, dict.fromkeys(node.name for node in nodes), 1)
        raise KeyError(f"no node that ran is named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))

    __repr__ = public_trace.steps_text
    _repr_html_ = public_trace.steps_html


def make_step(trace: TraceData, index: int) -> Step:
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
    row = trace.log[index]
    for name, where in zip(row.op.node.outputs, row.outs):
        if where is not None:
            storage, generation, how, shape, dtype, offset, strides = where
            if offset is None:
                offset = offset_of(trace, index)
            size = nbytes(shape, dtype)
            yield Placed(name, storage, generation, HOW[how], shape, name_of(dtype), offset, strides, size)


class Trace(TraceData):
    """A recording of one or more runs of a graph.

    Attributes
    ----------
    graph : Graph
    policy : PolicyFacts
    options : RunOptions
    model : ModelFile
        Name and SHA-256 of the model file; empty for a model that was made in memory.
    steps, frames, storages, runs, caches
        Records of what ran, where, in which memory.
    outputs : dict of str to ndarray
        Outputs of the last run.
    prompt, tokens : list of int
        In a decode: the prompt and the generated tokens (batch item 0).
    words : list of str or None
        Texts of prompt and tokens together.
    interrupted : bool
        The run was stopped; what ran until then is valid.
    live : Live or None
        What may run next, or None when everything has run.
    recipe : Recipe or None
        How to make this trace again with a change; None for a trace that was loaded.
    value_summaries : ValueSummaries or None
        Kept summaries of values; see `summarise` and `values`.
    branch : Branch or None
        Where and by which change it was forked from another trace; None for a trace that was not forked.
    tour : Tour or None
        Captions that lead through it; see `kvviz.lessons.Tour`.
    dry : bool
        Only layouts were worked out (`kvviz.dry`): ``outputs``, ``tokens`` and ``logits`` were not recorded.
    notes : dict
        Results that readers computed and keep here.
    """

    @classmethod
    def later(cls, make: Callable[[], Trace], outputs: dict[str, Any], options: RunOptions) -> Trace:
        """A trace of which only this is known; ``make`` makes all of it when more is asked."""
        trace = cls.__new__(cls)
        known = {"options": options, "outputs": outputs, "interrupted": False, "_made_by": make}
        vars(trace).update(known, tokens=[], batch_tokens=[], logits=[])
        return trace

    def __len__(self) -> int:
        return len(self.log)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice | str) -> list[Step]: ...
    def __getitem__(self, index: int | slice | str) -> Step | list[Step]:
        return self.steps[index]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            make = vars(self).get("_made_by")
            if make is not None:
                for known, value in vars(make()).items():
                    vars(self).setdefault(known, value)
                vars(self).pop("_made_by", None)
            return vars(self)[name] if name in vars(self) else not_there(self, name)

    @property
    def steps(self) -> Steps:
        """All steps, in the order in which they were completed; ``steps["name"]`` are those of one node."""
        return Steps(self)

    def value(self, name: str, step: int | None = None) -> np.ndarray:
        """A value as it was right after a step, recomputed by replaying the run up to that step.

        Parameters
        ----------
        name : str
            Value name in the step's frame.
        step : int, optional
            The last one by default.

        Raises
        ------
        ReplayError
            If the run's inputs were not kept, or the value does not exist there.
        """
        if self.dry:
            raise ReplayError(f"value {name!r} was not recorded: a dry run works out layouts and no numbers")
        if self.replayer is None:
            raise ReplayError("values were not recorded: this trace was loaded from a file")
        return cast("np.ndarray", self.replayer.value(self, name, len(self.steps) - 1 if step is None else step))

    summarise = public_trace.summarise

    @property
    def values(self) -> Values | None:
        """The summaries that `summarise` stored."""
        return None if self.value_summaries is None else Values(self, self.value_summaries)

    def save(self, path: Any) -> None:
        """Write the trace (not the model's weights) to one file; see `Trace.load`.

        An existing file is replaced when the new one is complete.

        Raises
        ------
        SaveError
            If the file cannot be written. An existing file is not changed.
        """
        save(self, path)

    @staticmethod
    def load(path: Any) -> Trace:
        """Read a trace that `save` wrote. Every view works on it, but it cannot run on."""
        return load(path, Trace)

    explain = public_trace.explain
    to_markdown = public_trace.to_markdown
    table = public_trace.table
    find = public_trace.find
    to_pandas = public_trace.to_pandas
    to_arrow = public_trace.to_arrow
    caches_at = public_trace.caches_at
    to_html = public_trace.to_html
    to_graphviz = public_trace.to_graphviz
    to_perfetto = public_trace.to_perfetto
    _repr_html_ = public_trace.trace_card

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a file holds it, with what the last run returned: it can be looked at, but not run on."""
        file = BytesIO()
        self.save(file)
        results = ({}, [], []) if self.dry else (self.outputs, self.logits, self.batch_tokens)
        return _unpickled, (file.getvalue(), *results)

    def __repr__(self) -> str:
        counts = ((len(self.steps), "step"), (len(self.runs), "run"))
        size = ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for n, what in counts) + f", peak {self.peak_bytes:,} B"
        return f"<Trace of {self.title!r}: {size}, policy {self.policy.name}>"


def _unpickled(file: bytes, outputs: dict[str, Any], logits: list[np.ndarray], tokens: list[list[int]]) -> Trace:
    trace = Trace.load(BytesIO(file))
    trace.outputs, trace.logits, trace.batch_tokens = outputs, logits, tokens
    return trace
