"""Ops that write into a KV cache in place, and the table of blocks of a paged one.

The ops have no result: in the IR, no edge leads to the readers of the cache. Sources: ``ttnn.fill_cache``,
``update_cache``, ``paged_update_cache`` and ``paged_fill_cache`` of tt-mlir (``MemWrite`` on the cache, checks of
``TTNNOps.cpp``) and of tt-metal (tiles, interleaved cache, height-sharded input).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.device.device_layout import TILE
from kvviz.device.device_state import DeviceState
from kvviz.device.handles import Handle, Wrapper
from kvviz.device.transfers import to_host
from kvviz.errors import KvvizError


class BlockTable:
    """The blocks of every sequence, in order.

    Parameters
    ----------
    rows : sequence of sequence of int
        Numbers of blocks, by sequence.
    blocks : int
        How many the cache has.
    block_size : int
        Rows of one.

    Attributes
    ----------
    copies : list of (int, int, int)
        Sequence, the shared block, and the one that it was copied to.
    """

    def __init__(self, rows: Sequence[Sequence[int]], blocks: int, block_size: int) -> None:
        if blocks < 1 or block_size < 1:
            raise KvvizError(f"a cache has one block at least, of one row at least; not {blocks} of {block_size}")
        self.rows = [list(map(int, row)) for row in rows]
        self.blocks = blocks
        self.block_size = block_size
        self.copies: list[tuple[int, int, int]] = []
        wrong = [block for row in self.rows for block in row if not 0 <= block < blocks]
        if wrong:
            raise KvvizError(f"block {wrong[0]} is in the table, but the cache has blocks 0 to {blocks - 1}")

    @property
    def shared(self) -> dict[int, tuple[int, ...]]:
        """Blocks that several sequences share, with these sequences."""
        users: dict[int, list[int]] = {}
        for sequence, row in enumerate(self.rows):
            for block in dict.fromkeys(row):
                users.setdefault(block, []).append(sequence)
        return {block: tuple(found) for block, found in users.items() if len(found) > 1}

    @property
    def free(self) -> list[int]:
        """Blocks that no sequence has."""
        used = {block for row in self.rows for block in row}
        return [block for block in range(self.blocks) if block not in used]

    def fork(self, sequence: int) -> int:
        """Another sequence with the same past, which shares all blocks; returns its number."""
        self.rows.append(list(self.rows[sequence]))
        return len(self.rows) - 1

    def block_of(self, sequence: int, position: int) -> int:
        """The block of a position.

        Raises
        ------
        KvvizError
            If the sequence has no block there.
        """
        row, place = self.rows[sequence], position // self.block_size
        if not 0 <= place < len(row):
            raise KvvizError(f"sequence {sequence} has no position {position}, only {len(row)} blocks")
        return row[place]

    def own(self, sequence: int, position: int) -> tuple[int, int] | None:
        """Give a sequence a block of its own for a write: (the shared one, its own); None if it has one.

        Raises
        ------
        KvvizError
            If no block is free.
        """
        block = self.block_of(sequence, position)
        if block not in self.shared:
            return None
        if not self.free:
            raise KvvizError(
                f"block {block} is shared and must be copied for sequence {sequence}, but no block is free"
            )
        own = self.free[0]
        self.rows[sequence][position // self.block_size] = own
        self.copies.append((sequence, block, own))
        return block, own

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        longest = max(map(len, self.rows), default=0)
        return np.array([[*row, *[-1] * (longest - len(row))] for row in self.rows], dtype=dtype or np.int32)


Index = int | np.ndarray | Handle
"""An integer of the host, or an array that may lie on the device."""


def fill_cache(state: DeviceState, cache: Handle, input: Handle, batch: int = 0) -> None:
    """``cache[batch, :, 0:S, :] = input``, in whole tiles: rows behind S in the last tile become 0 (tt-mlir #8604)."""
    target, source = _pair(state, "fill_cache", cache, input)
    rows, length = source.array.shape[2], target.array.shape[2]
    _expect(state, source.array.shape[0] == 1, input, "fill_cache", "the input must hold one sequence (dimension 0)")
    _expect(state, rows <= length, input, "fill_cache", f"{rows} rows do not fit into the cache's {length}")
    _expect(state, 0 <= batch < target.array.shape[0], cache, "fill_cache", f"the cache has no batch {batch}")
    whole = min(-(-rows // TILE) * TILE, length)
    values = np.zeros((target.array.shape[1], whole, target.array.shape[3]), target.array.dtype)
    values[:, :rows] = source.array[0]
    _write(state, "fill_cache", cache, [input], [((batch, slice(None), slice(0, whole)), values)])


def update_cache(state: DeviceState, cache: Handle, input: Handle, index: Index, batch_offset: int = 0) -> None:
    """``cache[batch_offset + b, :, index, :] = input[0, :, b, :]`` for each user b; the host reads an index on the
    device."""
    target, source = _pair(state, "update_cache", cache, input)
    users = source.array.shape[2]
    place = int(_numbers(state, index, "update_cache").reshape(-1)[0])
    _expect(state, source.array.shape[0] == 1, input, "update_cache", "dimension 0 of the input must be 1")
    inside = 0 <= batch_offset <= target.array.shape[0] - users
    _expect(state, inside, input, "update_cache", f"{users} users from batch {batch_offset} on do not fit")
    _expect(state, 0 <= place < target.array.shape[2], cache, "update_cache", f"the cache has no row {place}")
    rows = [((batch_offset + user, slice(None), place), source.array[0, :, user]) for user in range(users)]
    _write(state, "update_cache", cache, [input], rows)


def paged_update_cache(
    state: DeviceState, cache: Handle, input: Handle, positions: Any, page_table: Any = None
) -> None:
    """``cache[table[u][pos // size], :, pos % size, :] = input[0, u, :, :]`` for each user u at its position. Without a
    table each user has a row of its own. With a `BlockTable` the writer gets a copy of a shared block; with plain
    numbers the block is written for all sequences that share it."""
    op = "paged_update_cache"
    target, source = _wrappers(state, op, cache, input)
    blocks, heads, size, width = target.array.shape
    index = _numbers(state, positions, op).reshape(-1)
    users = source.array.shape[1]
    _expect(state, source.array.shape[0] == 1, input, op, "dimension 0 of the input must be 1")
    _expect(state, len(index) == users, input, op, f"{len(index)} positions for {users} users")
    _expect(state, source.array.dtype.kind in "fV", input, op, "the input must have a floating-point type")
    fits = source.array.shape[3] == width and source.array.shape[2] in (heads, -(-heads // TILE) * TILE)
    _expect(state, fits, input, op, f"the input must be [1, users, {heads} heads, padded or not, {width}]")
    _expect(state, source.layout.sharding == "height", input, op, "the input must be height-sharded in L1")
    if page_table is None:
        _expect(state, users <= blocks, cache, op, f"{users} users do not fit into {blocks} rows")
        where = [(user, int(place)) for user, place in enumerate(index)]
        _expect(state, all(0 <= place < size for _, place in where), cache, op, f"positions go from 0 to {size - 1}")
    else:
        _expect(state, size % TILE == 0, cache, op, f"a block must have a multiple of {TILE} rows, not {size}")
        where = _in_blocks(state, cache, op, page_table, list(enumerate(map(int, index))))
    rows = zip(where, source.array[0])
    _write(state, op, cache, [input], [((block, slice(None), row), values[:heads]) for (block, row), values in rows])


def paged_fill_cache(state: DeviceState, cache: Handle, input: Handle, page_table: Any, batch: int = 0) -> None:
    """The rows of ``input`` [1, heads, S, width] into the blocks of a sequence, from its first position on."""
    op = "paged_fill_cache"
    target, source = _pair(state, op, cache, input)
    _expect(state, source.array.shape[0] == 1, input, op, "dimension 0 of the input must be 1")
    rows, size = source.array.shape[2], target.array.shape[2]
    where = _in_blocks(state, cache, op, page_table, [(batch, place) for place in range(0, rows, size)])
    parts = [
        (block, source.array[0, :, place : place + size]) for place, (block, _) in zip(range(0, rows, size), where)
    ]
    _write(state, op, cache, [input], [((block, slice(None), slice(0, part.shape[1])), part) for block, part in parts])


def _expect(state: DeviceState, holds: bool, handle: Handle, op: str, why: str) -> None:
    if not holds:
        state.fail(f"{op}", handle, why)


def _wrappers(state: DeviceState, op: str, cache: Handle, given: Handle) -> tuple[Wrapper, Wrapper]:
    target, source = state.need(cache, op), state.need(given, op)
    for handle, wrapper in ((cache, target), (given, source)):
        _expect(state, wrapper.array.ndim == 4, handle, op, f"it must have 4 dimensions, not {wrapper.array.ndim}")
    _expect(state, target.layout.tiled, cache, op, "the cache must be tiled: to_layout(cache, Layout(tiled=True))")
    _expect(state, target.layout.sharding is None, cache, op, "the cache must be interleaved, not sharded")
    types = f"{target.array.dtype} and {source.array.dtype}"
    _expect(state, target.array.dtype == source.array.dtype, given, op, f"cache and input need one type, not {types}")
    return target, source


def _pair(state: DeviceState, op: str, cache: Handle, given: Handle) -> tuple[Wrapper, Wrapper]:
    target, source = _wrappers(state, op, cache, given)
    shapes = [wrapper.array.shape for wrapper in (target, source)]
    for axis in (1, 3):
        sizes = [shape[axis] for shape in shapes]
        _expect(state, sizes[0] == sizes[1], given, op, f"dimension {axis} is {sizes[1]}, but {sizes[0]} in the cache")
    return target, source


def _numbers(state: DeviceState, given: Any, op: str) -> np.ndarray:
    found = to_host(state, given) if isinstance(given, Handle) else np.asarray(given)
    if found.dtype.kind not in "iu" or not found.size:
        state.fail(op, given if isinstance(given, Handle) else "the index", f"integers are needed, not {found.dtype}")
    return found


def _in_blocks(
    state: DeviceState, cache: Handle, op: str, table: Any, places: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Block and row of positions of sequences to be written; a table copies shared blocks."""
    blocks, _, size, _ = cache.shape
    if isinstance(table, BlockTable):
        owns = [own for place in places if (own := table.own(*place)) is not None]
        if owns:
            values = cache.wrapper.array
            _write(state, "copy_block", cache, [cache], [((own,), values[old].copy()) for old, own in owns])
    rows = np.asarray(table) if isinstance(table, BlockTable) else _numbers(state, table, op)
    found = []
    for sequence, position in places:
        known = rows.ndim == 2 and sequence < rows.shape[0] and 0 <= position // size < rows.shape[1]
        block = int(rows[sequence, position // size]) if known else -1
        _expect(state, 0 <= block < blocks, cache, op, f"the table has no block for row {position} of {sequence}")
        found.append((block, position % size))
    return found


def _write(
    state: DeviceState, op: str, cache: Handle, inputs: Sequence[Handle], writes: Sequence[tuple[Any, Any]]
) -> None:
    target = cache.wrapper
    buffer = target.held
    state.forward()
    parts, moved = [], dict.fromkeys(state.banks, 0)
    for where, values in writes:
        view = target.array[where]
        view[...] = values
        moved[buffer.memory] += view.nbytes
        parts.append(state.value(buffer, view, f"{cache.name} {_index_text(where)}"))
    ready = max(buffer.ready, buffer.read_until)
    for handle in inputs:
        source = handle.wrapper.held
        moved[source.memory] += handle.nbytes
        ready = max(ready, source.ready)
    how = state.queued(ready, state.cost.of_op(moved["dram"], moved["l1"], 0))
    buffer.ready, buffer.contents = how["end"], buffer.contents + 1
    for handle in (cache, *inputs):
        handle.wrapper.used = state.submits + 1
        if handle is not cache:
            handle.wrapper.held.read_until = max(handle.wrapper.held.read_until, buffer.ready)
    read = [handle.wrapper.value for handle in inputs]
    names = list(dict.fromkeys([*read, target.value]))
    state.writer.op(op, names, parts, name=cache.name, reads=read, writes=parts, **how)
    state.mark("written in place", target, f"{op}: {len(parts)} part{'s' * (len(parts) > 1)}", time=buffer.ready)


def _index_text(where: Sequence[Any]) -> str:
    # Without colons: text before one is taken for the scope of a name.
    parts = [
        "*" if at == slice(None) else f"{at.start}..{at.stop}" if isinstance(at, slice) else str(at) for at in where
    ]
    return f"[{', '.join(parts)}]"
