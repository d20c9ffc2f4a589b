"""The free memory of one buffer, in chunks: best fit, and the last block of a chunk only where nothing else fits.

Source: ``ggml_dyn_tallocr`` of ggml (``src/ggml-alloc.c``, snapshot d99724f). Addresses are planned, no byte is held.
"""

from __future__ import annotations

from typing import NamedTuple

from kvviz.errors import KvvizError

MAX_CHUNKS, MAX_FREE_BLOCKS = 16, 256
UNLIMITED = 2**63 - 1
"""Bytes of a chunk of a buffer type without a largest size (``SIZE_MAX/2``)."""


class Address(NamedTuple):
    """A place in a buffer: the chunk, and the offset in it in bytes."""

    chunk: int
    offset: int


def aligned(size: int, alignment: int) -> int:
    """A size rounded up."""
    return -(-size // alignment) * alignment


class FreeBlocks:
    """What is free in a buffer while its use is planned.

    Parameters
    ----------
    alignment : int
        A power of two; sizes are rounded up to it.
    max_chunk : int
        Bytes of the largest block of memory that the buffer type gives; a larger tensor gets a chunk of its own.
    """

    def __init__(self, alignment: int = 32, max_chunk: int = UNLIMITED) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise KvvizError(f"an alignment must be a power of two, not {alignment}")
        if max_chunk < 1:
            raise KvvizError(f"a chunk needs a positive size, not {max_chunk} bytes")
        self.alignment = alignment
        self.max_chunk = min(max_chunk, UNLIMITED)
        self.chunks: list[list[tuple[int, int]]] = []  # (offset, size) of free blocks by address
        self.max_sizes: list[int] = []

    def take(self, size: int) -> Address:
        """Take memory; gives where."""
        size = aligned(size, self.alignment)
        found = self._best_fit(size) or self._best_last(size) or (self._new_chunk(size), 0)
        chunk, number = found
        blocks = self.chunks[chunk]
        offset, free = blocks[number]
        if free == size:
            del blocks[number]
        else:
            blocks[number] = (offset + size, free - size)
        self.max_sizes[chunk] = max(self.max_sizes[chunk], offset + size)
        return Address(chunk, offset)

    def give(self, address: Address, size: int) -> None:
        """Give memory back; it is joined with the free blocks on its sides."""
        size = aligned(size, self.alignment)
        blocks, offset = self.chunks[address.chunk], address.offset
        for i, (start, free) in enumerate(blocks):
            if start + free == offset:
                blocks[i] = (start, free + size)
                if i + 1 < len(blocks) and blocks[i + 1][0] == offset + size:
                    blocks[i] = (start, free + size + blocks.pop(i + 1)[1])
                return
            if offset + size == start:
                blocks[i] = (offset, free + size)
                if i and sum(blocks[i - 1]) == offset:
                    before = blocks[i - 1]
                    blocks[i - 1] = (before[0], before[1] + free + size)
                    del blocks[i]
                return
        if len(blocks) >= MAX_FREE_BLOCKS:
            raise KvvizError(
                f"chunk {address.chunk} falls into more than {MAX_FREE_BLOCKS} free blocks: ggml aborts here"
            )
        at = next((i for i, (start, _) in enumerate(blocks) if start >= offset), len(blocks))
        blocks.insert(at, (offset, size))

    def _best_fit(self, size: int) -> tuple[int, int] | None:
        """The smallest block that is large enough, of all but the last block of each chunk; of equal ones the last.

        The best size starts anew with each chunk, so a fit in a later chunk wins over a better one in an earlier.
        """
        found = None
        for chunk, blocks in enumerate(self.chunks):
            best = UNLIMITED * 2 + 1
            for number, (_, free) in enumerate(blocks[:-1]):
                if size <= free <= best:
                    found, best = (chunk, number), free
        return found

    def _best_last(self, size: int) -> tuple[int, int] | None:
        """The last block of the chunk that needs to grow least, or has least room left over."""
        found, best = None, -(2**63)
        for chunk, blocks in enumerate(self.chunks):
            if not blocks:
                continue
            offset, free = blocks[-1]
            reuse = self.max_sizes[chunk] - offset - size
            better = (best < 0 and reuse > best) or 0 <= reuse < best
            if free >= size and better:
                found, best = (chunk, len(blocks) - 1), reuse
        return found

    def _new_chunk(self, size: int) -> int:
        if len(self.chunks) >= MAX_CHUNKS:
            raise KvvizError(f"no room for {size} bytes in {MAX_CHUNKS} chunks: ggml aborts here")
        last = len(self.chunks) == MAX_CHUNKS - 1
        self.chunks.append([(0, UNLIMITED if last else max(size, self.max_chunk))])
        self.max_sizes.append(0)
        return len(self.chunks) - 1
