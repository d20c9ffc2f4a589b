"""Element types that NumPy has not: q8_0 blocks and bf16, to and from float32.

Source: ``quantize_row_q8_0_ref`` and ``ggml_compute_fp32_to_bf16`` of ggml. The back end for x86 rounds halves in q8_0
to even, and multiplies by ``127 / amax``: a few quants may differ from it by one.
"""

from __future__ import annotations

import numpy as np

Q8_0 = np.dtype([("d", "<f2"), ("qs", "i1", (32,))])
"""A block of 32 elements in 34 bytes."""


def to_q8_0(floats: np.ndarray) -> np.ndarray:
    """Blocks of the last axis, whose length is a multiple of 32: ``d = amax / 127``, halves away from zero."""
    parts = floats.astype(np.float32, copy=False).reshape(*floats.shape[:-1], -1, 32)
    made = np.empty(parts.shape[:-1], Q8_0)
    with np.errstate(all="ignore"):
        d = np.abs(parts).max(-1) / np.float32(127)
        scaled = parts * np.where(d != 0, np.float32(1) / d, np.float32(0))[..., None]
        # In float64 a half can be added without rounding.
        made["qs"] = np.trunc(scaled.astype(np.float64) + np.copysign(0.5, scaled)).astype(np.int8)
        made["d"] = d.astype(np.float16)
    return made


def from_q8_0(blocks: np.ndarray) -> np.ndarray:
    """Elements of blocks, the last axis 32 times as long."""
    floats = blocks["qs"].astype(np.float32) * blocks["d"].astype(np.float32)[..., None]
    return floats.reshape(*blocks.shape[:-1], -1)


def to_bf16(floats: np.ndarray) -> np.ndarray:
    """Upper halves of float32, rounded to even, as uint16."""
    bits = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(floats), bits >> 16 | 64, rounded).astype(np.uint16)


def from_bf16(halves: np.ndarray) -> np.ndarray:
    """Floats of their upper halves."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
