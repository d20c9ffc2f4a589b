"""Where the output of an op lives in rten: an in-place call need not return the same buffer.

New buffers come from its pool: best fit among the buffers of one run, by element width; small ones bypass it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz.engine.decide import NOTHING, written_over
from kvviz.engine.frame import Frame
from kvviz.engine.ghost_kernels import check_known
from kvviz.engine.placement import FRESH, UNPOOLED, Home
from kvviz.engine.plan import PlannedNode
from kvviz.errors import UnknownValueError
from kvviz.memory.ghosts import is_ghost
from kvviz.memory.storage import Arguments, ArrayLayout, Pool, Storage, address, grown, is_array, is_start
from kvviz.ops.registry import Grow
from kvviz.trace import blockers as b
from kvviz.trace.schema.events import APPEND, IN_PLACE, VIEW
from kvviz.trace.schema.regions import packed_strides

if TYPE_CHECKING:
    from kvviz.engine.execution import Execution


SMALLEST = 128


def type_of(dtype: Any) -> str:
    """rten's element type: all floats are float32, int8 and uint8 are themselves, everything else is int32."""
    dtype = np.dtype(dtype)
    if dtype in (np.int8, np.uint8):
        return str(dtype.name)
    return "int32" if dtype.kind in "iub" else "float32"


def width_of(dtype: np.dtype) -> int:
    """Bytes of an element in rten."""
    return 1 if dtype.char in "bB" else 4


class RtenPool(Pool):
    """Freed buffers with their capacity in rten's elements. ``sizes``: by storage id, of every buffer of this run."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        super().__init__(SMALLEST)
        self.sizes: dict[int, tuple[int, int]] = {}

    def made(self, storage: Storage, array: ArrayLayout) -> None:
        self.sizes[storage.id] = width_of(array.dtype), storage.capacity // max(array.itemsize, 1)

    def asked(self, array: ArrayLayout) -> tuple[int, int] | None:
        width = width_of(array.dtype)
        return None if width * array.size < self.smallest else (width, array.size)

    def give(self, storage: Storage) -> None:
        """Keep a dead buffer of 128 bytes or more."""
        root = storage.root
        if storage.id not in self.sizes:
            if not isinstance(root, np.ndarray):
                return
            self.sizes[storage.id] = width_of(root.dtype), storage.capacity // root.itemsize
        width, elements = self.sizes[storage.id]
        if width * elements >= self.smallest and storage.id not in self.dropped:
            self.keep(width, elements, storage)


def elements_of(pool: Any, storage: Storage, array: ArrayLayout) -> int:
    """Capacity of a storage in elements of rten's tensor in it."""
    if isinstance(pool, RtenPool) and storage.id in pool.sizes:
        return pool.sizes[storage.id][1]
    return storage.capacity // array.itemsize


# Ops whose in-place form changes the shape only: with a row-major block, or in any layout.
_RESHAPES = {"Reshape", "Flatten"}
_RELABELS = {"Identity", "Squeeze", "Unsqueeze"}
# In-place forms that return the input if they have nothing to do, and otherwise compute a new result.
_NO_OPS = {"Expand", "Tile", "Resize"}
# In-place forms that accept strided data.
_STRIDED = {"Clip", "Not", "Add", "Mul", "Sub", "Div", "Pow"}
# Ops that first make strided data row-major, with the global allocator.
_ALONG_AXIS = {"Softmax", "LogSoftmax"}
_NORMALIZES = {"BatchNormalization", "InstanceNormalization", "LpNormalization"}
# Ops that return an unusable buffer to the pool; others discard it.
_RETURNS = {"Concat", "Expand", "Resize", "Slice", "Add", "Mul", "Sub", "Div", "Pow"}
# Ops whose output has spare room.
_ROOMY = {"Range", "Shape"}
# Homes in memory of an input, which are few.
_held = cache(Home)


def keywords(frame: Frame, planned: PlannedNode, args: Arguments, taken: tuple[int, ...]) -> dict[str, Any]:
    """The keywords of our kernel, so that it does in NumPy what rten's does in its buffers; empty where it cannot."""
    if planned.grows:
        presents = tuple(_present(frame, planned, args, g) if g.input in taken else None for g in planned.grows)
        return {"grown": presents} if any(p is not None for p in presents) else NOTHING
    return written_over(planned, args, taken[0])


def homes(
    execution: Execution, frame: Frame, planned: PlannedNode, args: Arguments, outs: Arguments, taken: tuple[int, ...]
) -> list[Home]:
    node = planned.node
    if not taken:
        if node.op_type in _ALONG_AXIS and not _last_axis(planned, args[0]):
            return [UNPOOLED]
        return [_roomy(node.op_type, args, outs[0])] if node.op_type in _ROOMY else [FRESH] * len(outs)
    if not planned.grows:
        return [_home(planned, args, outs[0], taken[0])]
    found = [FRESH] * len(outs)
    for grow in planned.grows:
        if (past := grow.input) in taken:
            fits = _grows(execution, frame, planned, args, outs, grow)
            found[grow.output] = Home(APPEND, past) if fits else Home(position=past, mask=b.NO_CAPACITY)
    return found


def _roomy(kind: str, args: Arguments, out: ArrayLayout) -> Home:
    """Memory of an output with spare room, which a later Concat may use."""
    if kind == "Shape":
        # As many elements as the input has dimensions, however few are requested.
        return Home(elements=args[0].ndim)
    # Pushed one by one to a vector outside the pool, which starts with room for four, and doubles.
    return Home(pooled=False, elements=max(4, 1 << (out.size - 1).bit_length()) if out.size else 0)


def _home(planned: PlannedNode, args: Arguments, out: ArrayLayout, position: int) -> Home:
    """Where the only output of an op that was called in place lives."""
    kind, past = planned.node.op_type, args[position]
    if not is_array(past) or not is_array(out):
        return FRESH
    same_shape = past.shape == out.shape
    if same_shape and kind in _STRIDED:
        return _held(IN_PLACE, position)
    row_major = past.flags.c_contiguous
    if kind in _RELABELS:
        return _held(VIEW, position)
    if kind in _RESHAPES:
        return _held(VIEW, position) if row_major else _anew(kind, position, b.NOT_CONTIGUOUS)
    if kind == "Slice":
        if not _steps_are_one(planned, args):
            return _anew(kind, position, b.SHAPE_DIFFERS)
        # Kept data moves to the front of the buffer, if it does not begin there.
        return _held(IN_PLACE if out.size and address(out) != address(past) else VIEW, position)
    if kind in ("Cast", "CastLike"):
        return _cast(kind, past, out, position)
    if kind in _NO_OPS:
        return _held(VIEW, position) if same_shape else _anew(kind, position, b.SHAPE_DIFFERS)
    if kind in _ALONG_AXIS and not _last_axis(planned, past):
        return _anew(kind, position, b.NOT_CONTIGUOUS, pooled=False)
    if same_shape and row_major:
        return _held(IN_PLACE, position)
    if same_shape:
        return _anew(kind, position, b.NOT_CONTIGUOUS, pooled=kind not in _ALONG_AXIS | _NORMALIZES)
    return _anew(kind, position, b.SHAPE_DIFFERS)


def _cast(kind: str, past: ArrayLayout, out: ArrayLayout, position: int) -> Home:
    if type_of(past.dtype) == type_of(out.dtype):
        return _held(VIEW if past.dtype == out.dtype else IN_PLACE, position)
    if width_of(past.dtype) != width_of(out.dtype):
        return _anew(kind, position, b.DTYPE_DIFFERS)
    if past.flags.c_contiguous:
        return _held(IN_PLACE, position)
    return _anew(kind, position, b.NOT_CONTIGUOUS, pooled=False)


def _anew(kind: str, position: int, mask: int, pooled: bool = True) -> Home:
    """New memory, although the op was called in place with the input at a position."""
    return Home(position=position, mask=mask, pooled=pooled, dropped=kind not in _RETURNS)


def _last_axis(planned: PlannedNode, array: ArrayLayout) -> bool:
    lengths = list(zip(array.shape, array.strides))
    if lengths:
        lengths.append(lengths.pop(int(planned.attributes.get("axis", -1))))
    wanted = packed_strides([n for n, _ in lengths], array.itemsize)
    return not array.size or all(n == 1 or one == two for (n, one), two in zip(lengths, wanted))


def _steps_are_one(planned: PlannedNode, args: Arguments) -> bool:
    if len(args) < 5 or args[4] is None:
        return True
    check_known(planned, 4, args[4])
    return bool((np.asarray(args[4]) == 1).all())


def _grows(
    execution: Execution, frame: Frame, planned: PlannedNode, args: Arguments, outs: Arguments, grow: Grow
) -> bool:
    """Whether a past has room for its present."""
    before, after = args[grow.input], outs[grow.output]
    if not is_array(before) or before.ndim != after.ndim:
        return False
    axis = grow.axis(args, planned.attributes)
    if planned.node.op_type == "GroupQueryAttention" and not _appends(args, after):
        return False
    capacity = elements_of(execution.ledger.pool, frame.stores[planned.inputs[grow.input]], before)
    return has_capacity(before, axis, after.shape[axis], capacity)


def _appends(args: Arguments, present: ArrayLayout) -> bool:
    """Whether GroupQueryAttention only appends: every batch item's past is as long as the past's sequence axis."""
    past, lengths, new = args[3], args[5], args[0]
    if past is None or lengths is None:
        return False
    if is_ghost(lengths):
        if past.shape[0] > 1:
            raise UnknownValueError("whether GroupQueryAttention appends depends on the lengths of its sequences")
        # For one sequence the length of the present suffices.
        return bool(present.shape[2] - past.shape[2] == new.shape[1])
    return bool((np.asarray(lengths).reshape(-1) + 1 - new.shape[1] == past.shape[2]).all())


def has_capacity(array: ArrayLayout, axis: int, length: int, capacity: int) -> bool:
    """Whether a tensor can grow in place to ``length`` along an axis, in a buffer of so many elements. The strides
    stay: the last element must lie inside the buffer, and no two elements may overlap."""
    shape = list(array.shape)
    shape[axis] = length
    if 0 in shape:
        return True
    strides = [stride // array.itemsize for stride in array.strides]
    if 1 + sum((n - 1) * stride for n, stride in zip(shape, strides)) > capacity:
        return False
    reach = 0
    for stride, n in sorted((stride, n) for stride, n in zip(strides, shape) if n != 1):
        if stride <= reach:
            return False
        reach += (n - 1) * stride
    return True


def _present(frame: Frame, planned: PlannedNode, args: Arguments, grow: Grow) -> ArrayLayout | None:
    """The room of a block made by `kvviz.reserve` that the present takes, if there is any."""
    past = args[grow.input]
    storage = frame.stores[planned.inputs[grow.input]]
    room = storage.room
    if past is None or room is None or room.axis != grow.axis(args, planned.attributes):
        return None
    rows = grow.rows(args, planned.attributes)
    fits = room.filled == past.shape[room.axis] and room.filled + rows <= room.rows
    return grown(storage, past, rows) if fits and is_start(storage, past) else None
