"""Cache pairs: which output of one run is which input of the next, how and along which axis it grows, who writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.graph.cache_writes import Frame, Write, constant, writes
from kvviz.graph.input_roles import (
    control_inputs,
    logits_output,
    looks_like_cache,
    looks_like_cross,
    looks_like_state,
    names_agree,
    short_name,
)
from kvviz.graph.model import Dim, Graph, Node, Value

__all__ = ["CachePair", "cache_pairs", "control_inputs", "logits_output"]


@dataclass(frozen=True, slots=True)
class CachePair:
    """A cache: an input of the graph and the output that becomes this input in the next run.

    Its protocol is ``"growing"`` (each run makes a longer one), ``"static"`` (fixed size, rows are overwritten),
    ``"window"`` (old rows leave at one end), ``"state"`` (fixed size, all of it is overwritten) or ``"cross"`` (the
    encoder's, the same at every step). GroupQueryAttention counts as growing: only a run shows whether it shares one
    buffer.
    """

    name: str  # layer, then what it holds: ``"0.key"``, ``"3.cross.value"``
    input: str
    output: str
    protocol: str
    axis: int | None  # the sequence axis, from 0; None for states, paged caches, and where it is unknown
    writer: tuple[str, ...] = ()  # nodes that make the output, one a branch; ``""`` for an input of the graph
    # operators from the output back to each writer: ``"Transpose<-ScatterND"``, ``"Constant"``, ``"Input"``
    ops: tuple[str, ...] = ()


def cache_pairs(graph: Graph) -> tuple[CachePair, ...]:
    """Find the caches of a main graph, in the order of its inputs.

    First by structure: the output is made by an operator that appends to, scatters into or overwrites a value that
    comes, through views, branches, loops and functions, from an input. Then by name: the conventions of optimum,
    onnxruntime-genai, mobius, Olive, transformers.js, NeMo and torch.onnx. Then by order and shape, for cache inputs
    whose outputs have other names.
    """
    found = _PAIRS.get(graph)
    if found is None:
        found = _PAIRS[graph] = _find_pairs(graph)
    return found


# The fallback, exporters' usual layout: (batch, heads, rows, size), packed, or both halves in one.
_USUAL_AXIS = {3: 1, 4: 2, 5: 3}
_PAIRS: WeakKeyDictionary[Graph, tuple[CachePair, ...]] = WeakKeyDictionary()


def _find_pairs(graph: Graph) -> tuple[CachePair, ...]:
    inputs = {value.name: value for value in graph.inputs}
    outputs = {value.name: value for value in graph.outputs}
    made = {name: list(writes(Frame(graph), name)) for name in outputs}
    matched: dict[str, str] = {}
    _by_structure(inputs, outputs, made, matched)
    _by_name(inputs, outputs, matched)
    _by_order(graph, inputs, outputs, matched)
    order = [name for name in inputs if name in matched]
    return tuple(_pair(inputs[name], outputs[matched[name]], made[matched[name]]) for name in order)


def _by_structure(
    inputs: dict[str, Value], outputs: dict[str, Value], made: dict[str, list[Write]], matched: dict[str, str]
) -> None:
    found: list[tuple[int, str, str]] = []
    for output, ways in made.items():
        for write in ways:
            ranks = {
                root: _certainty(write, inputs[root], outputs[output])
                for root, _ in write.roots
                if root in inputs and _compatible(inputs[root], outputs[output])
            }
            known = [(rank, not looks_like_cache(root), root) for root, rank in ranks.items() if rank is not None]
            if known:
                # Of several joined inputs one is the past: the one with such a name, or else the first.
                rank, _, root = min(known, key=lambda item: item[:2])
                found.append((rank, root, output))
    # sort() keeps the order of the outputs among equals.
    for _, root, output in sorted(found, key=lambda item: item[0]):
        if root not in matched and output not in matched.values():
            matched[root] = output


def _certainty(write: Write, before: Value, after: Value) -> int | None:
    """How certain it is that a write carries a cache on: 0 is best, None is not at all."""
    called = looks_like_cache(before.name)
    # Such an output name is not enough: anything may be joined into it.
    called = called or (looks_like_cache(after.name) and write.evidence == "append")
    if names_agree(before.name, after.name) and (called or write.evidence == "op"):
        return 0
    if write.evidence == "op":
        return 1
    numbers = before.dtype is not None and before.dtype.kind in "iub" and before.dtype.itemsize > 1
    if write.protocol == "pass" or numbers:
        return 3 if called else None
    if write.protocol == "static":
        return 2
    if called:
        return 3
    # Only the shape is evidence: a long tensor that the computed rows make longer.
    grows = before.shape is not None and len(before.shape) >= 3 and not _is_fixed(before, write.axis)
    return 4 if write.evidence == "append" and grows else None


def _by_name(inputs: dict[str, Value], outputs: dict[str, Value], matched: dict[str, str]) -> None:
    for name, before in inputs.items():
        if name in matched:
            continue
        for output, after in outputs.items():
            named = looks_like_cache(name) or looks_like_cache(output) or name in ("h", "c")
            if named and names_agree(name, output) and output not in matched.values() and _compatible(before, after):
                matched[name] = output
                break


def _by_order(graph: Graph, inputs: dict[str, Value], outputs: dict[str, Value], matched: dict[str, str]) -> None:
    """Match the remaining ones in order if that is unambiguous, as torch.onnx writes unnamed caches."""
    control, logits = set(control_inputs(graph).values()), logits_output(graph)
    left = [n for n in inputs if n not in matched and n not in control and looks_like_cache(n)]
    free = [n for n in outputs if n not in matched.values() and n != logits and not looks_like_cross(n)]
    free = [n for n in free if any(_alike(inputs[name], outputs[n]) for name in left)]
    if len(left) == len(free) and all(_alike(inputs[a], outputs[b]) for a, b in zip(left, free)):
        matched.update(zip(left, free))


def _compatible(before: Value, after: Value) -> bool:
    """Whether an output can be an input of the next run: same type, same rank, if the model declares them."""
    if before.kind != after.kind or (before.dtype and after.dtype and before.dtype != after.dtype):
        return False
    return before.shape is None or after.shape is None or len(before.shape) == len(after.shape)


def _alike(before: Value, after: Value) -> bool:
    """Compatible, and with the same fixed lengths except for one axis."""
    if not _compatible(before, after) or not before.shape or not after.shape:
        return False
    return sum(a != b for a, b in zip(before.shape, after.shape) if isinstance(a, int) or isinstance(b, int)) <= 1


def _is_fixed(value: Value, axis: int | None) -> bool:
    shape = value.shape or ()
    return axis is not None and -len(shape) <= axis < len(shape) and isinstance(shape[axis], int)


def _pair(before: Value, after: Value, ways: list[Write]) -> CachePair:
    carrying = [write for write in ways if any(root == before.name for root, _ in write.roots)]
    protocol = _protocol(before, after, carrying)
    return CachePair(
        name=short_name(before.name),
        input=before.name,
        output=after.name,
        protocol=protocol,
        axis=None if protocol == "state" else sequence_axis(before, after, carrying, protocol),
        writer=tuple(node.name if (node := write.node or write.frame.node) else "" for write in ways),
        ops=tuple(write.label for write in ways),
    )


def _protocol(before: Value, after: Value, carrying: list[Write]) -> str:
    """How the cache is kept: by the operator, else by its name, else by the shapes."""
    said = [write.protocol for write in carrying if write.protocol != "pass"]
    if said and said[0] != "growing":
        return said[0]
    if said:
        cut = any(node.op_type == "Slice" for write in carrying for node in write.chain)
        cut = cut or any(part for write in carrying for root, part in write.roots if root == before.name)
        if cut:
            return "state" if looks_like_state(before.name) else "window"
        return "growing"
    if carrying or looks_like_cross(before.name):
        return "cross"
    if looks_like_state(before.name) or looks_like_state(after.name):
        return "state"
    if before.shape is None or after.shape is None or any(map(_may_grow, before.shape, after.shape)):
        return "growing"
    # Without an axis of so many rows it is overwritten as a whole.
    axis = _USUAL_AXIS.get(len(before.shape))
    return "state" if axis is None or not isinstance(before.shape[axis], int) else "static"


def _may_grow(before: Dim, after: Dim) -> bool:
    """Whether an axis may be the one that a cache grows along: open or longer after a run, and no batch."""
    if isinstance(before, int):
        return isinstance(after, int) and before != after
    return before != after and not any(isinstance(dim, str) and "batch" in dim.lower() for dim in (before, after))


def sequence_axis(before: Value, after: Value, carrying: Sequence[Write], protocol: str) -> int | None:
    """The sequence axis of a cache, from 0: where its writers work, seen through the views behind them."""
    shape = after.shape if after.shape is not None else before.shape
    if shape is None:
        return next((write.axis for write in carrying if not write.chain), None)
    for write in carrying:
        if write.node is not None:
            if write.axis is None:
                return None
            axes = _axes_at(write, len(shape))
            axis = _scattered_axis(write) if write.node.op_type == "ScatterND" else write.axis
            if axes and axis is not None and -len(axes) <= axis < len(axes) and axes[axis] is not None:
                return axes[axis]
    if before.shape and after.shape and protocol != "cross":
        different = [i for i, (a, b) in enumerate(zip(before.shape, after.shape)) if a != b]
        if len(different) == 1:
            return different[0]
    return _USUAL_AXIS.get(len(shape))


def _axes_at(write: Write, rank: int) -> list[int | None]:
    """For each axis of the writer's output the axis of the cache that it becomes; empty if unclear."""
    axes: list[int | None] = list(range(rank))
    for node in write.chain:
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm") or tuple(reversed(range(len(axes))))
            if sorted(perm) != list(range(len(axes))):
                return []
            inner: list[int | None] = [None] * len(axes)
            for place, axis in enumerate(perm):
                inner[axis] = axes[place]
            axes = inner
        elif node.op_type in ("Unsqueeze", "Squeeze"):
            places = _places(write.frame, node)
            if places is None:
                return []
            full = len(axes) + (len(places) if node.op_type == "Squeeze" else 0)
            there = {place % full for place in places} if full else set()
            if node.op_type == "Unsqueeze":
                axes = [axis for place, axis in enumerate(axes) if place not in there]
            else:
                left = iter(axes)
                axes = [None if place in there else next(left, None) for place in range(full)]
        elif node.op_type in ("Reshape", "Flatten"):
            return []
    return axes


def _places(frame: Frame, node: Node) -> list[int] | None:
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"]]
    array = constant(frame, node.inputs[1]) if node.given(1) else None
    return None if array is None else [int(axis) for axis in np.ravel(array)]


def _scattered_axis(write: Write) -> int | None:
    """The last axis that ScatterND's indices address; None if their length is not known."""
    assert write.node is not None
    frame, name = write.frame, write.node.inputs[1]
    maker = frame.graph.producers.get(name)
    if maker is not None and maker.op_type == "Unsqueeze":
        return 0
    if maker is not None and maker.op_type == "Concat":
        return len(maker.inputs) - 1
    array = constant(frame, name)
    shape = array.shape if array is not None else getattr(frame.graph.value_info.get(name), "shape", None)
    return shape[-1] - 1 if shape and isinstance(shape[-1], int) else None
