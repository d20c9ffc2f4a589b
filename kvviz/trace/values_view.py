"""The values in a recording, as a reader asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kvviz.errors import KvvizError
from kvviz.trace.schema.events import FrameEvent
from kvviz.trace.trace_data import TraceData
from kvviz.trace.value_numbers import Axes, Numbers, Picture
from kvviz.trace.value_summaries import WHOLE, Key, ValueSummaries


class Summary(NamedTuple):
    """The kept summary of one value.

    Attributes
    ----------
    name : str
    step : int or None
        The step that made it; None for an input of a run.
    run : int
    numbers : Numbers
        ``low``, ``high`` and ``mean`` of the finite ones; how many are ``nan``, ``above`` (+∞) and ``below`` (−∞).
    histogram : ndarray or None
        Numbers in each of 16 parts of equal width from ``low`` to ``high``.
    axes : Axes or None
    pictures : tuple of Picture
        By head.
    """

    name: str
    step: int | None
    run: int
    numbers: Numbers
    histogram: np.ndarray | None
    axes: Axes | None
    pictures: tuple[Picture, ...]


class NotFinite(NamedTuple):
    """The first value that has NaN, or an infinity.

    Attributes
    ----------
    step : int or None
        None for an input of a run.
    run : int
    node, op_type : str
        Empty for an input of a run.
    value : str
    """

    step: int | None
    run: int
    node: str
    op_type: str
    value: str


class Values:
    """The summaries of values in a trace, made by `Trace.summarise`.

    Attributes
    ----------
    budget, nbytes : int
        Bytes that it may have, and has.
    """

    def __init__(self, trace: TraceData, summaries: ValueSummaries) -> None:
        self._trace = trace
        self._kept = summaries

    @property
    def budget(self) -> int:
        """Bytes that the summaries may have."""
        return self._kept.budget

    @property
    def nbytes(self) -> int:
        """Bytes that they have."""
        return self._kept.nbytes

    def first_nan(self) -> NotFinite | None:
        """The op whose output was the first with a NaN, or the input with one; None if there is none."""
        return self._first("nan")

    def first_inf(self) -> NotFinite | None:
        """The same for an infinite number."""
        return self._first("inf")

    def of(self, step: int, output: int | str = 0) -> Summary | None:
        """What is kept of an output of a step; None if nothing is."""
        if not 0 <= step < len(self._trace.log):
            raise KvvizError(f"step {step} does not exist; the trace has {len(self._trace.log)} steps")
        names = self._trace.log[step].op.node.outputs
        if isinstance(output, str) and output not in names:
            raise KvvizError(f"step {step} has no output {output!r}; it has {', '.join(names)}")
        slot = output if isinstance(output, int) else names.index(output)
        return self._summary((step, slot))

    def given(self, run: int, name: str) -> Summary | None:
        """What is kept of an input of a run; None if nothing is, or if it is an output of an earlier run."""
        frame = self._main(run)
        slot = next((i for i, bind in enumerate(frame.bindings) if bind.name == name), -1)
        return self._summary((-1 - run, slot))

    def attention(self, cache: int, run: int) -> np.ndarray | None:
        """Attention weights of the last query of a run, (heads, rows) of a cache; None if they are not kept."""
        for caches, made, start, weights in self._kept.attention:
            if cache in caches and made == run:
                return np.pad(weights / WHOLE, ((0, 0), (start, 0)))
        return None

    def __iter__(self) -> Iterator[Summary]:
        for key in sorted(self._kept.values, key=self._order):
            if (found := self._summary(key)) is not None:
                yield found

    def __len__(self) -> int:
        return len(self._kept.values)

    def about(self) -> str:
        """What is kept and what is not, in one sentence."""
        kept, (values, pictures, attention, steps) = self._kept.values.values(), self._kept.counted
        parts = [
            f"numbers of {len(kept):,} of {values:,} values",
            f"{sum(one.histogram is not None for one in kept):,} histograms",
            f"pictures of {sum(bool(one.pictures) for one in kept):,} of {pictures:,}",
        ]
        if attention:
            rows = sum(len(one.caches) for one in self._kept.attention)
            parts.append(f"{rows:,} of {attention:,} rows of attention")
        text = f"{', '.join(parts)}, in {self.nbytes:,} of {self.budget:,} B"
        if steps < len(self._trace.log):
            text += f"; of {steps:,} of {len(self._trace.log):,} steps"
        return text + (f"; {self._kept.missing}" if self._kept.missing else "")

    def __repr__(self) -> str:
        return f"<Values: {self.about()}>"

    def _order(self, key: Key) -> tuple[int, int, int]:
        at, slot = key
        return (at, 1, slot) if at >= 0 else (self._trace.runs[-1 - at].first, 0, slot)

    def _summary(self, key: Key) -> Summary | None:
        kept = self._kept.values.get(key)
        if kept is None:
            return None
        step, run, name = self._named(key)
        axes = kept.axes if kept.pictures else None
        return Summary(name, step, run, kept.numbers, kept.histogram, axes, kept.pictures)

    def _named(self, key: Key) -> tuple[int | None, int, str]:
        at, slot = key
        if at < 0:
            return None, -1 - at, self._main(-1 - at).bindings[slot].name
        op = self._trace.log[at]
        return at, self._trace.log.frames[op.frame].run, op.op.node.outputs[slot]

    def _main(self, run: int) -> FrameEvent:
        for frame in self._trace.log.frames:
            if frame.run == run and frame.parent is None:
                return frame
        raise KvvizError(f"run {run} does not exist")

    def _first(self, kind: str) -> NotFinite | None:
        key = self._kept.first.get(kind)
        if key is None:
            return None
        step, run, name = self._named(key)
        node = None if step is None else self._trace.log[step].op.node
        return NotFinite(step, run, node.name if node else "", node.op_type if node else "", name)
