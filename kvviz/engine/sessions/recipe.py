"""How a trace was made, so that it can be made again with changes: the original inputs and all options.

Invariant: no run uses the kept arrays themselves; it gets copies, which share memory as the given arrays did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz.errors import ReplayError
from kvviz.memory.ghosts import ghost, is_ghost, packed_copy, reserved_block, with_room
from kvviz.memory.storage import address, has_room, repeats, root_of
from kvviz.trace.schema.regions import packed_strides
from kvviz.trace.schema.run_options import GivenInputs, InputLayout

if TYPE_CHECKING:
    from kvviz.trace.recording import Trace


class Kept:
    """Copies of the arrays that a run was given (``values``, packed and read-only), and their original layouts
    (``given``)."""

    __slots__ = ("given", "values")

    def __init__(self, feeds: Mapping[str, Any], given: GivenInputs | None = None) -> None:
        self.values = {name: _copied(value) for name, value in feeds.items()}
        self.given = given or given_inputs(feeds)

    @staticmethod
    def size(feeds: Mapping[str, Any]) -> int:
        return sum(_nbytes(value) for value in feeds.values())

    def fresh(self) -> dict[str, Any]:
        blocks: dict[int, np.ndarray] = {}
        made: dict[str, Any] = {}
        for name, value in self.values.items():
            spot = self.given.layouts.get(name)
            made[name] = _copied(value) if spot is None else _put(value, spot, blocks)
        return made


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a trace was made. ``begin(**inputs, **options)`` makes a session. ``options``: keyword arguments other than
    the inputs. ``given()`` returns fresh inputs for one run as keyword arguments; it raises `ReplayError` if they were
    not kept."""

    begin: Callable[..., Any]
    options: Mapping[str, Any]
    given: Callable[[], dict[str, Any]]

    @property
    def orders(self) -> tuple[str, ...]:
        """Names of schedules for the whole list of nodes; empty here, as a policy has its own schedule."""
        return ()

    def again(self, *, room: Mapping[str, tuple[int, int]] | None = None, **changes: Any) -> Trace:
        return self.session(room=room, **changes).run_to_end()

    def session(self, *, room: Mapping[str, tuple[int, int]] | None = None, **changes: Any) -> Any:
        """A session that begins with the same inputs. ``room``: inputs to put into a buffer with room to grow, as
        (axis, rows). ``**changes``: options that differ, such as ``policy``, ``donate``, ``outputs`` or ``graph``.
        Raises `ReplayError`: if the inputs were larger than the budget for keeping them."""
        inputs = self.given()
        for name, (axis, rows) in (room or {}).items():
            inputs["inputs"][name] = with_room(inputs["inputs"][name], axis, rows)
        return self.begin(**{**self.options, **inputs, **changes})


NOT_KEPT = "the run cannot be repeated: its inputs were larger than the budget for keeping them"


def fresh(kept: Kept | None) -> dict[str, Any]:
    """Inputs for one more run; raises `ReplayError` if they were not kept."""
    if kept is None:
        raise ReplayError(NOT_KEPT)
    return kept.fresh()


def _nbytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    return value.nbytes if isinstance(value, np.ndarray) and not is_ghost(value) else 0


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(element) for element in value]
    return packed_copy(value) if isinstance(value, np.ndarray) else value


def given_inputs(feeds: Mapping[str, Any]) -> GivenInputs:
    """Names of the inputs of a run, and how they share memory."""
    arrays = {name: value for name, value in feeds.items() if isinstance(value, np.ndarray)}
    plain = {id(array) for array in arrays.values() if array.base is None and array.flags.c_contiguous}
    if len(plain) == len(arrays) and all(type(array) is np.ndarray for array in arrays.values()):
        return GivenInputs(frozenset(feeds), {}, True)
    blocks: dict[int, int] = {}
    found = {name: _layout(array, blocks) for name, array in arrays.items()}
    together = Counter(layout.block for layout in found.values() if layout is not None)
    layouts = {
        name: layout
        for name, layout in found.items()
        # An array that alone fills a plain block needs no layout.
        if layout is not None and (layout.reserved or together[layout.block] > 1 or not _fills(arrays[name], layout))
    }
    alike = all(layout is not None or arrays[name].flags.c_contiguous for name, layout in found.items())
    return GivenInputs(frozenset(feeds), layouts, alike)


def _layout(array: np.ndarray, blocks: dict[int, int]) -> InputLayout | None:
    """Where an array lies in its root; None for arrays of objects and for roots with gaps."""
    root, form = root_of(array), (array.shape, array.dtype)
    if array.dtype.hasobject or not root.size:
        return None
    if root is array and type(array) is np.ndarray and array.flags.c_contiguous:
        return InputLayout(blocks.setdefault(id(root), len(blocks)), array.nbytes, 0, array.strides, None, False, *form)
    low = address(root)
    if not root.flags.c_contiguous:
        low, high = np.lib.array_utils.byte_bounds(root)
        if high - low != root.nbytes:
            return None
    offset = address(array) - low if array.size else 0
    reserved = (root.shape, root.dtype, root.grow_axis) if has_room(root) else None
    block = blocks.setdefault(id(root), len(blocks))
    return InputLayout(block, root.nbytes, offset, array.strides, reserved, repeats(array), *form)


def _fills(array: np.ndarray, layout: InputLayout) -> bool:
    return array.nbytes == layout.size and array.strides == packed_strides(array.shape, array.itemsize)


def _put(value: np.ndarray, spot: InputLayout, blocks: dict[int, np.ndarray]) -> np.ndarray:
    """A copy of a kept array, at the same place in a new block."""
    block = blocks.get(spot.block)
    if block is None:
        block = ghost((spot.size,), np.uint8) if is_ghost(value) else np.empty(spot.size, np.uint8)
        if spot.reserved is not None:
            block = reserved_block(*spot.reserved, is_ghost(value)).reshape(-1).view(np.uint8)
        blocks[spot.block] = block
    array: np.ndarray = np.ndarray(value.shape, value.dtype, block, spot.offset, spot.strides)
    if not is_ghost(value):
        array[...] = value
    return array
