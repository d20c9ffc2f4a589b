"""Which bytes of a storage a value takes."""

from __future__ import annotations

from typing import Any


def packed_strides(shape: Any, size: int) -> tuple[int, ...]:
    """Strides in bytes of a row-major block of elements of so many bytes."""
    strides = []
    for n in reversed(shape):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))
