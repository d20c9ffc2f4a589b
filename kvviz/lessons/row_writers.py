"""New rows in a cache, written by an operator of its own and by general scatters with dense row numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import parser

from kvviz.decode.public_runs import run
from kvviz.errors import OpError
from kvviz.graph.load import load
from kvviz.graph.model import Graph

Shape = tuple[int, int, int, int]  # sequences, heads, rows, numbers in a row

_HEAD = """<ir_version: 10, opset_import: ["" : 24]>
rows (float[{cache}] past, float[{new}] row, int64[{numbers}] at) => (float[{cache}] present)"""
_FORMS = {
    "TensorScatter": "{ present = TensorScatter <axis = -2> (past, row, at) }",
    "ScatterElements": "{ present = ScatterElements <axis = -2> (past, at, row) }",
    "ScatterND": """<int64[2] flat = {{-1, {size}}}, int64[4] whole = {{{cache}}}> {{
rows = Reshape (past, flat)
news = Reshape (row, flat)
written = ScatterND (rows, at, news)
present = Reshape (written, whole) }}""",
}


def write_costs(policies: Sequence[str], shape: Shape) -> list[dict[str, Any]]:
    """What writing one row of every sequence and head takes by each operator under each policy.

    Parameters
    ----------
    policies : sequence of str
    shape : tuple of int
        Sequences, heads, rows and numbers in a row of the cache, of float32.

    Returns
    -------
    list of dict
        For each operator the bytes of its row numbers, and for each policy the bytes that the run copies where the
        cache is donated.
    """
    batch, heads, capacity, size = shape
    at = np.full(batch, capacity // 2)
    starts = np.arange(batch * heads) * capacity
    every = np.full((batch, heads, 1, size), capacity // 2)
    numbers = {"TensorScatter": at, "ScatterElements": every, "ScatterND": starts[:, None] + capacity // 2}
    told = []
    for op, place in numbers.items():
        row: dict[str, Any] = {"written by": op, "row numbers": place.nbytes}
        for policy in policies:
            feeds = _feeds(shape, 1, place)
            row[policy] = run(_graph(op, shape, 1, place), feeds, donate=["past"], policy=policy).bytes_copied
        told.append(row)
    return told


def beside_tensor_scatter(
    write: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], shape: Shape, new: int, at: Sequence[int]
) -> dict[str, str]:
    """What becomes of new rows, written by a function and by `TensorScatter`.

    Parameters
    ----------
    write : callable
        Of the cache, the new rows and the first row number of each sequence; gives the new cache.
    shape : tuple of int
        Of the cache, which holds zeros.
    new : int
        Rows for each sequence and head. They hold the number of their sequence, from 1.
    at : sequence of int

    Returns
    -------
    dict
        For both: ``"right"``, ``"refused"`` with the reason, or which sequence holds what is not its own.
    """
    place = np.array(at)
    feeds = _feeds(shape, new, place)
    own = {
        "by hand": lambda: write(feeds["past"], feeds["row"], place),
        "TensorScatter": lambda: run(_graph("TensorScatter", shape, new, place), feeds).outputs["present"],
    }
    return {name: _told(make, new) for name, make in own.items()}


def _told(make: Callable[[], np.ndarray], new: int) -> str:
    try:
        cache = make()
    except (OpError, ValueError) as error:
        return f"refused: {str(error).partition(' failed: ')[2].partition(':')[0] or error}"
    for number, sequence in enumerate(cache, 1):
        others = sorted({int(held) for held in np.unique(sequence)} - {0, number})
        if others:
            return f"wrong: sequence {number} holds a row of sequence {others[0]}"
    full = all(
        (sequence == number).any(-1).sum(-1).tolist() == [new] * cache.shape[1]
        for number, sequence in enumerate(cache, 1)
    )
    return "right" if full else "wrong: a row is missing"


def row_writer(op: str, shape: Shape, new: int, numbers: tuple[int, ...]) -> onnx.ModelProto:
    """The model of one operator that writes new rows; ``numbers`` is the shape of their row numbers."""
    batch, heads, _, size = shape
    texts = {
        "cache": ",".join(map(str, shape)),
        "new": f"{batch},{heads},{new},{size}",
        "numbers": ",".join(map(str, numbers)),
        "size": str(size),
    }
    body = _FORMS[op].format(**texts) if op == "ScatterND" else _FORMS[op]
    return parser.parse_model(f"{_HEAD.format(**texts)} {body}")


def _graph(op: str, shape: Shape, new: int, numbers: np.ndarray) -> Graph:
    return load(row_writer(op, shape, new, numbers.shape))


def _feeds(shape: Shape, new: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
    batch, heads, _, size = shape
    rows = np.broadcast_to(np.arange(1, batch + 1, dtype=np.float32)[:, None, None, None], (batch, heads, new, size))
    return {"past": np.zeros(shape, np.float32), "row": rows.copy(), "at": numbers}
