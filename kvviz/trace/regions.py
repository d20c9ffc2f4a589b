"""Which bytes of a storage a value takes."""

from __future__ import annotations

from typing import Any

import numpy as np


def packed_strides(shape: Any, dtype: Any) -> tuple[int, ...]:
    """Strides in bytes of a row-major block."""
    strides, size = [], np.dtype(dtype).itemsize
    for n in reversed(shape):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))
