"""What is executed for ops that move elements, and for those that compute element by element or row by row.

Sources: ``ggml-cpu/ops.cpp``, ``unary-ops.cpp`` and ``vec.h`` of ggml (version 0.25.3). All of it is float32, also for
f16 sources; GELU goes through a table of f16, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.op_effects import patch_of
from kvviz.ggml.graph.tensor import GLU, UNARY, Tensor, described, real, word
from kvviz.ggml.graph.tensor_data import read, rounded, stored, to_type, write

_F = np.float32
_ERF = np.vectorize(erf, [np.float64])


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
        raise KvvizError(f"{node.op} {described(node)}: the index names row {wrong[0]} of {rows}")


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


def _gelu(x: np.ndarray) -> np.ndarray:
    return _F(0.5) * x * (1 + np.tanh(_F(0.79788456080286536) * x * (1 + _F(0.044715) * x * x)))


def _by_table(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of x rounded to f16, itself rounded to f16."""
    return lambda x: rounded(function(rounded(x, "f16")), "f16")


def _table_gelu(x: np.ndarray) -> np.ndarray:
    return np.where(x <= -10, _F(0), np.where(x >= 10, x, _by_table(_gelu)(x)))


def _gelu_quick(x: np.ndarray) -> np.ndarray:
    return x * (1 / (1 + np.exp(_F(-1.702) * x)))


def _gelu_erf(x: np.ndarray) -> np.ndarray:
    return _F(0.5) * x * (1 + _ERF(x * _F(0.70710678118654752)).astype(_F))


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _hard(x: np.ndarray) -> np.ndarray:
    return np.clip((x + 3) / _F(6), _F(0), _F(1))


_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ABS": np.abs,
    "SGN": np.sign,
    "NEG": np.negative,
    "STEP": lambda x: (x > 0).astype(_F),
    "TANH": np.tanh,
    "ELU": lambda x: np.where(x > 0, x, np.expm1(x)),
    "RELU": lambda x: np.maximum(x, 0),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "GELU": _table_gelu,
    "GELU_QUICK": _by_table(_gelu_quick),
    "SILU": _silu,
    "HARDSWISH": lambda x: x * _hard(x),
    "HARDSIGMOID": _hard,
    "EXP": np.exp,
    "EXPM1": np.expm1,
    "SOFTPLUS": lambda x: np.where(x > 20, x, np.log(1 + np.exp(x))),
    "GELU_ERF": _gelu_erf,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND": lambda x: np.trunc(x.astype(np.float64) + np.copysign(0.5, x)).astype(_F),
    "TRUNC": np.trunc,
    "SQR": np.square,
    "SQRT": np.sqrt,
    "LOG": np.log,
    "SIN": np.sin,
    "COS": np.cos,
}

_GLU: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "REGLU": lambda x: np.maximum(x, 0),
    "GEGLU": _by_table(_gelu),
    "SWIGLU": _silu,
    "GEGLU_ERF": _gelu_erf,
    "GEGLU_QUICK": _by_table(_gelu_quick),
}

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ADD": np.add,
    "ADD1": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
}


def _unary(node: Tensor) -> None:
    kind = UNARY[word(node, 0)] if node.op == "UNARY" else node.op
    write(node, _UNARY[kind](read(sources(node)[0])))


def _binary(node: Tensor) -> None:
    a, b = map(read, sources(node))
    times = [n // m for n, m in zip(a.shape, b.shape)]
    # NumPy repeats axes of size 1 itself.
    tiled = np.tile(b, [1 if m == 1 else n for n, m in zip(times, b.shape)])
    write(node, _BINARY[node.op](a, tiled))


def _glu(node: Tensor) -> None:
    parts = [read(source) for source in sources(node)]
    if len(parts) == 1:
        half = node.ne[0]
        parts = [parts[0][..., :half], parts[0][..., half:]]
        if word(node, 1):
            parts.reverse()
    write(node, _GLU[GLU[word(node, 0)]](parts[0]) * parts[1])


def _scale(node: Tensor) -> None:
    write(node, read(sources(node)[0]) * _F(real(node, 0)) + _F(real(node, 1)))


def _fill(node: Tensor) -> None:
    write(node, np.full((1, 1, 1, 1), real(node, 0), _F))


def _clamp(node: Tensor) -> None:
    write(node, np.clip(read(sources(node)[0]), _F(real(node, 0)), _F(real(node, 1))))


def _rms_norm(node: Tensor) -> None:
    x = read(sources(node)[0])
    mean = (x * x).mean(-1, dtype=np.float64, keepdims=True).astype(_F)
    write(node, x * (1 / np.sqrt(mean + _F(real(node, 0)))))


def _norm(node: Tensor) -> None:
    x = read(sources(node)[0])
    x = x - x.mean(-1, keepdims=True)
    write(node, x * (1 / np.sqrt((x * x).mean(-1, keepdims=True) + _F(real(node, 0)))))


def _sum(node: Tensor) -> None:
    x = read(sources(node)[0])
    axis = None if node.op == "SUM" else -1
    total = x.sum(axis, np.float64 if x.dtype == _F else None, keepdims=True)
    write(node, total / x.shape[-1] if node.op == "MEAN" else total)


def _argmax(node: Tensor) -> None:
    x = read(sources(node)[0])
    write(node, x.shape[-1] - 1 - np.argmax(x[..., ::-1], -1)[:, None])


MATHS: dict[str, Callable[[Tensor], None]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("UNARY", "SQR", "SQRT", "LOG", "SIN", "COS"), _unary),
    **dict.fromkeys(("SUM", "SUM_ROWS", "MEAN"), _sum),
    "GLU": _glu,
    "SCALE": _scale,
    "CLAMP": _clamp,
    "FILL": _fill,
    "RMS_NORM": _rms_norm,
    "NORM": _norm,
    "ARGMAX": _argmax,
}
