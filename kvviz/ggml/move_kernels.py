"""What is executed for ops that move elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.op_effects import patch_of
from kvviz.ggml.op_params import word
from kvviz.ggml.tensor import Tensor
from kvviz.ggml.tensor_data import read, stored, to_type, write
from kvviz.ggml.tensor_forms import told


def sources(node: Tensor) -> list[Tensor]:
    """The sources of a node that are there."""
    return [source for source in node.src if source is not None]


def copy(node: Tensor) -> None:
    """CPY, CONT, DUP: element by element in order, whatever the sizes."""
    source = sources(node)[0]
    raw = stored(node)
    if source.type == node.type:
        raw[...] = stored(source).reshape(raw.shape)
    else:
        write(node, read(source).reshape(node.ne[::-1]))


def patch(node: Tensor) -> None:
    """SET, ACC."""
    a, b = sources(node)
    part = patch_of(node)
    if not word(node, 4):
        stored(node)[...] = stored(a)
    write(part, read(part) + read(b) if node.op == "ACC" else read(b))


def set_rows(node: Tensor) -> None:
    """SET_ROWS: row after row, so that of equal indices the last one stays."""
    b, c = sources(node)[:2]
    target, rows, index = stored(node), to_type(read(b), node.type), read(c)
    _check(node, index, node.ne[1])
    for i3 in range(b.ne[3]):
        for i2 in range(b.ne[2]):
            chosen = index[0, i3 % c.ne[2], i2 % c.ne[1]]
            # The last one of each index, as NumPy does not promise whose values stay.
            last = {int(row): at for at, row in enumerate(chosen)}
            target[i3, i2, list(last)] = rows[i3, i2, list(last.values())]


def get_rows(node: Tensor) -> None:
    """GET_ROWS."""
    a, b = sources(node)
    table, index = read(a), read(b)
    _check(node, index, a.ne[1])
    i3, i2 = np.arange(b.ne[2])[:, None, None], np.arange(b.ne[1])[None, :, None]
    write(node, table[i3, i2, index[0]])


def _check(node: Tensor, index: np.ndarray, rows: int) -> None:
    wrong = index[(index < 0) | (index >= rows)]
    if wrong.size:
        raise KvvizError(f"{node.op} {told(node)}: the index names row {wrong[0]} of {rows}")


def repeat(node: Tensor) -> None:
    """REPEAT."""
    (a,) = sources(node)
    times = [n // m if m else 0 for n, m in zip(node.ne[::-1], a.ne[::-1])]
    write(node, np.tile(read(a), times))


def concat(node: Tensor) -> None:
    """CONCAT."""
    a, b = sources(node)
    write(node, np.concatenate([read(a), read(b)], axis=3 - word(node, 0)))


MOVES: dict[str, Callable[[Tensor], None]] = {
    "CPY": copy,
    "CONT": copy,
    "DUP": copy,
    "SET": patch,
    "ACC": patch,
    "SET_ROWS": set_rows,
    "GET_ROWS": get_rows,
    "REPEAT": repeat,
    "CONCAT": concat,
}
