"""New rows in a cache, written by an operator of its own and by general scatters with dense row numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import parser

from kvviz.decode.public_runs import run
from kvviz.errors import OpError
from kvviz.graph.loading.load import load

Shape = tuple[int, int, int, int]  # sequences, heads, rows, numbers in a row

_HEAD = """<ir_version: 10, opset_import: ["" : 24]>
rows (float[{cache}] past, float[{new}] row, int64[{numbers}] at) => (float[{cache}] present)"""
_FORMS = {
    "TensorScatter": "{{ present = TensorScatter <axis = -2> (past, row, at) }}",
    "ScatterElements": "{{ present = ScatterElements <axis = -2> (past, at, row) }}",
    "ScatterND": """<int64[2] flat = {{-1, {size}}}, int64[4] whole = {{{cache}}}> {{
rows = Reshape (past, flat)
news = Reshape (row, flat)
written = ScatterND (rows, at, news)
present = Reshape (written, whole) }}""",
}


def row_writer(op: str, shape: Shape, new: int, numbers: Sequence[int]) -> onnx.ModelProto:
    """The model of one operator that writes new rows; ``numbers`` is the shape of their row numbers."""
    batch, heads, _, size = shape
    cache, at, rows = (",".join(map(str, dims)) for dims in (shape, numbers, (batch, heads, new, size)))
    return parser.parse_model((_HEAD + _FORMS[op]).format(cache=cache, new=rows, numbers=at, size=size))


def write_costs(policies: Sequence[str], shape: Shape) -> list[dict[str, Any]]:
    """What writing one row of every sequence and head takes by each operator.

    Gives the bytes of its row numbers, and the bytes that a run with a donated cache copies under each policy.
    """
    batch, heads, capacity, size = shape
    middle = capacity // 2
    starts = np.arange(batch * heads)[:, None] * capacity
    every = np.full((batch, heads, 1, size), middle)
    table = []
    for op, at in {"TensorScatter": every[:, 0, 0, 0], "ScatterElements": every, "ScatterND": starts + middle}.items():
        graph, feeds = load(row_writer(op, shape, 1, at.shape)), _feeds(shape, 1, at)
        copied = {name: run(graph, feeds, donate=["past"], policy=name).bytes_copied for name in policies}
        table.append({"written by": op, "row numbers": at.nbytes, **copied})
    return table


def beside_tensor_scatter(
    write: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], shape: Shape, new: int, at: Sequence[int]
) -> dict[str, str]:
    """What becomes of new rows, written by a function and by `TensorScatter`: right, refused, or wrong in what.

    ``write``: of a cache of zeros, the new rows and the first row number of each sequence; gives the new cache.
    ``new``: rows for each sequence and head, at ``at``. They hold the number of their sequence, from 1.
    """
    feeds = _feeds(shape, new, np.array(at))
    graph = load(row_writer("TensorScatter", shape, new, [len(at)]))
    writers = {
        "by hand": lambda: write(feeds["past"], feeds["row"], feeds["at"]),
        "TensorScatter": lambda: run(graph, feeds).outputs["present"],
    }
    return {name: _outcome(make, new) for name, make in writers.items()}


def _outcome(make: Callable[[], np.ndarray], new: int) -> str:
    try:
        cache = make()
    except (OpError, ValueError) as error:
        return f"refused: {str(error).partition(' failed: ')[2].partition(':')[0] or error}"
    for number, sequence in enumerate(cache, 1):
        if others := sorted({int(held) for held in np.unique(sequence)} - {0, number}):
            return f"wrong: sequence {number} holds a row of sequence {others[0]}"
    full = (cache != 0).any(-1).sum(-1) == new
    return "right" if full.all() else "wrong: a row is missing"


def _feeds(shape: Shape, new: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
    batch, heads, _, size = shape
    rows = np.arange(1, batch + 1, dtype=np.float32).reshape(-1, 1, 1, 1) * np.ones((1, heads, new, size), np.float32)
    return {"past": np.zeros(shape, np.float32), "row": rows, "at": numbers}
