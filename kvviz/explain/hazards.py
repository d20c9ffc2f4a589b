"""Hazards: two ops that touch the same bytes, one of them writing, and that only the schedule keeps in order.

An op that overwrites a value in place relies on all its other readers having run. Where a path of the graph says so,
the order is certain; where only the schedule does, another legal order would give another result. Reading a value
after its bytes were overwritten is such a pair too, and that run is wrong already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.reasons import offset_of
from kvviz.engine.rows import APPEND, IN_PLACE, NEW, PASSED, POOL, VIEW
from kvviz.explain.index import Index, index_of

# What these ask of a value is not in its bytes.
_SHAPE_ONLY = {"Shape", "Size"}
_WORK: Any = 20_000  # beyond this, bytes are taken to overlap


@dataclass(frozen=True, slots=True)
class Hazard:
    """A pair of steps of one run that only the schedule keeps in order.

    Attributes
    ----------
    kind : str
        ``"WAR"``: the first reads what the second overwrites. ``"RAW"``: the second reads bytes that the first has
        overwritten, so it does not see what the graph says. ``"WAW"``: both write.
    first, second : int
        Steps, in the order in which they ran.
    storage : int
    value : str
        The value whose bytes they share: the one that is read, or for WAW the one that is written last.
    sentence : str
    """

    kind: str
    first: int
    second: int
    storage: int
    value: str
    sentence: str


class Access(NamedTuple):
    """One step's reading or writing of bytes; ``made`` is the step from which on the value that is read exists."""

    step: int
    writes: bool
    array: np.ndarray
    value: str
    made: int


def hazards(trace: Any, run: int | None = None) -> tuple[Hazard, ...]:
    """Every hazard of a trace, or of one of its runs, in the order of the second step.

    Parameters
    ----------
    trace : Trace
    run : int, optional

    Notes
    -----
    Two runs are ordered by their caller. Two values to which a pool gave the same storage one after the other are
    ordered by the pool, and no hazard.

    Examples
    --------
    >>> [h.sentence for h in hazards(trace) if h.kind == "RAW"]             # doctest: +SKIP
    ['ReduceSum reads past after TensorScatter has overwritten it: it does not see what the graph says']
    """
    index = index_of(trace)
    runs = trace.runs if run is None else [trace.runs[run]]
    found: list[Hazard] = []
    for part in runs:
        before = _reach(index, part.first, part.last)
        for accesses in _accesses(index, part.first, part.last):
            found += _pairs(trace, accesses, before, part.first)
    return tuple(sorted(set(found), key=lambda h: (h.second, h.first, h.kind)))


def is_ordered(trace: Any, first: int, second: int) -> bool:
    """Whether a path of the graph leads from one step of a run to a later one."""
    run = trace.runs[trace.frames[trace.recorder.rows[second][0]].run]
    reach = _reach(index_of(trace), run.first, run.last)
    return bool(reach[second - run.first] >> (first - run.first) & 1)


def _pairs(trace: Any, accesses: list[Access], before: list[int], first: int) -> Iterator[Hazard]:
    for j, late in enumerate(accesses):
        for early in accesses[:j]:
            if early.step == late.step or not (early.writes or late.writes):
                continue
            if before[late.step - first] >> (early.step - first) & 1:
                continue
            kind = "WAW" if early.writes and late.writes else "RAW" if early.writes else "WAR"
            # What was written before the value was made is gone, whoever wrote it.
            if (kind == "RAW" and early.step <= late.made) or not _overlap(early.array, late.array):
                continue
            yield _hazard(trace, kind, early, late)


def _hazard(trace: Any, kind: str, early: Access, late: Access) -> Hazard:
    rows = trace.recorder.rows
    one, two = rows[early.step][1].node, rows[late.step][1].node
    a, b = (f"{one.op_type} {one.name}", f"{two.op_type} {two.name}") if one.name != two.name else (one.name, two.name)
    if kind == "WAR":
        value = early.value
        text = f"{b} overwrites {value}, which {a} reads: only the schedule runs {a} first"
    elif kind == "RAW":
        value = late.value
        text = f"{b} reads {value} after {a} has overwritten it: it does not see what the graph says"
    else:
        value = late.value
        text = f"{a} and {b} write the same bytes: only the schedule says whose stay"
    storage = next(where[0] for where in rows[late.step if late.writes else early.step][4] if where is not None)
    return Hazard(kind, early.step, late.step, storage, value, text)


def _reach(index: Index, first: int, last: int) -> list[int]:
    """For each step of a run, as bits, the steps that the graph says come before it."""
    rows = index.rows
    before: list[int] = []
    done: dict[int, int] = {}
    for step in range(first, last):
        number, planned = rows[step][0], rows[step][1]
        bits = _gate(index, number, before, done, first)
        for name in (*planned.node.inputs, *planned.node.captures):
            bits |= _made_by(index, number, name, before, first)
        if planned.control:
            # A control node is complete when its bodies are.
            for body in index.bodies.get((number, planned.node.index), ()):
                bits |= done.get(body, 0)
        before.append(bits)
        done[number] = done.get(number, 0) | bits | 1 << (step - first)
    return before


def _gate(index: Index, number: int, before: list[int], done: dict[int, int], first: int) -> int:
    """Steps that come before everything in a body: what its node reads, and the iteration before."""
    row = index.frames[number]
    if row.parent is None:
        return 0
    bits = _gate(index, row.parent, before, done, first)
    head = 1 if row.caller.node.op_type == "If" else 2 if row.caller.node.op_type == "Loop" else 0
    for name in row.caller.node.inputs[:head]:
        bits |= _made_by(index, row.parent, name, before, first)
    if row.iteration:
        siblings = index.bodies[row.parent, row.caller.node.index]
        bits |= done.get(siblings[siblings.index(number) - 1], 0)
    return bits


def _made_by(index: Index, number: int, name: str, before: list[int], first: int) -> int:
    """The step that made a value, in whichever frame, and all that came before it."""
    key: tuple[int, str] | None = (number, name)
    while key is not None and name:
        producer = index.frames[key[0]].plan.graph.producers.get(key[1])
        if producer is not None:
            step = index.step_of.get((key[0], producer.index))
            if step is None or not first <= step < first + len(before):
                return 0
            return before[step - first] | 1 << (step - first)
        key = index.outer(*key)
    return 0


def _accesses(index: Index, first: int, last: int) -> Iterator[list[Access]]:
    """Who touched the bytes of each storage, in order; a storage that a pool hands out again begins anew."""
    found: dict[int, list[Access]] = {}
    blocks: dict[int, np.ndarray] = {}
    strides = _strides(index, first, last)
    for step in range(first, last):
        number, planned, placed = index.rows[step][0], index.rows[step][1], index.rows[step][4]
        made = [where for where in placed if where is not None]
        if planned.control or all(where[2] in (VIEW, PASSED) for where in made):
            continue
        taken = {planned.node.inputs[i] for i in index.rows[step][2]}
        for name in dict.fromkeys(planned.node.inputs):
            place = index.places.get((number, name)) if name else None
            skip = planned.node.op_type in _SHAPE_ONLY or (planned.node.op_type == "Concat" and name in taken)
            if place is None or place.shape is None or skip or place.bound == "weight":
                continue
            array = _array(index, blocks, place.storage, _offset(index, number, name), place, strides)
            found.setdefault(place.storage, []).append(Access(step, False, array, name, place.step - (place.how < 0)))
        for name, where in zip(planned.node.outputs, placed):
            if where is None or where[2] in (VIEW, PASSED) or where[3] is None:
                continue
            if where[2] == POOL and where[0] in found:
                yield found.pop(where[0])
            place = index.places[number, name]
            array = _array(index, blocks, where[0], where[5] or 0, place, strides)
            if where[2] == APPEND:
                array = _new_rows(index, number, planned.node, taken, array)
            if where[2] in (IN_PLACE, APPEND, NEW, POOL):
                found.setdefault(where[0], []).append(Access(step, True, array, name, step))
    yield from found.values()


def _strides(index: Index, first: int, last: int) -> dict[int, tuple[int, ...]]:
    """The strides of each block that an op appended to; a past that the caller gave has them too."""
    rows = (row for row in index.rows[first:last] if row[2])
    return {w[0]: w[6] for row in rows for w in row[4] if w is not None and w[2] == APPEND and w[6] is not None}


def _offset(index: Index, number: int, name: str) -> int:
    """Bytes from the start of its storage to a value."""
    producer = index.frames[number].plan.graph.producers.get(name)
    step = None if producer is None else index.step_of.get((number, producer.index))
    if producer is None or step is None:
        return next((bound[6] for bound in index.frames[number].bindings if bound[0] == name), 0)
    where = index.rows[step][4][producer.outputs.index(name)]
    return offset_of(index.trace, step) if where[5] is None else where[5]


def _array(
    index: Index, blocks: dict[int, np.ndarray], storage: int, offset: int, place: Any, strides: dict[int, tuple]
) -> np.ndarray:
    """An array with the addresses of a value; its block is never touched, so it costs no memory."""
    shape, dtype = place.shape, np.dtype(place.dtype)
    dtype = np.dtype(np.intp) if dtype.hasobject else dtype
    own = place.strides
    if own is None and storage in strides and len(strides[storage]) == len(shape):
        own = strides[storage]
    block = blocks.get(storage)
    if block is None:
        block = blocks[storage] = np.empty(index.trace.recorder.ledger.storages[storage].capacity, np.uint8)
    try:
        return np.ndarray(shape, dtype, block, offset, own)
    except (TypeError, ValueError):
        return block  # its true place is not known: all of the block


def _new_rows(index: Index, number: int, node: Any, taken: set[str], present: np.ndarray) -> np.ndarray:
    """The part of a present that an append wrote."""
    pasts = [index.places[number, name].shape for name in taken if (number, name) in index.places]
    for past in pasts:
        if past is not None and len(past) == present.ndim:
            axes = [axis for axis, (n, m) in enumerate(zip(past, present.shape)) if n != m]
            if len(axes) == 1:
                return present[(slice(None),) * axes[0] + (slice(past[axes[0]], None),)]
    return present


def _overlap(one: np.ndarray, two: np.ndarray) -> bool:
    if not np.may_share_memory(one, two):
        return False
    try:
        return np.shares_memory(one, two, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True
