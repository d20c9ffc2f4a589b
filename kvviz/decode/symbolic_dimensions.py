"""Symbolic dimensions: their names, and their lengths once the names are known.

A dimension is a number, a name, a sum or product of names such as ``past + new``, or has no name at all. Each can also
be given by its place: ``x.0`` is the first dimension of input x.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvviz.decode.run_sessions import SingleRun
from kvviz.engine.sessions.session import whole
from kvviz.errors import InputError, KvvizError, OpError
from kvviz.graph.model import Graph, Value
from kvviz.trace.records import Step

_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}
_LONGEST = 1 << 40


def place(value: Value, axis: int) -> str:
    return f"{value.name}.{axis}"


class Dimensions:
    """Known lengths of the symbolic dimensions of a graph's inputs, by name or by place; a place counts for itself, and
    for its name unless that is given."""

    def __init__(self, graph: Graph, stated: Mapping[str, int]) -> None:
        self.lengths: dict[str, int] = {}
        self._stated = stated
        self._plain = {d for v in (*graph.inputs, *graph.outputs) for d in v.shape or () if isinstance(d, str)}
        places = {place(value, axis): dim for value in graph.inputs for axis, dim in enumerate(value.shape or ())}
        named = {name for dim in places.values() if isinstance(dim, str) for name in (dim, *self.names(dim))}
        for name, length in stated.items():
            self._check(name, length, places, named)
            self.lengths[name] = int(length)
        for name in stated:
            parts = self.names(name)
            if parts != [name] and all(part in stated for part in parts) and _value(name, stated) != stated[name]:
                lengths = ", ".join(f"{part}={stated[part]}" for part in parts)
                raise InputError(f"dimension {name!r} is {_value(name, stated)} with {lengths}, not {stated[name]}")
            dim = places.get(name)
            if isinstance(dim, str) and name not in named:
                self.lengths.setdefault(dim, int(stated[name]))

    def _check(self, name: str, length: int, places: Mapping[str, object], named: set[str]) -> None:
        if name not in places and name not in named:
            known = sorted(named) + [at for at, dim in places.items() if dim is None]
            has = f"; it has {', '.join(known)}" if known else ": all of its inputs have a fixed shape"
            raise InputError(f"the model has no dimension named {name!r}{has}")
        if isinstance(length, bool) or not hasattr(length, "__index__") or not 0 <= int(length) < _LONGEST:
            raise InputError(f"dimension {name!r} cannot be {length!r}: a length must be a whole number, 0 or more")
        fixed = places.get(name)
        if isinstance(fixed, int) and fixed != length:
            raise InputError(f"dimension {name!r} cannot be {length}: the model fixes it at {fixed}")

    def learn(self, value: Value, axis: int, length: int) -> None:
        """Set a length that follows from elsewhere, unless it was given."""
        dim = (value.shape or ())[axis]
        if not isinstance(dim, int):
            self.lengths.setdefault(place(value, axis) if dim is None else dim, length)

    def observe(self, value: Value, axis: int, length: int) -> None:
        """Set a length that a given input has; raises `InputError` if another one was given."""
        dim = (value.shape or ())[axis]
        if isinstance(dim, str) and self._stated.get(dim, length) != length:
            where = f"axis {axis} of the given input {value.name!r}"
            raise InputError(f"dimension {dim!r} is {length} in {where}, not {self._stated[dim]}")
        self.learn(value, axis, length)

    def unknown(self, value: Value, axis: int) -> list[str]:
        """Names that the length of a dimension still depends on."""
        dim = (value.shape or ())[axis]
        if isinstance(dim, int) or place(value, axis) in self.lengths or dim in self.lengths:
            return []
        return [name for name in self.names(dim) if name not in self.lengths] if dim else [place(value, axis)]

    def length(self, value: Value, axis: int) -> int:
        dim = (value.shape or ())[axis]
        if isinstance(dim, int):
            return dim
        known = self.lengths.get(place(value, axis), self.lengths.get(str(dim)))
        if known is not None:
            return known
        length = _value(str(dim), self.lengths)
        if not 0 <= length < _LONGEST:
            given = ", ".join(f"{name}={self.lengths[name]}" for name in self.names(dim))
            raise InputError(
                f"dimension {axis} of input {value.name!r} is {dim}, which is no valid length with {given}"
            )
        return length

    def missing_part(self, dim: str, part: str, others: Mapping[str, int], total: int) -> int | None:
        """The length of one name that makes a sum or product equal a total; None if there is none."""
        span = 5040  # 2 to 10 divide it, so that the slope of a quotient comes out as well
        low, high = (_value(dim, {**self.lengths, **others, part: length}) for length in (0, span))
        length = (total - low) * span // (high - low) if high > low else -1
        return length if length >= 0 and _value(dim, {**self.lengths, **others, part: length}) == total else None

    def names(self, dim: str | None) -> list[str]:
        """The names in a dimension such as ``past + new``; the whole if it is no sum or product of names."""
        if dim is None:
            return []
        try:
            tree = ast.parse(dim, mode="eval").body
            found = list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))
            _evaluate(tree, dict.fromkeys(found, 1))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
            return [dim]
        # A hyphen joins words: batch-size is a difference only if batch and size are dimensions as well.
        if " " not in dim and "-" in dim and len(found) > 1 and not self._plain.issuperset(found):
            return [dim]
        return found or [dim]


def _value(dim: str, lengths: Mapping[str, int]) -> int:
    """A sum or product of known names; -1 where it has no value."""
    try:
        return _evaluate(ast.parse(dim, mode="eval").body, lengths)
    except ZeroDivisionError:
        return -1


def _evaluate(tree: ast.expr, lengths: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Name):
        return lengths[tree.id]
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATIONS:
        return _OPERATIONS[type(tree.op)](_evaluate(tree.left, lengths), _evaluate(tree.right, lengths))
    raise ValueError("not a sum or product of names and numbers")


# Lengths that a window fits into: a graph with convolutions takes no signal of four numbers.


_WINDOWS = frozenset(
    {
        *("Conv", "ConvInteger", "ConvTranspose", "QLinearConv", "FusedConv", "NhwcConv", "DeformConv"),
        *("AveragePool", "MaxPool", "LpPool", "MaxUnpool", "QLinearAveragePool", "MaxRoiPool", "RoiAlign"),
        *("STFT", "DFT", "MelWeightMatrix", "Col2Im", "DepthToSpace", "SpaceToDepth", "Pad", "Resize", "Upsample"),
    }
)
# Powers of two for nets that halve again and again, and the usual training sizes of nets for images.
_LADDER = (16, 32, 48, 64, 96, 128, 192, 224, 256, 299, 320, 384, 448, 512, 640, 1024, 2048, 4096, 8192, 16384, 32768)
_LARGEST = 1 << 22
_GROUPS = 4


def fitting(
    graph: Graph, lengths: Mapping[str, int], free: list[str], make: Callable[[Mapping[str, int]], dict[str, Any]]
) -> dict[str, int]:
    """Lengths with which the graph runs: the given ones, or else the first larger ones of the ``free`` dimensions. If
    nothing fits they stay as given, so that the run itself reports what is wrong."""
    first = dict(lengths)
    # Only an operator that looks at several places at once may find an input too small.
    if not free or not has_windows(graph):
        return first
    for group in [free, *_groups(free)]:
        # The others are 1: a state beside a signal may have the batch on any axis.
        ones = {**first, **dict.fromkeys(set(free) - set(group), 1)}
        for tried in _candidates(ones, group):
            feeds = make(tried)
            if sum(math.prod(getattr(value, "shape", ())) for value in feeds.values()) > _LARGEST:
                break
            if _runs(graph, feeds):
                return tried
    return first


def has_windows(graph: Graph) -> bool:
    return any(node.op_type in _WINDOWS for _, node in graph.walk())


def _groups(free: list[str]) -> list[list[str]]:
    """The dimensions of each input separately, if several inputs have dimensions without names."""
    found: dict[str, list[str]] = {}
    for name in free:
        found.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return list(found.values()) if 1 < len(found) <= _GROUPS else []


def _candidates(first: dict[str, int], free: list[str]) -> Iterator[dict[str, int]]:
    yield first
    for length in _LADDER:
        if length > max(first[name] for name in free):
            yield {**first, **dict.fromkeys(free, length)}


def _runs(graph: Graph, feeds: dict[str, Any]) -> bool:
    """Whether a run completes, and no window was empty."""
    try:
        trace = whole(SingleRun(graph, feeds).run_to_end())
    except OpError:
        return False
    except KvvizError:
        # Not caused by lengths; the actual run reports it.
        return True
    windows = [step for step in trace.steps if step.op_type in _WINDOWS]
    return all(out.nbytes for step in windows for out in step.outs) and all(_reflects(graph, step) for step in windows)


def _reflects(graph: Graph, step: Step) -> bool:
    """Whether a reflected edge is shorter than the reflected data, as onnxruntime demands (NumPy reflects again)."""
    node, shape = step.graph_node, step.outs[0].shape
    if node.op_type != "Pad" or node.attributes.get("mode") not in ("reflect", b"reflect"):
        return True
    pads = node.attributes.get("pads")
    if pads is None:
        pads = graph.weights.get(node.inputs[1]) if len(node.inputs) in (2, 3) else None
    if shape is None or pads is None or len(pads) != 2 * len(shape):
        return True
    edges = [(int(before), int(after)) for before, after in zip(pads, pads[len(shape) :])]
    return all(max(edge) < length - sum(edge) for edge, length in zip(edges, shape) if max(edge) > 0)
