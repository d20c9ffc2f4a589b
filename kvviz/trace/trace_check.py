"""Whether a trace that was read from a file makes sense as a whole, so that its readers need not doubt it.

A file may be changed by somebody who also renews its checksum. Names that nothing made, steps outside of every run or
values that do not fit into their storage would break readers far from here, each in its own way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kvviz.trace.element_types import unit
from kvviz.trace.events import APPEND, BINDINGS, IN_PLACE, NEW
from kvviz.trace.reasons import offset_of
from kvviz.trace.regions import Region, bounds, packed_strides
from kvviz.trace.trace_data import TraceData

LARGEST = 1 << 48
"""No count, size or offset in a trace is larger."""


def check_trace(trace: TraceData) -> None:
    """Raise ValueError, with what is wrong, unless a trace is consistent."""
    rows, frames, storages = trace.log, trace.log.frames, trace.log.storages
    _expect(all(storage < len(storages) for storage in trace.log.later), "a storage that there is not")
    _check_runs(trace)
    _check_growth(trace)
    _check_declared(trace)
    _check_layouts(trace)
    known: list[set[str]] = []
    opened = 0
    for number, frame in enumerate(frames):
        _expect(opened <= frame.opened <= len(rows), f"frame {number} opened at step {frame.opened}")
        opened = frame.opened
        _expect((frame.caller is None) == (frame.parent is None), f"frame {number} without a caller")
        begins = frame.parent is not None or frame.opened == trace.runs[frame.run].first
        _expect(begins, f"frame {number} in the middle of its run")
        _expect(frame.parent is None or frames[frame.parent].run == frame.run, f"frame {number} in another run")
        for _, storage, generation, how, shape, dtype, offset in frame.bindings:
            _expect(how in BINDINGS, f"binding {how!r}")
            _expect(generation < 1 << 31, f"generation {generation}")
            _expect(storage < len(storages), f"storage {storage}")
            _check_place(storages[storage].capacity, False, shape, dtype, offset, None)
        known.append({bound.name for bound in frame.bindings})
    seen: set[tuple[int, int]] = set()
    for index, row in enumerate(rows):
        number, planned, taken, _, placed, _, *counts = row
        run = trace.runs[frames[number].run]
        _expect(run.first <= index < run.last and frames[number].opened <= index, f"step {index} outside of its run")
        _expect(all(-LARGEST < count < LARGEST for count in counts), f"a number of step {index}")
        _expect(planned.node in frames[number].program.graph.nodes, f"step {index} of another graph")
        _expect((number, planned.position) not in seen, f"step {index}, which ran before")
        seen.add((number, planned.position))
        unmade = {name for name in planned.node.inputs if name} - known[number]
        _expect(not unmade, f"step {index} reading {min(unmade, default='')!r}, which nothing made")
        _expect(not taken or any(where is not None for where in placed), f"step {index} without an output")
        for name, where in zip(planned.node.outputs, placed):
            if where is not None and name:
                offset = offset_of(trace, index) if where.offset is None else where.offset
                whole = where.how in (NEW, APPEND)
                _check_place(storages[where.storage].capacity, whole, where.shape, where.dtype, offset, where.strides)
                known[number].add(name)
    _check_caches(trace)


def _check_declared(trace: TraceData) -> None:
    """Everything that was declared is about an op and a storage that there are."""
    declared, ops, storages = trace.log.declared, len(trace.log), trace.log.storages
    after = (*(free.after for free in declared.frees), *(mark.after for mark in declared.marks))
    told = (*declared.accesses, *declared.written, *declared.times, *after)
    _expect(all(op < ops for op in told), "an op that there is not")
    touched = [access for accesses in declared.accesses.values() for access in accesses]
    said = (*(free.storage for free in declared.frees), *(mark.storage for mark in declared.marks))
    named = (*(a.storage for a in touched), *declared.places, *said)
    _expect(all(storage < len(storages) for storage in named), "a storage that there is not")
    for access in touched:
        _check_region(access.region, storages[access.storage].capacity)
    for op, parts in declared.written.items():
        outs = trace.log[op].outs
        for output, part in parts:
            where = outs[output] if output < len(outs) else None
            _expect(where is not None and where.how in (IN_PLACE, APPEND), "rows of an output with memory of its own")
            # What does not lie in the storage is read as all of it: see `kvviz.trace.accesses`.
            _check_extent(part)
    _expect(all(timing.start <= timing.end for timing in declared.times.values()), "an op that ends before it starts")


def _check_runs(trace: TraceData) -> None:
    last = 0
    for run in trace.runs:
        _expect(last <= run.first <= run.last <= len(trace.log), f"run {run.index} of other steps")
        last = run.last
    _expect(last == len(trace.log), "steps after the last run")


def _check_growth(trace: TraceData) -> None:
    """Storages grow one step after the other, and no storage by more than it has at the end."""
    last, grown = 0, Counter[int]()
    for step, storage, more in trace.log.grew:
        _expect(last <= step <= len(trace.log), f"a storage that grew at step {step}")
        last = step
        grown[storage] += more
        _expect(storage < len(trace.log.storages), f"storage {storage}")
        _expect(grown[storage] <= trace.log.storages[storage].capacity, f"a storage that grew by {more} bytes")


def _check_layouts(trace: TraceData) -> None:
    """The caller's arrays have as many strides as axes, and lie in their blocks."""
    bound = {bind.name: bind for frame in trace.log.frames[:1] for bind in frame.bindings}
    for name, layout in trace.options.layouts.items():
        bind = bound.get(name)
        _expect(bind is None or bind.shape is None or len(bind.shape) == len(layout.strides), f"strides of {name!r}")
        _expect(layout.offset <= layout.size, f"a place of {name!r}")
        _expect(all(-LARGEST < stride < LARGEST for stride in layout.strides), f"strides of {name!r}")
        _check_place(layout.size, False, layout.shape, layout.dtype, layout.offset, layout.strides)
        if layout.reserved is not None:
            shape, _, axis = layout.reserved
            _expect(axis < len(shape) == len(layout.strides), f"the axis that {name!r} may grow on")


def _check_place(
    capacity: int, whole: bool, shape: Sequence[int] | None, dtype: Any, offset: int, strides: Any
) -> None:
    """A value lies inside of its storage; ``whole``: where no strides are told, its elements lie side by side."""
    if shape is None:
        return
    _expect(len(shape) <= 64 and (strides is None or len(strides) == len(shape)), "a shape")
    _expect(-LARGEST < offset < LARGEST and math.prod(shape) < LARGEST, f"a value at {offset}")
    if strides is None:
        # A view may show the same bytes again and again, and rten, to which truths and numbers of eight bytes are
        # of one size, puts the ones where the others were.
        strides = packed_strides(*unit(tuple(shape), dtype)) if whole else (0,) * len(shape)
    _check_region(Region(offset, tuple(shape), tuple(strides), dtype), capacity)


def _check_extent(region: Region) -> tuple[int, int]:
    _expect(len(region.shape) == len(region.strides) <= 64, "a shape")
    _expect(math.prod(region.shape) < LARGEST, f"a value of {region.shape}")
    low, high = bounds(region)
    _expect(-LARGEST < low <= high < LARGEST, f"a value at bytes {low} to {high}")
    return low, high


def _check_region(region: Region, capacity: int) -> None:
    low, high = _check_extent(region)
    _expect(low >= 0 and high <= capacity, f"a value at bytes {low} to {high} of {capacity}")


def _check_caches(trace: TraceData) -> None:
    """Every cache is an input and an output of the main graph, as often as there are runs, on an axis that it has.

    Where a model declares no shapes, one of the two may turn out to have fewer axes than the other. A cache that is
    written where it lies, and by no name of its own, is its own output.
    """
    graph = trace.graph
    inputs, outputs = ({value.name: value for value in values} for values in (graph.inputs, graph.outputs))
    for cache in trace.caches:
        _expect(cache.input in inputs and cache.output in {*outputs, cache.input}, f"cache {cache.name!r}")
        _expect(len(cache.runs) <= len(trace.runs), f"cache {cache.name!r} in {len(cache.runs)} runs")
        for run in cache.runs:
            for rows in run.items:
                spans = [*rows.wrote, *(rows.read or ()), *((a, b) for a, b, _ in rows.held)]
                spans += [*((a, b) for a, b, _ in rows.notes), *((a, b) for a, b, *_ in rows.owners)]
                _expect(all(0 <= a <= b <= run.capacity for a, b in spans), f"rows of cache {cache.name!r}")
        if cache.axis is not None:
            shapes = _shapes_of(trace, (cache.input, cache.output))
            declared = inputs[cache.input].shape, {**inputs, **outputs}[cache.output].shape
            ranks = [len(shape) for shape in (*shapes, *declared) if shape is not None]
            _expect(0 <= cache.axis < max(ranks, default=LARGEST), f"axis {cache.axis} of a cache")


def _shapes_of(trace: TraceData, names: tuple[str, ...]) -> Iterable[Sequence[int] | None]:
    mains = {number for number, frame in enumerate(trace.log.frames) if frame.parent is None}
    for number in mains:
        yield from (bound.shape for bound in trace.log.frames[number].bindings if bound.name in names)
    for row in trace.log:
        if row.frame in mains:
            yield from (w.shape for name, w in zip(row.op.node.outputs, row.outs) if w is not None and name in names)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"it tells of {what}")
