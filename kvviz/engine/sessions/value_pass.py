"""Adding summaries of values to a recording: its runs are repeated once, and each value is summarised as it is made.

This happens on request only, never while a graph runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from kvviz.caches.cache_heat import Source, known_of, row_of, sources
from kvviz.caches.control_values import Known
from kvviz.engine.execution import Execution
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.engine.sessions.replay import Replayer, repeated_runs
from kvviz.errors import KvvizError, ReplayError
from kvviz.graph.cache_pairs import logits_output
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.schema.events import VIEW
from kvviz.trace.value_numbers import Seen, as_bytes, axes_of, has_numbers, plan
from kvviz.trace.value_summaries import Collector, Counted, Key
from kvviz.trace.values_view import Values

if TYPE_CHECKING:
    from kvviz.trace.recording import Trace


class Weighed(NamedTuple):
    """Attention weights that one value of a run shows, for the caches with these numbers."""

    source: Source
    known: Known
    caches: list[int]
    run: int
    cells: int


def summarise(trace: Trace, budget: int | str) -> Values | None:
    if trace.dry:
        raise ReplayError("there are no values to look at: a dry run works out layouts and no numbers")
    own = getattr(trace.replayer, "summarise", None)
    if own is not None:
        return cast("Values | None", own(trace, budget))
    limit = as_bytes(budget)
    if not limit:
        trace.value_summaries = None
        return None
    if trace.replayer is None:
        raise ReplayError("there are no values to look at: this trace was loaded from a file")
    if not len(trace.log):
        raise ReplayError("there are no values to look at: no step was recorded")
    seen = list(_seen(trace))
    weighed = list(_weighed(trace))
    # Caches that share their weights take up cells once, and a row of the table each.
    costs = [one.cells if i == 0 else 0 for one in weighed for i in range(len(one.caches))]
    chosen = plan(seen, costs, limit)
    rows: dict[Key, list[Weighed]] = defaultdict(list)
    left = chosen.attention
    for one in weighed:
        kept = one.caches[: max(left, 0)]
        left -= len(one.caches)
        if kept:
            rows[one.source.step, one.source.output].append(one._replace(caches=kept))
    collector = Collector(chosen)
    steps, missing = 0, ""
    try:
        for at, values in _values(trace):
            for slot, value in values:
                collector.add(at, slot, value)
                for one in rows.get((at, slot), ()):
                    _attend(trace, collector, one, value)
            steps += at >= 0
    except ReplayError as error:
        missing = str(error)
    pictures = sum(axes_of(one.shape) is not None for one in seen)
    counted = Counted(len(seen), pictures, len(costs), steps)
    trace.value_summaries = collector.done(limit, counted, missing)
    return trace.values


def _seen(trace: Trace) -> Iterator[Seen]:
    """All values that could be kept: caches and logits first, views, whose contents lie elsewhere, last."""
    first = {cache.output for cache in trace.caches}
    with suppress(KvvizError):  # no decoder
        first.add(logits_output(trace.graph) or "")
    frames = trace.log.frames
    for step, row in enumerate(trace.log):
        outermost = frames[row.frame].parent is None
        for slot, (name, out) in enumerate(zip(row.op.node.outputs, row.outs)):
            if out is not None and out.shape is not None and has_numbers(out.shape, out.dtype):
                rank = 0 if outermost and name in first else 2 if out.how == VIEW else 1
                yield Seen(step, slot, rank, nbytes(out.shape, out.dtype), out.shape)
    for run, frame in _mains(trace):
        entry = trace.replayer.runs[run]
        for slot, bind in enumerate(frame.bindings):
            if bind.how == "weight" or bind.shape is None or entry is None or bind.name in entry.carried:
                continue
            if has_numbers(bind.shape, bind.dtype):
                yield Seen(-1 - run, slot, 1, nbytes(bind.shape, bind.dtype), bind.shape)


def _mains(trace: Trace) -> Iterator[tuple[int, Any]]:
    for frame in trace.log.frames:
        if frame.parent is None and frame.run < len(trace.replayer.runs):
            yield frame.run, frame


def _weighed(trace: Trace) -> Iterator[Weighed]:
    for run in range(max((len(cache.runs) for cache in trace.caches), default=0)):
        frames = RunFrames(trace, run)
        if not frames.rows or trace.replayer.runs[run] is None or trace.runs[run].first == trace.runs[run].last:
            continue
        known = known_of(trace, frames)
        found: dict[Key, tuple[Source, list[int], int]] = {}
        for number, cache in enumerate(trace.caches):
            if run >= len(cache.runs):
                continue
            for source in sources(trace, cache, frames, known):
                out = trace.log[source.step].outs[source.output]
                if out is not None and out.shape is not None and len(out.shape) == 4:
                    _, heads, _, keys = out.shape
                    found.setdefault((source.step, source.output), (source, [], heads * keys))[1].append(number)
                    break
        for source, numbers, cells in found.values():
            yield Weighed(source, known, numbers, run, cells)


def _attend(trace: Trace, collector: Collector, one: Weighed, value: Any) -> None:
    row = row_of(one.known, one.source, value)
    if row is None:
        return
    start, weights = row
    stop = start + weights.shape[1]
    # Caches of one layer have equal lengths.
    low, high = max(start, 0), max(start, 0, min(stop, trace.caches[one.caches[0]].runs[one.run].capacity))
    collector.attend(one.caches, one.run, low, weights[:, low - start : high - start])


def attention_by_run(trace: Trace, cache: int) -> dict[int, np.ndarray]:
    """By run, the attention weights of its last query for the rows of a cache, (heads, rows), as `attention` of
    `kvviz.caches.cache_heat` returns them; but all runs are repeated together. Runs that show none are left out."""
    shown = {one.source.step: one for one in _weighed(trace) if cache in one.caches}
    found: dict[int, np.ndarray] = {}
    for at, values in _values(trace):
        if (one := shown.get(at)) is None:
            continue
        if row := row_of(one.known, one.source, dict(values)[one.source.output]):
            start, weights = row
            found[one.run] = np.pad(weights[:, max(-start, 0) :], ((0, 0), (max(start, 0), 0)))
    return found


class _Watched(Execution):
    """An execution that shows the outputs of the last op before they are released."""

    made: list[tuple[int, Any]]

    def note(self, frame: Frame, planned: PlannedNode, *row: Any) -> None:
        self.made = [(i, frame.vals[slot]) for i, slot in enumerate(planned.outputs) if slot]
        super().note(frame, planned, *row)


def _values(trace: Trace) -> Iterator[tuple[int, list[tuple[int, Any]]]]:
    """The inputs of each run and the outputs of each step, in recorded order, as (at, [(slot, value)]). Raises
    `ReplayError` with the reason if later values cannot be computed."""
    replayer: Replayer = trace.replayer
    needed: set[int] = set()
    missing = ""
    for run in (run.index for run in trace.runs if run.last > run.first):
        chain = replayer.chain(run)
        if not chain:
            missing = f"the inputs of run {run} were not kept"
            break
        needed.update(chain)
    for rerun in repeated_runs(trace, sorted(needed), _Watched):
        assert isinstance(rerun.execution, _Watched)
        main = next((frame for frame in trace.log.frames if frame.run == rerun.run), None)
        bound = enumerate(main.bindings if main is not None else ())
        given = [(slot, bind.name) for slot, bind in bound if bind.how != "weight" and bind.name in rerun.given]
        yield -1 - rerun.run, [(slot, rerun.given[name]) for slot, name in given]
        for step in rerun.steps(len(trace.log)):
            yield step, rerun.execution.made
    if missing:
        raise ReplayError(missing)
