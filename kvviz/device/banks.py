"""Banks of a memory, filled in lock step: a block lies at one place in all of them, and its size is that in all banks.

A block that was freed is taken again only by what begins after that moment of simulated time, as long as there is room
elsewhere. Source of the table of blocks: ``getMemoryView`` of tt-mlir's runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Block(NamedTuple):
    """A block, as wide as all banks.

    ``owner``: number of the buffer in it, -1: it is free, since the time ``since``.
    """

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
    """The banks of one memory.

    ``blocks``: all blocks, by address; together they are the whole bank.
    """

    def __init__(self, name: str, nbytes: int, banks: int) -> None:
        self.name = name
        self.banks = banks
        self.size = nbytes
        self.blocks = [Block(0, self.size, -1, 0.0)] if self.size else []

    def allocate(self, size: int, owner: int, time: float) -> tuple[int, float] | None:
        """First block that is free at a time, else the one that is free first: (address, when). None: there is none."""
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
        """Give a buffer's block back at a time; free neighbours whose time is past become one."""
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
        """Bytes taken."""
        return sum(block.size for block in self.blocks if block.owner >= 0)

    @property
    def largest_free(self) -> int:
        """Bytes of the longest stretch that nobody holds."""
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
