"""Copies of whole caches in TTNN's IR: what they cost follows the room that is reserved, not the tokens in it.

What a cache is, the text says: an argument that is marked ``ttcore.kv_cache``, what ``fill_cache`` and its like write,
or an argument to whose rows a concatenation joins new ones, for a result of the function. The two cases to find:
tt-xla #4197 (two slices and a concatenation for each layer, as keys and values share a tensor), #4208 (a ``copy`` of
each cache, as the output is not the input).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from kvviz.device.ttnn.ttnn_effects import CACHE_WRITES, MOVES, is_view, written
from kvviz.device.ttnn.ttnn_layouts import TensorType
from kvviz.device.ttnn.ttnn_text import TtnnFunction, TtnnOp

CODE = "WHOLE_CACHE_COPY"
_CARRY = MOVES | {"ttnn.typecast"}


class CacheCopy(NamedTuple):
    """An op that copies the whole of a cache: its name in the text where it begins, what is written, and how much."""

    op: TtnnOp
    cache: str
    target: str
    nbytes: int


def whole_cache_copies(function: TtnnFunction) -> list[CacheCopy]:
    """Those of one call of a function, in order; of what is evaluated once and kept there are none."""
    return [] if function.kind == "const_eval" else _Caches(function).copies()


def copies_text(function: TtnnFunction, copies: Sequence[CacheCopy]) -> str:
    """All copies of a function in a sentence."""
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
    """Names that hold a cache or what is copied of one, by the argument or value in which each began."""

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
        """Whether a concatenation joins fewer rows to those of a past: [batch, heads, rows, width]."""
        shapes = [
            type_.shape for type_ in (self.types.get(past), self.types.get(new), op.types[0]) if type_ is not None
        ]
        if len(shapes) < 3 or any(len(shape) != 4 for shape in shapes):
            return False
        old, row, joined = shapes
        return row[2] < old[2] and joined == (*old[:2], old[2] + row[2], old[3])

    def _backward(self, names: set[str]) -> None:
        """From the caches to where their bytes come from: what is moved into one, but for small parts of it."""
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
        """What an op moves bytes into; empty if it does something else."""
        if op.name not in _CARRY:
            return ""
        return next(iter(written(op) or op.results), "")

    def _elements(self, name: str) -> int:
        type_ = self.types.get(name)
        return 0 if type_ is None else prod(type_.shape)
