"""What ops of TTNN's IR do to memory: which operands they write, what is a view, what only moves bytes, what they free.

Sources, all in tt-mlir: ``TTNN_InplaceOp`` and the operands with ``MemWrite`` (``TTNNOps.td``), ``isAliasingViewOp``
(``DataMovementRules.cpp``), and how ``TTNNDeallocate`` treats ``deallocate_activation``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvviz.device.device_layout import TILE
from kvviz.device.ttnn.ttnn_layouts import TensorType
from kvviz.device.ttnn.ttnn_text import TtnnOp

CACHE_WRITES = {"ttnn.fill_cache", "ttnn.update_cache", "ttnn.paged_update_cache", "ttnn.paged_fill_cache"}
"""Ops that write rows of their first operand, a cache."""

_IN_PLACE = {
    **dict.fromkeys(CACHE_WRITES, (0,)),
    "ttnn.copy": (1,),
    "ttnn.write_tensor": (1,),
    "ttnn.adamw": (0, 2, 3, 4),  # the parameter and its moments; the last one is optional
    "ttnn.dump_tensor": (),  # it writes a file
    "ttnn.batch_norm_training": (1, 2),  # the running mean and variance, which are optional
}
_UPDATES = {"ttnn.adamw", "ttnn.batch_norm_training"}

MOVES = {
    *("ttnn.to_device", "ttnn.from_device", "ttnn.to_memory_config", "ttnn.to_layout", "ttnn.to_dtype"),
    *("ttnn.to_tensor_spec", "ttnn.slice_static", "ttnn.slice_dynamic", "ttnn.concat", "ttnn.reshape", "ttnn.permute"),
    *("ttnn.transpose", "ttnn.repeat", "ttnn.repeat_interleave", "ttnn.pad", "ttnn.assign"),
    *("ttnn.copy", "ttnn.write_tensor"),
}
"""Ops that write nothing but what was there before."""


def written(op: TtnnOp) -> tuple[str, ...] | None:
    """Operands that an op writes in place; None of an op that writes its results alone."""
    places = _IN_PLACE.get(op.name)
    if op.name == "ttnn.batch_norm_training" and "1,1,1," not in op.attributes.get("operandSegmentSizes", "1,1,1,"):
        places = ()
    return None if places is None else tuple(op.operands[place] for place in places if place < len(op.operands))


def reads_what_it_writes(op: TtnnOp) -> bool:
    """Whether an op works out new bytes of an operand from the old ones."""
    return op.name in _UPDATES


def is_view(op: TtnnOp, types: Mapping[str, TensorType | None]) -> bool:
    """Whether the result is the memory of the first operand."""
    old, new = types.get(op.operands[0]) if op.operands else None, op.types[0] if len(op.types) == 1 else None
    if old is None or new is None or (old.place, old.dtype, old.nbytes) != (new.place, new.dtype, new.nbytes):
        return False
    if op.name == "ttnn.reshape":
        return bool(old.shape and new.shape) and old.shape[-1] == new.shape[-1] and _same_tiles(old, new)
    if op.name == "ttnn.repeat":
        return old.shape == new.shape
    if op.name == "ttnn.pad":
        return old.shape == new.shape or _pads_within_tiles(op, old, new)
    return op.name == "ttnn.permute" and _moves_nothing(op, old)


def _same_tiles(old: TensorType, new: TensorType) -> bool:
    rows = [(1, *type_.shape)[-2] for type_ in (old, new)]
    return not old.tiled or rows[0] == rows[1] or not (rows[0] % TILE or rows[1] % TILE)


def _pads_within_tiles(op: TtnnOp, old: TensorType, new: TensorType) -> bool:
    """Behind the last elements only, and no further than the tiles reach."""
    before = _numbers(op.attributes.get("padding", ""))[::2]
    up = [[-(-size // TILE) for size in type_.shape[-2:]] for type_ in (old, new)]
    return old.tiled and not any(before) and old.shape[:-2] == new.shape[:-2] and up[0] == up[1]


def _moves_nothing(op: TtnnOp, old: TensorType) -> bool:
    """A permutation of axes of size 1 alone, which leaves the last axis where it is, and of tiles the last two."""
    order = _numbers(op.attributes.get("permutation", ""))
    moved = [axis for axis, source in enumerate(order) if axis != source]
    fixed = len(order) - (2 if old.tiled else 1)
    return len(order) == len(old.shape) and all(old.shape[axis] <= 1 and axis < fixed for axis in moved)


def _numbers(text: str) -> list[int]:
    """Those of ``array<i64:0,2,1>``."""
    return [int(number) for number in re.findall(r"(?<![\w])-?\d{1,9}(?!\w)", text.partition(":")[2])]


def freed_activation(op: TtnnOp, types: Mapping[str, TensorType | None]) -> str:
    """The operand that a convolution frees by force when it has read it, which it does in L1 only; empty: none."""
    if op.name not in ("ttnn.conv2d", "ttnn.conv_transpose2d") or not op.operands:
        return ""
    asked = "deallocate_activation=true" in op.attributes.get("conv2d_config", "")
    given = types.get(op.operands[0])
    return op.operands[0] if asked and given is not None and given.space == "l1" else ""
