"""What ops of TTNN's IR do to memory: which operands they write, view, move or free, and which copy a whole cache.

Sources, all in tt-mlir: ``TTNN_InplaceOp`` and the operands with ``MemWrite`` (``TTNNOps.td``), ``isAliasingViewOp``
(``DataMovementRules.cpp``), and how ``TTNNDeallocate`` treats ``deallocate_activation``.

The cost of a cache's copy follows its reserved room, not its tokens. A cache is an argument marked ``ttcore.kv_cache``,
one that ``fill_cache`` and similar ops write, or an argument to whose rows a concatenation adds new ones, for a result
of the function. The two cases to find: tt-xla #4197 (two slices and a concatenation per layer, as keys and values share
a tensor), #4208 (a ``copy`` of each cache, as the output is not the input).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from kvviz.device.device_layout import TILE, zero_copy
from kvviz.device.ttnn.ttnn_layouts import TensorType
from kvviz.device.ttnn.ttnn_text import TtnnFunction, TtnnOp

CACHE_WRITES = {"ttnn.fill_cache", "ttnn.update_cache", "ttnn.paged_update_cache", "ttnn.paged_fill_cache"}

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
"""Ops that only move existing bytes."""


def written(op: TtnnOp) -> tuple[str, ...] | None:
    """Operands that an op writes in place; None if it writes only its results."""
    places = _IN_PLACE.get(op.name)
    if op.name == "ttnn.batch_norm_training" and "1,1,1," not in op.attributes.get("operandSegmentSizes", "1,1,1,"):
        places = ()
    return None if places is None else tuple(op.operands[place] for place in places if place < len(op.operands))


def reads_what_it_writes(op: TtnnOp) -> bool:
    """Whether an op computes new bytes of an operand from the old ones."""
    return op.name in _UPDATES


def is_view(op: TtnnOp, types: Mapping[str, TensorType | None]) -> bool:
    """Whether the result is the memory of the first operand."""
    old, new = types.get(op.operands[0]) if op.operands else None, op.types[0] if len(op.types) == 1 else None
    if old is None or new is None or (old.place, old.dtype, old.nbytes) != (new.place, new.dtype, new.nbytes):
        return False
    if op.name == "ttnn.reshape":
        return zero_copy(old.shape, new.shape, old.tiled)
    if op.name == "ttnn.repeat":
        return old.shape == new.shape
    if op.name == "ttnn.pad":
        return old.shape == new.shape or _pads_within_tiles(op, old, new)
    return op.name == "ttnn.permute" and _moves_nothing(op, old)


def _pads_within_tiles(op: TtnnOp, old: TensorType, new: TensorType) -> bool:
    """Whether a padding adds elements at the end only, and within the last tiles."""
    before = _numbers(op.attributes.get("padding", ""))[::2]
    up = [[-(-size // TILE) for size in type_.shape[-2:]] for type_ in (old, new)]
    return old.tiled and not any(before) and old.shape[:-2] == new.shape[:-2] and up[0] == up[1]


def _moves_nothing(op: TtnnOp, old: TensorType) -> bool:
    """Whether a permutation only moves axes of size 1, and not the last one (of tiles: the last two)."""
    order = _numbers(op.attributes.get("permutation", ""))
    moved = [axis for axis, source in enumerate(order) if axis != source]
    fixed = len(order) - (2 if old.tiled else 1)
    return len(order) == len(old.shape) and all(old.shape[axis] <= 1 and axis < fixed for axis in moved)


def _numbers(text: str) -> list[int]:
    """The numbers of ``array<i64:0,2,1>``."""
    return [int(number) for number in re.findall(r"(?<![\w])-?\d{1,9}(?!\w)", text.partition(":")[2])]


def freed_activation(op: TtnnOp, types: Mapping[str, TensorType | None]) -> str:
    """The operand that a convolution frees by force after reading it, which it does in L1 only; empty if none."""
    if op.name not in ("ttnn.conv2d", "ttnn.conv_transpose2d") or not op.operands:
        return ""
    asked = "deallocate_activation=true" in op.attributes.get("conv2d_config", "")
    given = types.get(op.operands[0])
    return op.operands[0] if asked and given is not None and given.space == "l1" else ""


CODE = "WHOLE_CACHE_COPY"
_CARRY = MOVES | {"ttnn.typecast"}


class CacheCopy(NamedTuple):
    """An op that copies the whole of a cache: the text's name for the cache, what is written, and the bytes."""

    op: TtnnOp
    cache: str
    target: str
    nbytes: int


def whole_cache_copies(function: TtnnFunction) -> list[CacheCopy]:
    """The copies of one call of a function, in order; const-eval functions count as having none."""
    return [] if function.kind == "const_eval" else _Caches(function).copies()


def copies_text(function: TtnnFunction, copies: Sequence[CacheCopy]) -> str:
    caches = len({copy.cache for copy in copies})
    kinds = Counter(copy.op.name.removeprefix("ttnn.") for copy in copies)
    each = f", {len(copies) // caches} for each of {caches} caches" * (caches > 1 and len(copies) % caches == 0)
    return (
        f"each call of @{function.name} copies whole caches {len(copies)} time{'s' * (len(copies) > 1)}{each}: "
        f"{sum(copy.nbytes for copy in copies):,} B ({', '.join(f'{n} {kind}' for kind, n in kinds.items())}), which "
        "grows with the room that is reserved, not with the tokens in it; keep keys and values in tensors of their "
        "own, update these in place, and return the arguments themselves"
    )


class _Caches:
    """Names that hold a cache or a copy of one, by the argument or value in which each began."""

    def __init__(self, function: TtnnFunction) -> None:
        self.function = function
        self.types: dict[str, TensorType | None] = {one.name: one.type for one in function.arguments}
        for op in function.ops:
            self.types |= dict(zip(op.results, op.types))
        self.origin: dict[str, str] = {}
        self.least: dict[str, int] = {}  # elements of the smallest cache that began there
        seeds = self._seeds()
        self._backward(set(seeds))
        for name in seeds:
            first = self.origin[name]
            self.least[first] = min(self._elements(name), self.least.get(first, 1 << 62))

    def copies(self) -> list[CacheCopy]:
        found = []
        for op in self.function.ops:
            target = self._target(op)
            known = [self.origin[name] for name in (*op.operands, target) if name in self.origin]
            if not target or not known:
                continue
            self.origin.setdefault(target, known[0])
            if self._elements(target) >= self.least[known[0]] and not is_view(op, self.types):
                type_ = self.types.get(target)
                found.append(CacheCopy(op, known[0], target, 0 if type_ is None else type_.nbytes))
        return found

    def _seeds(self) -> list[str]:
        found = [one.name for one in self.function.arguments if one.kind == "kv_cache"]
        found += [op.operands[0] for op in self.function.ops if op.name in CACHE_WRITES and op.operands]
        arguments = {one.name for one in self.function.arguments}
        for op in self.function.ops:
            if op.name == "ttnn.concat" and len(op.operands) == 2 and set(op.results) & set(self.function.returned):
                past, new = op.operands
                found += [past] * (past in arguments and new not in arguments and self._appends(past, new, op))
        return list(dict.fromkeys(name for name in found if self.types.get(name) is not None))

    def _appends(self, past: str, new: str, op: TtnnOp) -> bool:
        """Whether a concatenation adds fewer rows to those of a past: [batch, heads, rows, width]."""
        shapes = [
            type_.shape for type_ in (self.types.get(past), self.types.get(new), op.types[0]) if type_ is not None
        ]
        if len(shapes) < 3 or any(len(shape) != 4 for shape in shapes):
            return False
        old, row, joined = shapes
        return row[2] < old[2] and joined == (*old[:2], old[2] + row[2], old[3])

    def _backward(self, names: set[str]) -> None:
        """From the caches back to the source of their bytes: values moved into one, except small parts of it."""
        came: dict[str, str] = {}
        for op in reversed(self.function.ops):
            target = self._target(op)
            if target in names and op.results:
                large = [one for one in op.operands if 2 * self._elements(one) >= self._elements(target) > 0]
                names |= set(large)
                came[target] = large[0] if large else target
        for name in names:
            first = name
            while came.get(first, first) != first:
                first = came[first]
            self.origin[name] = first

    def _target(self, op: TtnnOp) -> str:
        """The operand that an op moves bytes into; empty if it does something else."""
        if op.name not in _CARRY:
            return ""
        return next(iter(written(op) or op.results), "")

    def _elements(self, name: str) -> int:
        type_ = self.types.get(name)
        return 0 if type_ is None else prod(type_.shape)
