"""Rotary position embedding, in ONNX's form and in com.microsoft's. The two differ in the order of their inputs."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.registry import op


def rotate(x, cos, sin, *, interleaved):
    """Rotate the leading ``2·half`` elements of the last axis by pairs; the rest is unchanged. ``cos`` and ``sin`` are
    ``(…, half)``. Pairs are neighbours (``interleaved``) or half the rotated width apart."""
    half = cos.shape[-1]
    width = 2 * half
    y = np.empty(x.shape, x.dtype)
    if width < x.shape[-1]:
        y[..., width:] = x[..., width:]
    one, two = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    a, b, first, second = x[..., one], x[..., two], y[..., one], y[..., two]
    np.multiply(a, cos, first)
    np.multiply(b, cos, second)
    np.subtract(first, np.multiply(b, sin), first)
    np.add(second, np.multiply(a, sin), second)
    return y


def rows_at(cache, positions, what):
    if cache.ndim != 2:
        raise OpError(f"{what} must have two dimensions when positions are given, but has shape {cache.shape}")
    if positions.size == 1:
        low = high = positions.item()
    elif positions.size:
        low, high = positions.min(), positions.max()
    else:
        low = high = 0
    if low < 0 or high >= max(len(cache), 1):
        raise OpError(f"position {low if low < 0 else high} is not in {what}, which has {len(cache)} rows")
    return cache.take(positions, 0)


def _embed(x, cos, sin, interleaved, dim, heads):
    """Rotate (B, N, S, H), or (B, S, N·H) given the number of heads, by tables of shape (B, S, half)."""
    if x.ndim == 4:
        size, cos, sin, view = x.shape[3], cos[:, None], sin[:, None], x
    elif x.ndim == 3:
        if heads <= 0 or x.shape[2] % heads:
            raise OpError(f"an input of shape {x.shape} does not divide into num_heads {heads}")
        size = x.shape[2] // heads
        view = x.reshape(*x.shape[:2], heads, size)
        cos, sin = cos[:, :, None], sin[:, :, None]
    else:
        raise OpError(f"the input must have 3 or 4 dimensions, but has shape {x.shape}")
    width = dim or size
    if 2 * cos.shape[-1] != width or 2 * sin.shape[-1] != width or width > size:
        raise OpError(f"tables of width {cos.shape[-1]} and {sin.shape[-1]} do not rotate {width} of {size} elements")
    y = rotate(view, cos, sin, interleaved=interleaved)
    return y if x.ndim == 4 else y.reshape(x.shape)


@op("RotaryEmbedding", since=23)
def rotary_embedding(x, cos, sin, position_ids=None, *, interleaved=0, rotary_embedding_dim=0, num_heads=0):
    """RotaryEmbedding-23. Tables are (positions, half) with ``position_ids``, else (B, S, half)."""
    if position_ids is not None:
        cos, sin = rows_at(cos, position_ids, "cos_cache"), rows_at(sin, position_ids, "sin_cache")
    elif cos.ndim != 3 or sin.ndim != 3:
        raise OpError(f"cos_cache of shape {cos.shape} needs position_ids, or a batch and a sequence dimension")
    return _embed(x, cos, sin, interleaved, rotary_embedding_dim, num_heads)


@op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_ms(
    x,
    position_ids,
    cos,
    sin,
    *,
    interleaved=0,
    rotary_embedding_dim=0,
    num_heads=0,
    scale=1.0,
    is_packed_batching=0,
):
    """com.microsoft.RotaryEmbedding: ``position_ids`` come second, as (B, S) or as one offset for the whole sequence.
    Like onnxruntime's kernel, ours ignores ``scale``."""
    if position_ids.ndim == 1:
        length = x.shape[2] if x.ndim == 4 else x.shape[1]
        position_ids = position_ids.reshape(1, 1) + np.arange(length)
    if x.ndim == 3 and num_heads == 0:
        num_heads = x.shape[2] // (2 * cos.shape[-1])
    tables = rows_at(cos, position_ids, "cos_cache"), rows_at(sin, position_ids, "sin_cache")
    return _embed(x, *tables, interleaved, rotary_embedding_dim, num_heads)
