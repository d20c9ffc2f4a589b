"""What is executed for the ops that attention is made of.

Sources: ``ggml-cpu/ggml-cpu.c`` and ``ops.cpp`` of ggml (version 0.25.3). As there, the second factor of a product is
brought to the type that the first one is multiplied in. Sums are float32; FLASH_ATTN_EXT adds values of f16 in f16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.ggml.graph.math_kernels import MATHS, MOVES, sources
from kvviz.ggml.graph.tensor import Tensor, real, word
from kvviz.ggml.graph.tensor_data import read, rounded, write

_F = np.float32


def _spread(array: np.ndarray, like: tuple[int, ...]) -> np.ndarray:
    """Entries of the first two axes repeated one by one, to sizes: heads that share a KV head are neighbours."""
    for axis in (0, 1):
        array = np.repeat(array, like[axis] // array.shape[axis], axis)
    return array


def _product(a: np.ndarray, b: np.ndarray, type_: str) -> np.ndarray:
    """Rows of b times rows of a, in the type of a."""
    return np.matmul(rounded(b, type_), _spread(a, b.shape).swapaxes(-1, -2))


def _mul_mat(node: Tensor) -> None:
    a, b = sources(node)
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
    """A mask for scores of a shape; over heads and batches it goes round."""
    found = read(mask)[:, :, : shape[2]]
    found = np.tile(found, (shape[0] // found.shape[0], shape[1] // found.shape[1], 1, 1))
    return _slopes(shape[1], max_bias) * found


def _soft_max(node: Tensor) -> None:
    a, *mask = sources(node)
    x = read(a) * _F(real(node, 0))
    if mask:
        x = x + _mask(mask[0], x.shape, real(node, 1))
    x = np.exp(x - x.max(-1, keepdims=True))
    write(node, x * (1 / x.sum(-1, dtype=np.float64, keepdims=True)).astype(_F))


def _diag_mask(node: Tensor) -> None:
    x = read(sources(node)[0])
    right = np.arange(x.shape[-1]) > word(node, 0) + np.arange(x.shape[-2])[:, None]
    write(node, np.where(right, _F(-np.inf) if node.op == "DIAG_MASK_INF" else _F(0), x))


# -- positions --------------------------------------------------------------------------------------------------------


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
    a, b, *factors = sources(node)
    x = read(a)
    n_dims = word(node, 1)
    cos, sin = _angles(node, read(b).reshape(-1), read(factors[0]).reshape(-1) if factors else None)
    cos, sin = cos[:, None, :], sin[:, None, :]  # the same for all heads, which lie behind positions
    first, second = (slice(0, n_dims // 2), slice(n_dims // 2, n_dims)) if word(node, 2) else _even_odd(n_dims)
    made = x.copy()
    made[..., first] = x[..., first] * cos - x[..., second] * sin
    made[..., second] = x[..., first] * sin + x[..., second] * cos
    write(node, made)


def _even_odd(n: int) -> tuple[slice, slice]:
    return slice(0, n, 2), slice(1, n, 2)


# -- all at once ------------------------------------------------------------------------------------------------------


def _flash_attn_ext(node: Tensor) -> None:
    q, k, v, *mask = sources(node)
    scale, max_bias, softcap = (_F(real(node, place)) for place in range(3))
    scores = _product(read(k), read(q), k.type) * (scale / softcap if softcap else scale)
    if softcap:
        scores = softcap * np.tanh(scores)
    keep = np.ones((1, 1, 1, 1), bool)
    if mask:
        extra = _mask(mask[0], scores.shape, float(max_bias))
        keep = extra != -np.inf
        # What is masked is not looked at, not even where the cache holds NaN.
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
    """Weighted means of values as ggml adds them up, row by row: the sum is f16, and is scaled again whenever a larger
    score comes (``ggml_compute_forward_flash_attn_ext_f16_one_chunk``)."""
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
    **MOVES,
    **MATHS,
    "MUL_MAT": _mul_mat,
    "SOFT_MAX": _soft_max,
    "DIAG_MASK_INF": _diag_mask,
    "DIAG_MASK_ZERO": _diag_mask,
    "ROPE": _rope,
    "FLASH_ATTN_EXT": _flash_attn_ext,
}
"""What can be run, by op."""
