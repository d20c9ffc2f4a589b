"""Where a tensor lies in a device's memory: its layout, how many bytes that takes, and the banks that hold it.

Source of layouts: ``LayoutDesc`` of tt-mlir's runtime (storage, row major or tile, data type, memory config; equality
is field by field). A tile has 32 x 32 elements; the pages of interleaved tensors are spread over all banks of a memory.

Banks are filled in lock step: a block lies at one place in all of them, and its size is that in all banks. A freed
block is reused only by work that begins after that moment of simulated time, as long as there is room elsewhere. Source
of the table of blocks: ``getMemoryView`` of tt-mlir's runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

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
        ``"host"`` is only reported, for tensors on the host.
    tiled : bool
        In tiles of 32 x 32 elements along the last two axes, which are padded to whole tiles; else row by row.
    dtype : str or None
        NumPy's name of the type, or ``"bfloat16"``; None: that of the array.
    sharding : {"height"} or None
        Distributed to the cores by rows, in L1 only; else interleaved.
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
        """This layout with the type of an array if it names none."""
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


def zero_copy(before: Sequence[int], after: Sequence[int], tiled: bool) -> bool:
    """Whether a reshape makes a view. Source: ``isAliasingViewOp`` of tt-mlir: the last axis stays, and for tiled
    tensors also the one before it, or both are whole tiles."""
    if not before or not after or before[-1] != after[-1]:
        return tuple(before) == tuple(after)
    heights = [(1, *shape)[-2] for shape in (before, after)]
    return not tiled or heights[0] == heights[1] or not any(height % TILE for height in heights)


def in_all_banks(nbytes: int, page: int, banks: int) -> int:
    """Bytes that an interleaved tensor takes in all banks: pages are distributed, and the fullest bank counts. Rows are
    distributed evenly, to the byte (a simplification: on hardware a row is a page)."""
    return -(-(nbytes // page) // banks) * page * banks if page else nbytes


def converted(array: np.ndarray, dtype: str) -> np.ndarray:
    """A fresh copy of an array, of another type."""
    return np.array(array, dtype=np.dtype(dtype), order="C", copy=True)


class Block(NamedTuple):
    """A block, as wide as all banks. ``owner``: number of the buffer in it, -1: free since the time ``since``."""

    address: int
    size: int
    owner: int
    since: float


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A memory as it is now, in bytes of all banks together.

    Attributes
    ----------
    banks, nbytes, allocated, free, largest_free : int
    blocks : tuple of dict
        ``address``, ``size``, ``allocated`` and ``handle`` (name of a tensor in it) of every block, by address.
    """

    banks: int
    nbytes: int
    allocated: int
    free: int
    largest_free: int
    blocks: tuple[dict[str, Any], ...]


class Banks:
    """The banks of one memory. ``blocks``: all blocks, by address; together they are the whole bank."""

    def __init__(self, name: str, nbytes: int, banks: int) -> None:
        self.name = name
        self.banks = banks
        self.size = nbytes
        self.blocks = [Block(0, self.size, -1, 0.0)] if self.size else []

    def allocate(self, size: int, owner: int, time: float) -> tuple[int, float] | None:
        """The first block that is free at a time, else the one that is free first: (address, when); None if there is
        none."""
        if not size:
            return 0, time
        best: tuple[float, int, int] | None = None
        for first in range(len(self.blocks)):
            found, last, since = 0, first, 0.0
            while last < len(self.blocks) and self.blocks[last].owner < 0 and found < size:
                found, since = found + self.blocks[last].size, max(since, self.blocks[last].since)
                last += 1
            if found >= size and (best is None or max(since, time) < best[0]):
                best = max(since, time), first, last
                if best[0] <= time:
                    break
        if best is None:
            return None
        when, first, last = best
        address, end = self.blocks[first].address, self.blocks[last - 1]
        rest = end.address + end.size - address - size
        left = [Block(address + size, rest, -1, end.since)] if rest else []
        self.blocks[first:last] = [Block(address, size, owner, 0.0), *left]
        return address, when

    def free(self, owner: int, time: float, now: float) -> None:
        merged: list[Block] = []
        for block in self.blocks:
            if block.owner == owner:
                block = Block(block.address, block.size, -1, time)
            if merged and block.owner < 0 and merged[-1].owner < 0:
                before = merged[-1]
                if before.since == block.since or max(before.since, block.since) <= now:
                    since = max(before.since, block.since)
                    merged[-1] = Block(before.address, before.size + block.size, -1, since)
                    continue
            merged.append(block)
        self.blocks = merged

    @property
    def allocated(self) -> int:
        return sum(block.size for block in self.blocks if block.owner >= 0)

    @property
    def largest_free(self) -> int:
        longest = here = 0
        for block in self.blocks:
            here = 0 if block.owner >= 0 else here + block.size
            longest = max(longest, here)
        return longest

    def view(self, names: dict[int, str]) -> MemoryView:
        """The table of blocks; ``names``: of tensors, by the numbers of their buffers."""
        listed: list[dict[str, Any]] = []
        for address, size, owner, _ in self.blocks:
            if listed and owner < 0 and not listed[-1]["allocated"]:
                listed[-1]["size"] += size
                continue
            listed.append({"address": address, "size": size, "allocated": owner >= 0, "handle": names.get(owner, "")})
        taken = self.allocated
        return MemoryView(self.banks, self.size, taken, self.size - taken, self.largest_free, tuple(listed))
