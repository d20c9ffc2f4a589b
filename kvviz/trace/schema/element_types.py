"""Element types of values: NumPy's, and block types, which pack several elements into some bytes together.

Sizes of block types: the ``block_*`` structs of ggml (``ggml/src/ggml-common.h``), each with its static assertion.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

BLOCKS: dict[str, tuple[int, int]] = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q8_1": (32, 36),
    "q2_K": (256, 84),
    "q3_K": (256, 110),
    "q4_K": (256, 144),
    "q5_K": (256, 176),
    "q6_K": (256, 210),
    "q8_K": (256, 292),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4": (32, 17),
    "nvfp4": (64, 36),
}
"""Block types: elements of a block, which lie along the last axis, and its bytes."""


@cache
def name_of(dtype: Any) -> str:
    """The name, cached: NumPy builds it at each call, and a long trace asks for every value."""
    return str(dtype)


def nbytes(shape: tuple[int, ...] | None, dtype: Any) -> int:
    """Bytes of a row-major value; 0 for anything but a tensor."""
    if shape is None:
        return 0
    block = BLOCKS.get(dtype) if isinstance(dtype, str) else None
    if block is None:
        return prod(shape) * np.dtype(dtype).itemsize
    return prod(shape[:-1]) * -(-shape[-1] // block[0]) * block[1] if shape else block[1]


def dims(shape: Sequence[object] | None) -> str:
    """A shape without blanks: ``[1,4,18,16]``; empty if unknown."""
    return "" if shape is None else "[" + ",".join("?" if n is None else str(n) for n in shape) + "]"


def unit(shape: tuple[int, ...], dtype: Any) -> tuple[tuple[int, ...], int]:
    """A shape in blocks and the bytes of one; for plain types the shape itself and the bytes of an element."""
    block = BLOCKS.get(dtype) if isinstance(dtype, str) else None
    if block is None:
        return shape, np.dtype(dtype).itemsize
    return (*shape[:-1], -(-shape[-1] // block[0])) if shape else (1,), block[1]


@lru_cache(maxsize=1 << 8)
def is_known(dtype: str) -> bool:
    """Whether a name is a block type, or a full name of a NumPy type."""
    if dtype in BLOCKS:
        return True
    try:
        return str(np.dtype(dtype)) == dtype
    except TypeError:
        return False
