"""Operators that write caches, and the way back from a value to what made it: through views, branches, loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvviz.graph.model import Graph, Node

MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class CacheOp:
    past: int  # position of the input
    present: int  # position of the output
    axis: int | None  # sequence axis, from 0 or (negative) from the end
    protocol: str  # ``"growing"``, ``"static"``, ``"window"`` or ``"state"``


def _pairs(protocol: str, axis: int | None, *pairs: tuple[int, int]) -> tuple[CacheOp, ...]:
    return tuple(CacheOp(past, present, axis, protocol) for past, present in pairs)


# Positions as in the schemas of onnx 1.23 and onnxruntime 1.31.
_TABLE: dict[tuple[str, str], tuple[CacheOp, ...]] = {
    ("", "Attention"): _pairs("growing", 2, (4, 1), (5, 2)),
    ("", "LinearAttention"): _pairs("state", None, (3, 1)),
    ("", "CausalConvWithState"): _pairs("state", None, (3, 1)),
    ("", "LSTM"): _pairs("state", None, (5, 1), (6, 2)),
    ("", "GRU"): _pairs("state", None, (5, 1)),
    ("", "RNN"): _pairs("state", None, (5, 1)),
    (MS, "GroupQueryAttention"): _pairs("growing", 2, (3, 1), (4, 2)),
    (MS, "MultiHeadAttention"): _pairs("growing", 2, (6, 1), (7, 2)),
    (MS, "Attention"): _pairs("growing", 3, (4, 1)),
    (MS, "QAttention"): _pairs("growing", 3, (8, 1)),
    (MS, "DecoderMaskedMultiHeadAttention"): _pairs("growing", 2, (5, 1), (6, 2)),
    (MS, "DecoderMaskedSelfAttention"): _pairs("growing", 3, (4, 1)),
    (MS, "SparseAttention"): _pairs("static", 2, (3, 1), (4, 2)),
    (MS, "PagedAttention"): _pairs("static", None, (3, 1), (4, 2)),
    (MS, "LinearAttention"): _pairs("state", None, (3, 1)),
    (MS, "CausalConvWithState"): _pairs("state", None, (3, 1)),
    (MS, "DynamicQuantizeLSTM"): _pairs("state", None, (5, 1), (6, 2)),
}
_SCATTERS = frozenset({"ScatterND", "ScatterElements", "Scatter", "TensorScatter"})

VIEWS = frozenset({"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Cast", "Slice", "Flatten", "CastLike"})
"""Operators that pass a cache on under another shape, or a part of it."""

PICKS = frozenset({"Split", "Gather", "Expand", "DequantizeLinear", "QuantizeLinear"})
"""Operators that a past may pass before it is written: halves of a combined cache, beams, a quantised cache."""


def cache_ops(node: Node) -> tuple[CacheOp, ...]:
    """The cache outputs of a node by its operator and attributes; empty for operators that write none. Concat is not
    included: any of its inputs may be the past."""
    if not node.domain and node.op_type in _SCATTERS:
        return _scatter(node)
    found = _TABLE.get((node.domain, node.op_type), ())
    protocol = _special_protocol(node)
    present = (op for op in found if node.given(op.past))
    return tuple(CacheOp(op.past, op.present, op.axis, protocol or op.protocol) for op in present)


def _scatter(node: Node) -> tuple[CacheOp, ...]:
    if node.op_type == "TensorScatter":
        circular = node.attributes.get("mode") == "circular"
        return (CacheOp(0, 0, node.attributes.get("axis", -2), "window" if circular else "static"),)
    # ScatterND writes whole slices of its first axis; exporters move the sequence axis there.
    axis = 0 if node.op_type == "ScatterND" else node.attributes.get("axis", 0)
    return (CacheOp(0, 0, axis, "static"),)


def _special_protocol(node: Node) -> str:
    """Changes of the protocol by attributes and inputs: shared buffers, evicting windows."""
    given = node.attributes
    if node.op_type == "GroupQueryAttention" and given.get("sliding_window_cache"):
        return "window"
    if given.get("past_present_share_buffer"):
        return "static"
    # The length of the past as an input means that the buffers have a fixed size (onnxruntime's MultiHeadAttention).
    if (node.domain, node.op_type) == (MS, "MultiHeadAttention") and node.given(8):
        return "static"
    return ""


_DEEPEST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A graph in its surroundings: which node runs it, and in which frame that node is."""

    graph: Graph
    parent: Frame | None = None
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """The maker of a value, seen through views."""

    frame: Frame
    node: Node | None  # None for a weight or an input of the main graph
    chain: tuple[Node, ...]  # the views between it and the value, last one first
    # inputs of the main graph that it carries on, each with whether only a part (a slice) of it
    roots: tuple[tuple[str, bool], ...] = ()
    axis: int | None = None  # axis of the node's output along which rows are added or written
    protocol: str = ""  # as of a CachePair; ``"pass"`` for an input passed through, ``""`` for what carries nothing on
    # ``"op"``: it exists to write caches; ``"append"``: it appends to an input; ``""``: names must agree
    evidence: str = ""

    @property
    def label(self) -> str:
        made_by = self.node.qualified_op if self.node else "Input" if self.protocol == "pass" else "Constant"
        return "<-".join([*(node.qualified_op for node in self.chain), made_by])


def writes(frame: Frame, name: str, chain: tuple[Node, ...] = (), depth: int = 0) -> Iterator[Write]:
    """What may have made a value: one answer, or one for each branch it may come from."""
    while depth <= _DEEPEST:
        depth += 1
        node = frame.graph.producers.get(name)
        if node is None:
            outer = _outside(frame, name)
            if outer is None:
                given = frame.parent is None and name not in frame.graph.weights
                yield Write(frame, None, chain, ((name, False),) if given else (), protocol="pass" if given else "")
                return
            frame, name = outer
            continue
        position = frame.graph.output_places[name]
        op = next((op for op in cache_ops(node) if op.present == position), None)
        if op is not None:
            found = roots(frame, node.inputs[op.past])
            evidence = "" if node.op_type in ("ScatterND", "ScatterElements", "Scatter") else "op"
            yield Write(frame, node, chain, found, op.axis, op.protocol if found else "", evidence)
            return
        inner = list(_inside(frame, node, position))
        if inner:
            for inside, value in inner:
                yield from writes(inside, value, chain, depth)
            return
        if node.op_type == "Concat":
            yield from _concat(frame, node, chain, depth)
            return
        back = _seen_through(node, position)
        if back is None:
            yield Write(frame, node, chain)
            return
        name, chain = back, (*chain, node)
        # Views may be many; only branches and joins count against the depth.
        depth -= 1


def roots(frame: Frame, name: str) -> tuple[tuple[str, bool], ...]:
    """Inputs of the main graph whose data a value holds, each with whether a slice was taken on the way."""
    found: dict[str, bool] = {}
    stack = [(frame, name, False)]
    seen: set[tuple[int, str]] = set()
    while stack:
        frame, name, part = stack.pop()
        if not name or (id(frame.graph), name) in seen:
            continue
        seen.add((id(frame.graph), name))
        node = frame.graph.producers.get(name)
        if node is None:
            outer = _outside(frame, name)
            if outer is not None:
                stack.append((*outer, part))
            elif frame.parent is None and name not in frame.graph.weights:
                found.setdefault(name, part)
            continue
        position = frame.graph.output_places[name]
        stack += [(*inside, part) for inside in _inside(frame, node, position)]
        stack += [(frame, node.inputs[op.past], part) for op in cache_ops(node) if op.present == position]
        if node.op_type in VIEWS | PICKS and not node.domain:
            stack.append((frame, node.inputs[0], part or node.op_type == "Slice"))
    return tuple(found.items())


def constant(frame: Frame, name: str) -> np.ndarray | None:
    """The array of a weight that is in sight of a frame; None for other values."""
    while True:
        if name in frame.graph.weights:
            return frame.graph.weights[name]
        outer = _outside(frame, name) if name not in frame.graph.producers else None
        if outer is None:
            return None
        frame, name = outer


def _concat(frame: Frame, node: Node, chain: tuple[Node, ...], depth: int) -> Iterator[Write]:
    per_operand = [roots(frame, name) for name in node.inputs]
    found: dict[str, bool] = {}
    for operand in per_operand:
        for root, part in operand:
            found.setdefault(root, part)
    # Keys and values may be joined again after each was appended to; deeper nesting is no cache.
    operands = [name for name in dict.fromkeys(node.inputs) if name]
    inner = [write for name in operands for write in writes(frame, name, (*chain, node), depth + _DEEPEST // 2)]
    inner = [write for write in inner if write.roots]
    if inner and all(write.protocol == "state" for write in inner):
        # States of several layers, joined again: each was overwritten, none was appended to.
        yield inner[0]
        return
    if found:
        evidence = "append" if per_operand[0] and not any(per_operand[1:]) else ""
        yield Write(frame, node, chain, tuple(found.items()), node.attributes.get("axis", 1), "growing", evidence)
        return
    yield from inner[:1] or [Write(frame, node, chain)]


def _seen_through(node: Node, position: int) -> str | None:
    if node.op_type in VIEWS | {"QuantizeLinear", "DequantizeLinear"} and not node.domain:
        return node.inputs[0]
    # Attention without a past returns its keys and values.
    if (node.op_type, node.domain) == ("Attention", "") and position in (1, 2) and len(node.inputs) > position:
        return node.inputs[position] or None
    return None


def _inside(frame: Frame, node: Node, position: int) -> Iterator[tuple[Frame, str]]:
    """The source of an output inside a node with subgraphs or a function body."""
    if node.function is not None:
        yield Frame(node.function, frame, node), node.function.outputs[position].name
    for graph in node.subgraphs.values():
        place = position
        if node.op_type == "Loop":
            # Outputs: carried values, then scans; the body returns its condition first.
            place = position + 1 if position < len(node.inputs) - 2 else len(graph.outputs)
        elif node.op_type == "Scan":
            states = len(node.inputs) - int(node.attributes.get("num_scan_inputs", 0))
            place = position if position < states else len(graph.outputs)
        elif node.op_type != "If":
            place = len(graph.outputs)
        if place < len(graph.outputs):
            yield Frame(graph, frame, node), graph.outputs[place].name


def _outside(frame: Frame, name: str) -> tuple[Frame, str] | None:
    """The source of a value that no node of this frame makes; None if the frame itself has it."""
    if frame.parent is None or frame.node is None or name in frame.graph.weights:
        return None
    names = [value.name for value in frame.graph.inputs]
    if name in names:
        # Function inputs, loop-carried values and scan states stand at the place that the node reads them from.
        place = names.index(name)
        given = frame.node.inputs[place] if place < len(frame.node.inputs) else ""
        return (frame.parent, given) if given else None
    return frame.parent, name
