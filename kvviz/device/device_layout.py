"""Layouts: in which memory a tensor lies, in rows or in tiles, and of which type; and how many bytes that takes.

Source: ``LayoutDesc`` of tt-mlir's runtime (storage, row major or tile, data type, memory config; equality is field by
field). A tile has 32 x 32 elements; interleaved tensors are dealt out page by page to all banks of a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from kvviz.errors import KvvizError

MEMORIES = ("dram", "l1")
HOST = "host"
TILE = 32
SHARDINGS = (None, "height")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a tensor lies and how.

    Attributes
    ----------
    memory : {"dram", "l1"}
        ``"host"`` is only reported, of tensors that are not on a device.
    tiled : bool
        In tiles of 32 x 32 elements along the last two axes, which are padded to whole tiles; else row by row.
    dtype : str or None
        NumPy's name of the type, or ``"bfloat16"``; None: that of the array.
    sharding : {"height"} or None
        Dealt out to the cores by rows, which only L1 can be; else interleaved.
    """

    memory: str = "dram"
    tiled: bool = False
    dtype: Any = None
    sharding: str | None = None

    def __post_init__(self) -> None:
        if self.memory not in (*MEMORIES, HOST):
            raise KvvizError(f"the memory of a layout is 'dram' or 'l1', not {self.memory!r}")
        if self.sharding not in SHARDINGS or (self.sharding and self.memory != "l1"):
            raise KvvizError(f"sharding must be None, or 'height' in 'l1', not {self.sharding!r} in {self.memory!r}")
        if self.dtype is not None:
            try:
                object.__setattr__(self, "dtype", str(np.dtype(self.dtype)))
            except TypeError:
                raise KvvizError(f"the dtype of a layout is a NumPy type or 'bfloat16', not {self.dtype!r}") from None

    def of(self, array: Any) -> Layout:
        """This layout with the type of an array where it names none."""
        return self if self.dtype is not None else replace(self, dtype=str(array.dtype))

    def __str__(self) -> str:
        how = "tiles" if self.tiled else "rows"
        return " ".join(part for part in (self.memory, self.sharding, how, self.dtype) if part)


def sizes(shape: Sequence[int], layout: Layout) -> tuple[int, int]:
    """Bytes of a tensor, padding included, and of one of its pages: a tile; 0 for rows."""
    item = np.dtype(layout.dtype).itemsize
    if layout.tiled:
        *outer, height, width = (1, 1, *shape)[-max(len(shape), 2) :]
        return prod(outer) * -(-height // TILE) * -(-width // TILE) * TILE * TILE * item, TILE * TILE * item
    return prod(shape) * item, 0


def in_all_banks(nbytes: int, page: int, banks: int) -> int:
    """Bytes that an interleaved tensor takes in all banks: the pages are dealt out, and the fullest bank counts.

    Rows are dealt out evenly, to the byte (a simplification: on hardware a row is a page).
    """
    return -(-(nbytes // page) // banks) * page * banks if page else nbytes


def converted(array: np.ndarray, dtype: str) -> np.ndarray:
    """A copy of an array in a block of its own, in another type where that is asked for."""
    return np.array(array, dtype=np.dtype(dtype), order="C", copy=True)
