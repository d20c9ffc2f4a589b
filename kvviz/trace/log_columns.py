"""A log as columns of whole numbers and a few tables, as they lie in a file.

Columns are little-endian, 8 bytes a number, as the log holds them; what a log refers to by object has a number in a
table: nodes, refusals (positions taken, masks), and forms (shape, element type, strides).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kvviz.trace.events import HOW
from kvviz.trace.log import FACTS, FORM, FREE, OP, OUT, Log
from kvviz.trace.program import OpNode
from kvviz.trace.storages import ORIGINS

COLUMNS = ("op", "fact", "out", "form", "free", "capacity", "origin")
_LARGEST = 1 << 48


def pack(log: Log, node_number: Mapping[int, int]) -> tuple[dict[str, bytes], list[Any], list[Any]]:
    """Columns, refusals and forms of a log; ``node_number`` has the number of each `OpNode` by its id."""
    log.settle()
    refusals: dict[Any, int] = {}
    forms: dict[Any, int] = {}
    ops, taken, masks = (log.facts[k::FACTS] for k in range(FACTS))
    facts = np.empty((len(ops), 2), "<i8")
    facts[:, 0] = [node_number[id(op)] for op in ops]
    facts[:, 1] = [refusals.setdefault(pair, len(refusals)) for pair in zip(taken, masks)]
    shapes, dtypes, strides = (log.forms[k::FORM] for k in range(FORM))
    names = {id(dtype): str(dtype) for dtype in dtypes}
    named = (names[id(dtype)] for dtype in dtypes)
    form = np.array([forms.setdefault(key, len(forms)) for key in zip(shapes, named, strides)], "<i8")
    numbers = {
        "op": log.numbers,
        "fact": facts,
        "out": log.outs,
        "form": form,
        "free": log.frees,
        "capacity": log.storages.capacities,
        "origin": log.storages.origins,
    }
    return {name: np.asarray(column, "<i8").tobytes() for name, column in numbers.items()}, list(refusals), list(forms)


def unpack(
    log: Log, columns: Mapping[str, bytes], nodes: Sequence[OpNode], refusals: Sequence[Any], forms: Sequence[Any]
) -> None:
    """Fill a log, whose frames are there already, from columns that may hold anything.

    Raises `ValueError`: with what is wrong.
    """
    op, fact, out, form, free, capacity, origin = (np.frombuffer(columns[name], "<i8") for name in COLUMNS)
    for column, width, what in ((op, OP, "op"), (fact, 2, "op"), (out, OUT, "output"), (free, FREE, "free")):
        _expect(len(column) % width == 0, f"a part of an {what}")
    op, fact, out, free = op.reshape(-1, OP), fact.reshape(-1, 2), out.reshape(-1, OUT), free.reshape(-1, FREE)
    _expect(len(op) == len(fact) and len(out) == len(form) and len(capacity) == len(origin), "columns of other lengths")
    _within(op[:, 0], 0, len(log.frames), "frame")
    _within(op[:, 1:5], 1 - _LARGEST, _LARGEST, "number of bytes")
    _within(fact[:, 0], 0, len(nodes), "node")
    _within(fact[:, 1], 0, len(refusals), "refusal")
    ends = op[:, 5]
    _expect(len(out) == (ends[-1] if len(ends) else 0), "outputs of no op")
    counts = [len(nodes[n].node.outputs) for n in fact[:, 0].tolist()]
    made = np.diff(ends, prepend=0)
    _expect(bool(((made >= 0) & (made <= counts)).all()), "an op with more outputs than its node has")
    there = out[:, 0] >= 0
    _within(out[:, 0], -1, len(capacity), "storage")
    _within(out[:, 1], 0, 1 << 31, "generation")
    _within(out[:, 2], 0, len(HOW), "way to lie in a storage")
    _within(out[:, 3], -1, _LARGEST, "offset")
    _within(form, 0, max(len(forms), 1), "form")
    _expect(len(forms) > 0 or not len(form), "forms")
    _within(free[:, 0], 0, len(op), "free after an op")
    _within(free[:, 1], 0, len(capacity), "storage")
    _expect(all(a <= b for a, b in pairwise(free[:, 0].tolist())), "frees in no order")
    _within(capacity, 0, _LARGEST, "capacity")
    _within(origin, 0, len(ORIGINS), "origin")
    for number, refusal in {tuple(pair) for pair in fact.tolist()}:
        given = {position for position, name in enumerate(nodes[number].node.inputs) if name}
        taken, masks = refusals[refusal]
        _expect(given.issuperset((*taken, *(i for i, _ in masks))), "an input that the node does not have")
    log.numbers, log.outs, log.frees = (_array(column) for column in (op, out, free))
    log.facts = [part for n, r in fact.tolist() for part in (nodes[n], *refusals[r])]
    nothing = (None, None, None)
    log.forms = [part for here, n in zip(there.tolist(), form.tolist()) for part in (forms[n] if here else nothing)]
    log.storages.capacities, log.storages.origins = _array(capacity), array("b", origin.tolist())
    log.columns_are_whole()


def _array(column: np.ndarray) -> array[int]:
    made = array("q")
    made.frombytes(np.ascontiguousarray(column, "<i8").tobytes())
    if sys.byteorder == "big":
        made.byteswap()
    return made


def _within(column: np.ndarray, low: int, high: int, what: str) -> None:
    if column.size:
        worst = int(column.min()) if column.min() < low else int(column.max())
        _expect(low <= worst < high, f"{what} {worst}")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"it tells of {what}")
