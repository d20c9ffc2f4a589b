"""Casts that onnxruntime removes from every model, whatever the optimisation level.

A Cast that is only cast again is skipped, and so is a second one that leads back to where the first began. The rules
and their exceptions (a lossy cast stays where a second one widens again, or asks for bool) are those of
onnxruntime 1.31, ``RemoveDuplicateCastTransformer``, which runs after the types are known and before the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvviz.graph.model import Graph, Node, Value

Types = Mapping[str, Value]
_BITS = {"bool": 1, "bfloat16": 16}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The nodes that onnxruntime plans.

    ``nodes``: with inputs renamed where a Cast before them is gone.
    ``stands_for``: output of a Cast that is gone to the value that its readers read instead.
    """

    nodes: tuple[Node, ...]
    stands_for: Mapping[str, str]


def without_duplicates(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], types: Types) -> Rewritten:
    """Leave out the Casts that onnxruntime leaves out.

    ``nodes``: those of its nodes that are planned.
    ``outputs``: values that are wanted: a Cast that makes one stays.
    ``types``: as inferred.
    """
    if sum(is_cast(node) for node in nodes) < 2:
        return Rewritten(tuple(nodes), {})
    work = _Work(nodes, outputs, types)
    for index in sorted(work.left):
        if index in work.left and is_cast(work.left[index]):
            work.look_at(index)
    return Rewritten(tuple(work.left.values()), {name: _end(work.gone, name) for name in work.gone})


class _Work:
    """The nodes that are left, who reads what, and which Casts are gone."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str], types: Types) -> None:
        self.left = {node.index: node for node in nodes}
        self.kinds = {name: value.dtype for name, value in types.items()}
        self.wanted = set(outputs)
        self.gone: dict[str, str] = {}
        self.readers: dict[str, list[int]] = {}  # one entry a reading
        for node in nodes:
            for name in (*node.inputs, *node.captures):
                self.readers.setdefault(name, []).append(node.index)

    def look_at(self, index: int) -> None:
        """Drop a Cast, and those after it that lead back, if the rules let them go."""
        node, kinds = self.left[index], self.kinds
        source, made = node.inputs[0], node.outputs[0]
        readers = sorted(self.readers.get(made, ()))
        casts = [self.left[i] for i in readers if is_cast(self.left[i])]
        lossy = is_unsafe(kinds.get(source), kinds.get(made))
        if not casts or (lossy and any(is_unsafe(kinds.get(c.outputs[0]), kinds.get(made)) for c in casts)):
            return
        back = [c for c in casts if c.outputs[0] not in self.wanted and kinds.get(c.outputs[0]) == kinds.get(source)]
        for cast in back:
            self._drop(cast, source)
        to_bool = any(kinds.get(c.outputs[0]) == np.bool_ for c in casts if c.index in self.left)
        if len(casts) == len(readers) and made not in self.wanted and not (lossy and to_bool):
            self._drop(node, source)

    def _drop(self, cast: Node, source: str) -> None:
        """Let the readers of a Cast read something else."""
        made = cast.outputs[0]
        del self.left[cast.index]
        self.gone[made] = source
        self.readers[cast.inputs[0]].remove(cast.index)
        moved = self.readers.pop(made, [])
        for index in set(moved):
            reader = self.left[index]
            self.left[index] = replace(
                reader,
                inputs=tuple(source if name == made else name for name in reader.inputs),
                captures=tuple(dict.fromkeys(source if name == made else name for name in reader.captures)),
            )
        self.readers.setdefault(source, []).extend(moved)


def is_cast(node: Node) -> bool:
    """Whether a node is ONNX's Cast."""
    return node.op_type == "Cast" and not node.domain


def _end(gone: Mapping[str, str], name: str) -> str:
    while name in gone:
        name = gone[name]
    return name


def is_unsafe(source: np.dtype | None, target: np.dtype | None) -> bool:
    """Whether a cast may change a number, by onnxruntime's reckoning; an unknown type counts as one that does."""
    if source is None or target is None:
        return True
    a, b = _group(source), _group(target)
    if not a or not b:
        return True
    bits, room = (_BITS.get(str(dtype), dtype.itemsize * 8) for dtype in (source, target))
    if b == "unsigned" and a in ("float", "signed"):
        return True
    if a == "float" and b != "float":
        return True
    if (a == "unsigned" and b == "signed") or (a in ("signed", "unsigned") and b == "float"):
        return room <= bits
    if {str(source), str(target)} == {"float16", "bfloat16"}:
        return True
    return bits > room


def _group(dtype: np.dtype) -> str:
    if str(dtype) in ("float16", "bfloat16", "float32", "float64"):
        return "float"
    return {"b": "bool", "i": "signed", "u": "unsigned"}.get(dtype.kind, "")
