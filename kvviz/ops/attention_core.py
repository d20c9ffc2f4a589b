"""What all attention operators share: scores, softmax, the product with the values, and appending to a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.product import FEW_ROWS, product

# BLAS takes longer over a few rows times a very large matrix than over its parts.
_LARGE, _PART = 1 << 20, 512


def to_heads(x: np.ndarray, heads: int, name: str) -> np.ndarray:
    """View (batch, sequence, heads·size) as (batch, heads, sequence, size)."""
    if x.ndim != 3:
        raise OpError(f"{name} must have 3 dimensions, but has shape {x.shape}")
    batch, length, width = x.shape
    if heads <= 0 or width % heads:
        raise OpError(f"{name} of shape {x.shape} does not divide into {heads} heads")
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def from_heads(x: np.ndarray) -> np.ndarray:
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def scores(q: np.ndarray, k: np.ndarray, scale: float) -> np.ndarray:
    """Scaled products of queries and keys, ``(batch, query heads, queries, keys)``. Query heads that share a key head
    are folded into the rows of one product, so keys are never repeated in memory. Half precisions follow ONNX step by
    step: √scale into both sides, the product rounded once."""
    batch, heads, length, size = q.shape
    shared = k.shape[1]
    if q.dtype.itemsize < 4:
        root = q.dtype.type(math.sqrt(scale))
        q, k, kind = (q * root).astype(np.float32), (k * root).astype(np.float32), q.dtype
    else:
        q, kind = q * q.dtype.type(scale), None
    rows = heads // shared * length
    if heads != shared:
        q = q.reshape(batch, shared, rows, size)
    found = product(q, k.swapaxes(2, 3))
    if kind is not None:
        found = found.astype(kind)
    return found.reshape(batch, heads, length, k.shape[2])


def _parts(rows: int, keys: int, size: int) -> list[slice]:
    """All keys, in parts where the product is large."""
    step = _PART if rows * keys * size >= _LARGE else max(keys, 1)
    return [slice(start, min(start + step, keys)) for start in range(0, max(keys, 1), step)]


def weigh(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Probabilities times values: ``(batch, query heads, queries, value size)`` in C order."""
    batch, heads, length, keys = p.shape
    shared, size = v.shape[1], v.shape[3]
    half = p.dtype.itemsize < 4
    if half:
        kind, p, v = p.dtype, p.astype(np.float32), v.astype(np.float32)
    rows = heads // shared * length
    p = p.reshape(batch, shared, rows, keys)
    first, *rest = _parts(rows, keys, size) if 1 < rows <= FEW_ROWS else [slice(0, keys)]
    y = np.matmul(p[..., first], v[:, :, first])
    for part in rest:
        y += np.matmul(p[..., part], v[:, :, part])
    return (y.astype(kind) if half else y).reshape(batch, heads, length, size)


def cap(x: np.ndarray, softcap: float) -> np.ndarray:
    limit = x.dtype.type(softcap)
    x /= limit
    np.tanh(x, out=x)
    x *= limit
    return x


def softmax_rows(x: np.ndarray, guarded: bool, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax of the last axis, in place. ``guarded``: a row may be -inf throughout; it then becomes 0 and not NaN.
    ``sink``: one more score a row that takes its share and gives no value."""
    if x.shape[-1] == 0:
        return x
    top = np.maximum.reduce(x, axis=-1, keepdims=True)
    if sink is not None:
        np.maximum(top, sink, out=top)
    elif guarded:
        dead = top == -np.inf
        guarded = bool(dead.any())
        if guarded:
            top[dead] = 0
    x -= top
    np.exp(x, out=x)
    total = np.add.reduce(x, axis=-1, keepdims=True)
    if sink is not None:
        total += np.exp(sink - top)
    elif guarded:
        total[dead] = 1
    x /= total
    return x


def check_pasts(key: np.ndarray | None, value: np.ndarray | None, k: np.ndarray, v: np.ndarray) -> None:
    """A past of keys and one of values come together, hold as many rows, and take the new rows ``k`` and ``v``. Nothing
    is written before that is known of both."""
    if key is None and value is None:
        return
    if key is None or value is None:
        raise OpError("past_key and past_value must be given together")
    for past, new, name in ((key, k, "past_key"), (value, v, "past_value")):
        if past.ndim != 4:
            raise OpError(f"{name} must have 4 dimensions, but has shape {past.shape}")
        if past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
            raise OpError(f"{name} of shape {past.shape} does not take new rows of shape {new.shape}")
    if key.shape[2] != value.shape[2]:
        raise OpError(f"past_key holds {key.shape[2]} rows and past_value {value.shape[2]}")


def append(past: np.ndarray, new: np.ndarray, grown: np.ndarray | None) -> np.ndarray:
    """The past and then the new rows, along axis 2; only the new rows are written where ``grown`` holds the past."""
    batch, heads, rows, size = past.shape
    if grown is None:
        grown = np.empty((batch, heads, rows + new.shape[2], size), past.dtype)
        grown[:, :, :rows] = past
    grown[:, :, rows:] = new
    return grown


def cache_cost(
    args: Sequence[Any], outs: Any, pairs: Sequence[tuple[int, int]], sources: Sequence[int], new: int
) -> tuple[int, int]:
    """Bytes (written, copied) by an operator that keeps its cache inside. ``pairs`` are the positions of pasts and
    their presents; ``sources`` the inputs that a present may be a view of, where there is no past; ``new`` the bytes of
    new rows that each present takes."""
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    caches = {output: position for position, output in pairs}
    written = copied = 0
    for i, out in enumerate(outs):
        if out is None:
            continue
        if i not in caches:
            written += out.nbytes
            continue
        past = args[caches[i]] if caches[i] < len(args) else None
        if past is None:
            views = (args[s] for s in sources if s < len(args) and args[s] is not None)
            written += 0 if any(np.may_share_memory(out, x) for x in views) else out.nbytes
        elif past.size and np.may_share_memory(out, past):
            written += new
        else:
            written += out.nbytes
            copied += min(past.nbytes, out.nbytes)
    return written, copied
