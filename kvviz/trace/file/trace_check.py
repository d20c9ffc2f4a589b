"""Checks that a trace read from a file is consistent, so that readers can rely on it.

A file may have been changed together with its checksum. Undefined names, steps outside every run or values beyond their
storage would otherwise fail in a reader, with an error that does not point to the file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvviz.trace.file.packed_file import expect
from kvviz.trace.index.lifetimes import UNMADE, FrameSteps, LogValues, offsets
from kvviz.trace.records import Cache
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import APPEND, BINDINGS, IN_PLACE, NEW
from kvviz.trace.schema.log import distinct
from kvviz.trace.schema.regions import Region, bounds
from kvviz.trace.trace_data import TraceData

LARGEST = 1 << 48
"""No count, size or offset in a trace is larger."""


def check_trace(trace: TraceData) -> None:
    """Raise ValueError that says what is wrong, unless a trace is consistent."""
    rows, frames, storages = trace.log, trace.log.frames, trace.log.storages
    expect(all(storage < len(storages) for storage in trace.log.later), "a storage that does not exist")
    _check_runs(trace)
    _check_growth(trace)
    _check_declared(trace)
    _check_layouts(trace)
    opened, known = 0, set[int]()
    for number, frame in enumerate(frames):
        expect(opened <= frame.opened <= len(rows), f"frame {number} opened at step {frame.opened}")
        opened = frame.opened
        expect((frame.caller is None) == (frame.parent is None), f"frame {number} without a caller")
        begins = frame.parent is not None or frame.opened == trace.runs[frame.run].first
        expect(begins, f"frame {number} in the middle of its run")
        expect(frame.parent is None or frames[frame.parent].run == frame.run, f"frame {number} in another run")
        for bind in frame.bindings:
            # Frames with equal bindings share their records.
            if id(bind) in known:
                continue
            known.add(id(bind))
            _, storage, generation, how, shape, dtype, offset = bind
            expect(how in BINDINGS, f"binding {how!r}")
            expect(generation < 1 << 31, f"generation {generation}")
            expect(storage < len(storages), f"storage {storage}")
            _check_place(storages.capacities[storage], shape, dtype, offset, None)
    if len(rows):
        _check_steps(trace)
        _check_values(trace)
    _check_caches(trace)


def _check_steps(trace: TraceData) -> None:
    """Every step runs once, in its run and frame. It works on columns: a long trace has millions of steps, and few
    programs and forms."""
    log, frames = trace.log, trace.log.frames
    frame, node = (np.array(log.column(name), np.int64) for name in ("frame", "node"))
    steps = np.arange(len(log))
    runs = [trace.runs[one.run] for one in frames]
    first, last = (np.array([getattr(run, end) for run in runs])[frame] for end in ("first", "last"))
    opened = np.array([one.opened for one in frames])[frame]
    _every((first <= steps) & (steps < last) & (opened <= steps), "step {} outside of its run")
    programs = {id(one.program): place for place, one in enumerate(frames)}
    program = np.array([programs[id(one.program)] for one in frames])[frame]
    nodes = log.nodes.entries
    pairs, _ = distinct(program * len(nodes) + node, len(frames) * len(nodes))
    for number, op in zip(*(part.tolist() for part in np.divmod(pairs, len(nodes)))):
        expect(nodes[op].node in frames[number].program.graph.nodes, f"node {nodes[op].node.name!r} in another graph")
    place = np.array([op.position for op in nodes])[node]
    places = int(place.max()) + 1
    ran, _ = distinct(frame * places + place, len(frames) * places)
    expect(len(ran) == len(log), "a step that ran before")


def _check_values(trace: TraceData) -> None:
    """Every step reads existing values, and puts its outputs into their storages."""
    log, values = trace.log, LogValues(trace.log)
    read = FrameSteps(values)
    for unmade in np.flatnonzero(read.read == UNMADE).tolist():
        step = int(read.reader()[unmade])
        name = values.ops[step].node.inputs[unmade - int(read.begins()[step])]
        # An optional input may be left out.
        if not any(value.name == name and value.kind == "optional" for value in trace.graph.inputs):
            raise ValueError(f"it has step {step} reading {name!r}, which nothing made")
    _, outs = log.tables()
    there = outs[:, 0] >= 0
    steps, outs = values.step[: len(outs)][there], outs[there]
    taken = np.array([bool(inputs) for inputs, _ in log.refusals.entries])[np.array(log.column("refusal"), np.int64)]
    _every(~taken | (np.bincount(steps, minlength=len(log)) > 0), "step {} without an output")
    viewing = np.array([bool(op.node.inputs) for op in values.ops])[steps]
    expect(bool((viewing | (outs[:, 3] >= 0)).all()), "a view by an op without inputs")
    offset = offsets(read)[: len(there)][there]
    storage, _, how, _, form = outs.T
    whole = (how == NEW) | (how == APPEND)
    kinds, kind = distinct(2 * form + whole, 2 * len(log.forms.entries))
    ends = []
    for number, entire in zip(*(part.tolist() for part in np.divmod(kinds, 2))):
        shape, dtype, strides = log.forms.entries[number]
        ends.append((0, 0) if shape is None else _extent(bool(entire), shape, dtype, 0, strides))
    low, high = np.array(ends, np.int64).reshape(-1, 2)[kind].T
    shaped = np.array([shape is not None for shape, *_ in log.forms.entries])[form]
    capacity = np.array(log.storages.capacities)[storage]
    expect(bool((abs(offset) < LARGEST).all()), "a value that is too far from its storage")
    inside = ~shaped | ((offset + low >= 0) & (offset + high <= capacity))
    if not inside.all():
        raise ValueError(f"it has an output of step {steps[int(np.argmin(inside))]} outside of its storage")


def _every(holds: np.ndarray, what: str) -> None:
    """Raise ValueError that names the first step for which something does not hold."""
    if not holds.all():
        raise ValueError(f"it has {what.format(int(np.argmin(holds)))}")


def _check_declared(trace: TraceData) -> None:
    declared, ops, storages = trace.log.declared, len(trace.log), trace.log.storages
    after = (*(free.after for free in declared.frees), *(mark.after for mark in declared.marks))
    stated = (*declared.accesses, *declared.written, *declared.times, *after)
    expect(all(op < ops for op in stated), "an op that does not exist")
    touched = [access for accesses in declared.accesses.values() for access in accesses]
    said = (*(free.storage for free in declared.frees), *(mark.storage for mark in declared.marks))
    named = (*(a.storage for a in touched), *declared.places, *said)
    expect(all(storage < len(storages) for storage in named), "a storage that does not exist")
    for access in touched:
        _inside(_check_extent(access.region), storages[access.storage].capacity)
    for op, parts in declared.written.items():
        outs = trace.log[op].outs
        for output, part in parts:
            where = outs[output] if output < len(outs) else None
            expect(where is not None and where.how in (IN_PLACE, APPEND), "rows of an output with memory of its own")
            # A part outside the storage counts as all of the storage: see `kvviz.trace.index.accesses`.
            _check_extent(part)
    expect(all(timing.start <= timing.end for timing in declared.times.values()), "an op that ends before it starts")


def _check_runs(trace: TraceData) -> None:
    last = 0
    for run in trace.runs:
        expect(last <= run.first <= run.last <= len(trace.log), f"run {run.index} of other steps")
        last = run.last
    expect(last == len(trace.log), "steps after the last run")


def _check_growth(trace: TraceData) -> None:
    """Storages grow in step order, and none by more than its final capacity."""
    last, grown = 0, Counter[int]()
    for step, storage, more in trace.log.grew:
        expect(last <= step <= len(trace.log), f"a storage that grew at step {step}")
        last = step
        grown[storage] += more
        expect(storage < len(trace.log.storages), f"storage {storage}")
        expect(grown[storage] <= trace.log.storages[storage].capacity, f"a storage that grew by {more} bytes")


def _check_layouts(trace: TraceData) -> None:
    bound = {bind.name: bind for frame in trace.log.frames[:1] for bind in frame.bindings}
    for name, layout in trace.options.layouts.items():
        bind = bound.get(name)
        expect(bind is None or bind.shape is None or len(bind.shape) == len(layout.strides), f"strides of {name!r}")
        expect(layout.offset <= layout.size, f"a place of {name!r}")
        expect(all(-LARGEST < stride < LARGEST for stride in layout.strides), f"strides of {name!r}")
        _check_place(layout.size, layout.shape, layout.dtype, layout.offset, layout.strides)
        if layout.reserved is not None:
            shape, _, axis = layout.reserved
            expect(axis < len(shape) == len(layout.strides), f"the axis that {name!r} may grow on")


def _check_place(capacity: int, shape: Sequence[int] | None, dtype: Any, offset: int, strides: Any) -> None:
    if shape is not None:
        expect(-LARGEST < offset < LARGEST, f"a value at {offset}")
        _inside(_extent(False, shape, dtype, offset, strides), capacity)


def _extent(whole: bool, shape: Sequence[int], dtype: Any, offset: int, strides: Any) -> tuple[int, int]:
    """The first byte of a value and the one behind its last; ``whole``: without strides its elements are contiguous."""
    expect(len(shape) <= 64 and (strides is None or len(strides) == len(shape)), "a shape")
    expect(math.prod(shape) < LARGEST, f"a value of {shape}")
    if strides is None:
        # A view may repeat bytes, and rten, which stores bool and int64 with the same width, reuses a buffer of one
        # for the other.
        counts, size = unit(tuple(shape), dtype)
        elements = math.prod(counts) if whole else min(math.prod(counts), 1)
        expect(size * elements < LARGEST, f"a value of {shape}")
        return offset, offset + size * elements
    return _check_extent(Region(offset, tuple(shape), tuple(strides), dtype))


def _check_extent(region: Region) -> tuple[int, int]:
    expect(len(region.shape) == len(region.strides) <= 64, "a shape")
    expect(math.prod(region.shape) < LARGEST, f"a value of {region.shape}")
    low, high = bounds(region)
    expect(-LARGEST < low <= high < LARGEST, f"a value at bytes {low} to {high}")
    return low, high


def _inside(ends: tuple[int, int], capacity: int) -> None:
    low, high = ends
    expect(low >= 0 and high <= capacity, f"a value at bytes {low} to {high} of {capacity}")


def _check_caches(trace: TraceData) -> None:
    """Every cache is an input and an output of the main graph, has as many entries as there are runs, and an axis that
    exists. Where a model declares no shapes, one of the two may have fewer axes than the other. A cache that is written
    in place, without an output name of its own, is its own output."""
    inputs, outputs = ({value.name for value in values} for values in (trace.graph.inputs, trace.graph.outputs))
    for cache in trace.caches:
        expect(cache.input in inputs and cache.output in {*outputs, cache.input}, f"cache {cache.name!r}")
        expect(len(cache.runs) <= len(trace.runs), f"cache {cache.name!r} in {len(cache.runs)} runs")
        for run in cache.runs:
            for rows in run.items:
                spans = [*rows.wrote, *(rows.read or ()), *((a, b) for a, b, _ in rows.held)]
                spans += [*((a, b) for a, b, _ in rows.notes), *((a, b) for a, b, *_ in rows.owners)]
                expect(all(0 <= a <= b <= run.capacity for a, b in spans), f"rows of cache {cache.name!r}")
        if cache.axis is not None:
            ranks = _ranks(trace, cache)
            fits = cache.axis < next(ranks, LARGEST) or any(cache.axis < rank for rank in ranks)
            expect(cache.axis >= 0 and fits, f"axis {cache.axis} of a cache")


def _ranks(trace: TraceData, cache: Cache) -> Iterator[int]:
    """The numbers of axes of a cache, declared by the graph and observed in main frames."""
    log = trace.log
    inputs, outputs = trace.graph.inputs, trace.graph.outputs
    yield from (len(v.shape) for v in inputs if v.name == cache.input and v.shape is not None)
    yield from (len(v.shape) for v in outputs if v.name == cache.output and v.shape is not None)
    for number, frame in enumerate(log.frames):
        if frame.parent is None:
            producer, made = frame.program.graph.producers.get(cache.output), None
            if producer is not None and (step := log.step_of(number, producer.index)) is not None:
                made = log.output(step, producer.outputs.index(cache.output))
            had = (frame.bound(cache.input), frame.bound(cache.output), made)
            yield from (len(one.shape) for one in had if one is not None and one.shape is not None)
