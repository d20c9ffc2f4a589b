"""The size that no single tensor may have, for operators whose output is as large as a few numbers say."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from kvviz.errors import LimitError

MAX_BYTES = 1 << 33
"""8 GiB, as for a tensor of a model that is loaded."""


def check_size(shape: Iterable[int], dtype: np.dtype) -> None:
    """Refuse a tensor that would only end in swapping, or in a MemoryError much later."""
    lengths = tuple(shape)
    size = math.prod(lengths) * dtype.itemsize
    if size > MAX_BYTES:
        raise LimitError(f"a tensor of shape {lengths} would take {size:,} bytes; the limit is {MAX_BYTES:,}")
