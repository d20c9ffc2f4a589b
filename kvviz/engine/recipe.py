"""How a trace was made, so that it can be made again with a change: the inputs as they were given, and all options.

Invariant: what is kept is never run on; every run gets arrays of its own, which share memory as the given ones did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz.errors import ReplayError
from kvviz.memory.storage import Reserved, address, repeats, reserve, root_of

if TYPE_CHECKING:
    from kvviz.trace.recording import Trace


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an array lay in its block.

    ``block``: arrays of one block have the same number.
    ``size``: bytes of the block.
    ``offset``: bytes from its start.
    ``reserved``: for a block that `kvviz.reserve` made.
    ``repeats``: elements of the array share memory, so that it cannot be donated.
    """

    block: int
    size: int
    offset: int
    strides: tuple[int, ...]
    reserved: tuple[tuple[int, ...], Any, int] | None = None
    repeats: bool = False


class Kept:
    """Copies of the arrays that a run was given, and how they shared memory.

    ``values``: the copies, packed; not to be written to.
    ``spots``: where those lay that did not fill a plain block alone.
    ``alike``: fresh arrays lie as the given ones did. Else another run may make a view where this one had to copy.
    """

    __slots__ = ("alike", "spots", "values")

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self.values = {name: _copied(value) for name, value in feeds.items()}
        self.spots: dict[str, Spot] = {}
        blocks: dict[int, int] = {}
        found = [(name, _spot(value, blocks)) for name, value in feeds.items() if isinstance(value, np.ndarray)]
        together = Counter(spot.block for _, spot in found if spot is not None)
        for name, spot in found:
            # What fills a plain block alone needs no place in it.
            if spot is not None and (
                spot.reserved or together[spot.block] > 1 or not _fills(feeds[name], self.values[name], spot)
            ):
                self.spots[name] = spot
        self.alike = all(spot is not None or feeds[name].flags.c_contiguous for name, spot in found)

    @staticmethod
    def size(feeds: Mapping[str, Any]) -> int:
        """Bytes that it takes to keep these inputs."""
        return sum(_nbytes(value) for value in feeds.values())

    def fresh(self) -> dict[str, Any]:
        """Arrays for one more run: equal to the given ones, in memory of their own."""
        blocks: dict[int, np.ndarray] = {}
        made: dict[str, Any] = {}
        for name, value in self.values.items():
            spot = self.spots.get(name)
            made[name] = _copied(value) if spot is None else _put(value, spot, blocks)
        return made

    def room(self, name: str) -> tuple[int, int] | None:
        """(axis, rows) of the block that an input may grow in; None where `kvviz.reserve` did not make it."""
        spot = self.spots.get(name)
        if spot is None or spot.reserved is None:
            return None
        shape, _, axis = spot.reserved
        return axis, shape[axis]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a trace was made.

    ``kind``: ``"run"``, ``"decode"`` or ``"stream"``.
    ``begin``: ``begin(**inputs, **options)`` makes a session.
    ``options``: keyword arguments other than the inputs.
    ``given``: ``given()`` gives the inputs as keyword arguments, fresh for one run; it raises `ReplayError` where
      they were not kept.
    ``rows``: in a decode: rows that a cache holds at its end.
    ``lent``: inputs that later runs are fed again, so that none may overwrite them.
    ``kept``: ``kept()`` gives the `Kept` inputs that the caller passed, or None where they were not kept.
    """

    kind: str
    begin: Callable[..., Any]
    options: Mapping[str, Any]
    given: Callable[[], dict[str, Any]]
    rows: int = 0
    lent: frozenset[str] = frozenset()
    kept: Callable[[], Kept | None] = lambda: None

    def again(self, *, room: Mapping[str, tuple[int, int]] | None = None, **changes: Any) -> Trace:
        """Run once more from the same inputs; see `session`."""
        return self.session(room=room, **changes).run_to_end()

    def session(self, *, room: Mapping[str, tuple[int, int]] | None = None, **changes: Any) -> Any:
        """A session that begins with the same inputs.

        ``room``: inputs that are to be put into a block with room to grow.
        ``**changes``: options that differ: ``policy``, ``donate``, ``outputs``, ``graph``, and what else ``begin``
          takes.

        Raises `ReplayError`: if the inputs were larger than the budget for keeping them.
        """
        inputs = self.given()
        for name, (axis, rows) in (room or {}).items():
            inputs["inputs"][name] = reserve(inputs["inputs"][name], axis, rows)
        return self.begin(**{**self.options, **inputs, **changes})


NOT_KEPT = "the run cannot be repeated: its inputs were larger than the budget for keeping them"


def fresh(kept: Kept | None) -> dict[str, Any]:
    """Inputs for one more run; raises `ReplayError` where they were not kept."""
    if kept is None:
        raise ReplayError(NOT_KEPT)
    return kept.fresh()


def _nbytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(element) for element in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def _spot(array: np.ndarray, blocks: dict[int, int]) -> Spot | None:
    """Where an array lies in its root; None where a copy by itself says all: objects, and roots with gaps."""
    root = root_of(array)
    if array.dtype.hasobject or not root.size:
        return None
    low, high = np.lib.array_utils.byte_bounds(root)
    if high - low != root.nbytes:
        return None
    offset = address(array) - low if array.size else 0
    reserved = (root.shape, root.dtype, root.grow_axis) if isinstance(root, Reserved) else None
    block = blocks.setdefault(id(root), len(blocks))
    return Spot(block, root.nbytes, offset, array.strides, reserved, repeats(array))


def _fills(array: np.ndarray, copy: np.ndarray, spot: Spot) -> bool:
    return array.nbytes == spot.size and array.strides == copy.strides


def _put(value: np.ndarray, spot: Spot, blocks: dict[int, np.ndarray]) -> np.ndarray:
    """A kept array at its old place in a new block."""
    block = blocks.get(spot.block)
    if block is None:
        block = np.empty(spot.size, np.uint8)
        if spot.reserved is not None:
            shape, dtype, axis = spot.reserved
            reserved = Reserved(shape, dtype)
            reserved.grow_axis = axis
            block = reserved.view(np.ndarray).reshape(-1).view(np.uint8)
        blocks[spot.block] = block
    array: np.ndarray = np.ndarray(value.shape, value.dtype, block, spot.offset, spot.strides)
    array[...] = value
    return array
