"""What is executed for each op.

Sources: ``ggml-cpu/ops.cpp``, ``unary-ops.cpp``, ``vec.h`` and ``ggml-cpu.c`` of ggml (version 0.25.3). Everything is
float32, also for f16 sources, with two exceptions: GELU uses a table of f16, and FLASH_ATTN_EXT adds values of f16 in
f16. As in ggml, the second factor of a product is converted to the type in which the first one is multiplied.
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


def copy(node: Tensor) -> None:
    """CPY, CONT, DUP: element by element in order, whatever the sizes."""
    source = node.sources[0]
    raw = stored(node)
    if source.type == node.type:
        raw[...] = stored(source).reshape(raw.shape)
    else:
        write(node, read(source).reshape(node.ne[::-1]))


def patch(node: Tensor) -> None:
    a, b = node.sources
    part = patch_of(node)
    if not word(node, 4):
        stored(node)[...] = stored(a)
    write(part, read(part) + read(b) if node.op == "ACC" else read(b))


def set_rows(node: Tensor) -> None:
    """SET_ROWS: row by row, so that the last of equal indices wins."""
    b, c = node.sources[:2]
    target, rows, index = stored(node), to_type(read(b), node.type), read(c)
    _check(node, index, node.ne[1])
    for i3 in range(b.ne[3]):
        for i2 in range(b.ne[2]):
            chosen = index[0, i3 % c.ne[2], i2 % c.ne[1]]
            # The last of each index: NumPy does not promise which of equal indices wins.
            last = {int(row): at for at, row in enumerate(chosen)}
            target[i3, i2, list(last)] = rows[i3, i2, list(last.values())]


def get_rows(node: Tensor) -> None:
    a, b = node.sources
    table, index = read(a), read(b)
    _check(node, index, a.ne[1])
    i3, i2 = np.arange(b.ne[2])[:, None, None], np.arange(b.ne[1])[None, :, None]
    write(node, table[i3, i2, index[0]])


def _check(node: Tensor, index: np.ndarray, rows: int) -> None:
    wrong = index[(index < 0) | (index >= rows)]
    if wrong.size:
        raise KvvizError(f"{node.op} {described(node)}: the index names row {wrong[0]} of {rows}")


def repeat(node: Tensor) -> None:
    (a,) = node.sources
    times = [n // m if m else 0 for n, m in zip(node.ne[::-1], a.ne[::-1])]
    write(node, np.tile(read(a), times))


def concat(node: Tensor) -> None:
    a, b = node.sources
    write(node, np.concatenate([read(a), read(b)], axis=3 - word(node, 0)))


def _gelu(x: np.ndarray) -> np.ndarray:
    return _F(0.5) * x * (1 + np.tanh(_F(0.79788456080286536) * x * (1 + _F(0.044715) * x * x)))


def _by_table(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
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
    write(node, _UNARY[kind](read(node.sources[0])))


def _binary(node: Tensor) -> None:
    a, b = map(read, node.sources)
    times = [n // m for n, m in zip(a.shape, b.shape)]
    # NumPy repeats axes of size 1 itself.
    tiled = np.tile(b, [1 if m == 1 else n for n, m in zip(times, b.shape)])
    write(node, _BINARY[node.op](a, tiled))


def _glu(node: Tensor) -> None:
    parts = [read(source) for source in node.sources]
    if len(parts) == 1:
        half = node.ne[0]
        parts = [parts[0][..., :half], parts[0][..., half:]]
        if word(node, 1):
            parts.reverse()
    write(node, _GLU[GLU[word(node, 0)]](parts[0]) * parts[1])


def _rms_norm(node: Tensor) -> None:
    x = read(node.sources[0])
    mean = (x * x).mean(-1, dtype=np.float64, keepdims=True).astype(_F)
    write(node, x * (1 / np.sqrt(mean + _F(real(node, 0)))))


def _norm(node: Tensor) -> None:
    x = read(node.sources[0])
    x = x - x.mean(-1, keepdims=True)
    write(node, x * (1 / np.sqrt((x * x).mean(-1, keepdims=True) + _F(real(node, 0)))))


def _sum(node: Tensor) -> None:
    x = read(node.sources[0])
    axis = None if node.op == "SUM" else -1
    total = x.sum(axis, np.float64 if x.dtype == _F else None, keepdims=True)
    write(node, total / x.shape[-1] if node.op == "MEAN" else total)


def _argmax(node: Tensor) -> None:
    x = read(node.sources[0])
    write(node, x.shape[-1] - 1 - np.argmax(x[..., ::-1], -1)[:, None])


def _spread(array: np.ndarray, like: tuple[int, ...]) -> np.ndarray:
    """Repeat entries of the first two axes one by one: heads that share a KV head are neighbours."""
    for axis in (0, 1):
        array = np.repeat(array, like[axis] // array.shape[axis], axis)
    return array


def _product(a: np.ndarray, b: np.ndarray, type_: str) -> np.ndarray:
    return np.matmul(rounded(b, type_), _spread(a, b.shape).swapaxes(-1, -2))


def _mul_mat(node: Tensor) -> None:
    a, b = node.sources
    write(node, _product(read(a), read(b), a.type))


def _slopes(heads: int, max_bias: float) -> np.ndarray:
    """Weights of the mask by head (ALiBi), (heads, 1, 1)."""
    if max_bias <= 0:
        return np.ones((1, 1, 1), _F)
    power = 1 << int(np.floor(np.log2(heads)))
    low, high = 2.0 ** (-max_bias / power), 2.0 ** (-max_bias / 2 / power)
    each = [low ** (h + 1) if h < power else high ** (2 * (h - power) + 1) for h in range(heads)]
    return np.array(each, _F).reshape(-1, 1, 1)


def _mask(mask: Tensor, shape: tuple[int, ...], max_bias: float) -> np.ndarray:
    """A mask for scores of a shape; it repeats over heads and batches."""
    found = read(mask)[:, :, : shape[2]]
    found = np.tile(found, (shape[0] // found.shape[0], shape[1] // found.shape[1], 1, 1))
    return _slopes(shape[1], max_bias) * found


def _soft_max(node: Tensor) -> None:
    a, *mask = node.sources
    x = read(a) * _F(real(node, 0))
    if mask:
        x = x + _mask(mask[0], x.shape, real(node, 1))
    x = np.exp(x - x.max(-1, keepdims=True))
    write(node, x * (1 / x.sum(-1, dtype=np.float64, keepdims=True)).astype(_F))


def _diag_mask(node: Tensor) -> None:
    x = read(node.sources[0])
    right = np.arange(x.shape[-1]) > word(node, 0) + np.arange(x.shape[-2])[:, None]
    write(node, np.where(right, _F(-np.inf) if node.op == "DIAG_MASK_INF" else _F(0), x))


def _angles(node: Tensor, positions: np.ndarray, factors: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, (positions, n_dims / 2), with YaRN's correction where ``ext_factor`` is not 0."""
    n_dims, n_ctx = word(node, 1), word(node, 4)
    base, scale, ext, attn, fast, slow = (_F(real(node, place)) for place in range(5, 11))
    steps = np.full((len(positions), n_dims // 2), _F(np.power(base, _F(-2.0) / _F(n_dims))), _F)
    steps[:, 0] = positions
    theta = np.multiply.accumulate(steps, axis=1)
    if factors is not None:
        theta = theta / factors[: n_dims // 2]
    turned = scale * theta
    if ext:
        low, high = (_correction(n_dims, n_ctx, float(beta), float(base)) for beta in (fast, slow))
        low, high = max(0.0, float(np.floor(low))), min(n_dims - 1.0, float(np.ceil(high)))
        ramp = (np.arange(n_dims // 2, dtype=_F) - _F(low)) / _F(max(0.001, high - low))
        mix = (1 - np.clip(ramp, _F(0), _F(1))) * ext
        turned = turned * (1 - mix) + theta * mix
        attn = attn * (1 + _F(0.1) * np.log(1 / scale))
    return np.cos(turned) * attn, np.sin(turned) * attn


def _correction(n_dims: int, n_ctx: int, beta: float, base: float) -> float:
    with np.errstate(all="ignore"):
        return float(n_dims * np.log(np.float64(n_ctx) / (beta * 2 * np.pi)) / (2 * np.log(base)))


def _rope(node: Tensor) -> None:
    a, b, *factors = node.sources
    x = read(a)
    n_dims = word(node, 1)
    cos, sin = _angles(node, read(b).reshape(-1), read(factors[0]).reshape(-1) if factors else None)
    cos, sin = cos[:, None, :], sin[:, None, :]  # the same for all heads, which lie behind positions
    half = n_dims // 2
    first, second = (slice(half), slice(half, n_dims)) if word(node, 2) else (slice(0, n_dims, 2), slice(1, n_dims, 2))
    made = x.copy()
    made[..., first] = x[..., first] * cos - x[..., second] * sin
    made[..., second] = x[..., first] * sin + x[..., second] * cos
    write(node, made)


def _flash_attn_ext(node: Tensor) -> None:
    q, k, v, *mask = node.sources
    scale, max_bias, softcap = (_F(real(node, place)) for place in range(3))
    scores = _product(read(k), read(q), k.type) * (scale / softcap if softcap else scale)
    if softcap:
        scores = softcap * np.tanh(scores)
    keep = np.ones((1, 1, 1, 1), bool)
    if mask:
        extra = _mask(mask[0], scores.shape, float(max_bias))
        keep = extra != -np.inf
        # Masked rows are not read, even where the cache holds NaN.
        scores = np.where(keep, scores + extra, _F(-np.inf))
    keep = np.broadcast_to(keep, scores.shape)
    if v.type == "f16":
        write(node, _weighed_in_f16(scores, _spread(read(v), scores.shape), keep).transpose(0, 2, 1, 3))
        return
    top = scores.max(-1, keepdims=True)
    weights = np.where(keep, np.exp(scores - np.where(np.isfinite(top), top, 0)), _F(0))
    total = weights.sum(-1, keepdims=True)
    made = _weighed(weights, _spread(read(v), scores.shape), keep)
    write(node, np.where(total, made / np.where(total, total, 1), 0).transpose(0, 2, 1, 3))


def _weighed_in_f16(scores: np.ndarray, values: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Weighted means as ggml adds them up, row by row: the sum is f16, and is scaled again whenever a larger score
    comes (``ggml_compute_forward_flash_attn_ext_f16_one_chunk``)."""
    made = np.zeros((*scores.shape[:3], values.shape[-1]), np.float16)
    top, total = np.full(scores.shape[:3], -np.inf, _F), np.zeros(scores.shape[:3], _F)
    for row in range(scores.shape[-1]):
        seen, score = keep[..., row], scores[..., row]
        larger = seen & (score > top)
        now = np.where(larger, score, top)
        lowered = np.where(larger, np.exp(top - now), _F(1)).astype(_F)
        weight = np.where(seen, np.where(larger, _F(1), np.exp(score - now)), _F(0)).astype(_F)
        if larger.any():
            scaled = (made.astype(_F) * lowered[..., None]).astype(np.float16)
            made = np.where(larger[..., None], scaled, made)
        added = made.astype(_F) + values[..., None, row, :] * weight[..., None]
        made = np.where(seen[..., None], added.astype(np.float16), made)
        top, total = now, np.where(seen, total * lowered + weight, total)
    return made.astype(_F) * np.where(total, 1 / np.where(total, total, 1), 0)[..., None].astype(_F)


def _weighed(weights: np.ndarray, values: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Weighted sums of values, without those that are masked: 0 times NaN would be NaN."""
    if np.isfinite(values).all():
        return np.matmul(weights, values)
    made = np.empty((*weights.shape[:3], values.shape[-1]), _F)
    for at in np.ndindex(weights.shape[:3]):
        made[at] = weights[at][keep[at]] @ values[at[:2]][keep[at]]
    return made


KERNELS: dict[str, Callable[[Tensor], None]] = {
    "CPY": copy,
    "CONT": copy,
    "DUP": copy,
    "SET": patch,
    "ACC": patch,
    "SET_ROWS": set_rows,
    "GET_ROWS": get_rows,
    "REPEAT": repeat,
    "CONCAT": concat,
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("UNARY", "SQR", "SQRT", "LOG", "SIN", "COS"), _unary),
    **dict.fromkeys(("SUM", "SUM_ROWS", "MEAN"), _sum),
    "GLU": _glu,
    "SCALE": lambda n: write(n, read(n.sources[0]) * _F(real(n, 0)) + _F(real(n, 1))),
    "CLAMP": lambda n: write(n, np.clip(read(n.sources[0]), _F(real(n, 0)), _F(real(n, 1)))),
    "FILL": lambda n: write(n, np.full((1, 1, 1, 1), real(n, 0), _F)),
    "RMS_NORM": _rms_norm,
    "NORM": _norm,
    "ARGMAX": _argmax,
    "MUL_MAT": _mul_mat,
    "SOFT_MAX": _soft_max,
    "DIAG_MASK_INF": _diag_mask,
    "DIAG_MASK_ZERO": _diag_mask,
    "ROPE": _rope,
    "FLASH_ATTN_EXT": _flash_attn_ext,
}
"""Kernels by op."""
