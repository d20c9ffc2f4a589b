"""Follow a value back to what made it, through views, branches, loops and functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvviz.graph.caches.cache_ops import PICKS, VIEWS, cache_ops
from kvviz.graph.model import Graph, Node

_DEEPEST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A graph in its surroundings: which node runs it, and in which frame that node is."""

    graph: Graph
    parent: Frame | None = None
    node: Node | None = None
    attribute: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """Frames from the outside in, each ``node[attribute]``; empty for the main graph."""
        if self.parent is None or self.node is None:
            return ()
        return (*self.parent.path, f"{self.node.name}[{self.attribute}]" if self.attribute else self.node.name)


@dataclass(frozen=True, slots=True)
class Write:
    """What made a value, once views are looked through."""

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
        """Operators from the value back to its maker, e.g. ``"Transpose<-ScatterND"``."""
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
    # Keys and values may be joined again after each was appended to; more levels of that are no cache.
    operands = [name for name in dict.fromkeys(node.inputs) if name]
    inner = [write for name in operands for write in writes(frame, name, (*chain, node), depth + _DEEPEST // 2)]
    inner = [write for write in inner if write.roots]
    if inner and all(write.protocol == "state" for write in inner):
        # States of several layers, joined again: each was overwritten, and nothing is appended to any.
        yield inner[0]
        return
    if found:
        evidence = "append" if per_operand[0] and not any(per_operand[1:]) else ""
        yield Write(frame, node, chain, tuple(found.items()), node.attributes.get("axis", 1), "growing", evidence)
        return
    yield from inner[:1] or [Write(frame, node, chain)]


def _seen_through(node: Node, position: int) -> str | None:
    """The input that an output is a view of, or None."""
    if node.op_type in VIEWS | {"QuantizeLinear", "DequantizeLinear"} and not node.domain:
        return node.inputs[0]
    # Attention without a past gives the keys and values that it got.
    if (node.op_type, node.domain) == ("Attention", "") and position in (1, 2) and len(node.inputs) > position:
        return node.inputs[position] or None
    return None


def _inside(frame: Frame, node: Node, position: int) -> Iterator[tuple[Frame, str]]:
    """Where an output of a node with subgraphs or a function body comes from, inside."""
    if node.function is not None:
        yield Frame(node.function, frame, node), node.function.outputs[position].name
    for attribute, graph in node.subgraphs.items():
        place = position
        if node.op_type == "Loop":
            # Outputs: carried values, then scans; the body gives its condition first.
            place = position + 1 if position < len(node.inputs) - 2 else len(graph.outputs)
        elif node.op_type == "Scan":
            states = len(node.inputs) - int(node.attributes.get("num_scan_inputs", 0))
            place = position if position < states else len(graph.outputs)
        elif node.op_type != "If":
            place = len(graph.outputs)
        if place < len(graph.outputs):
            yield Frame(graph, frame, node, attribute), graph.outputs[place].name


def _outside(frame: Frame, name: str) -> tuple[Frame, str] | None:
    """Where a value that no node of this frame makes comes from; None where the frame itself has it."""
    if frame.parent is None or frame.node is None or name in frame.graph.weights:
        return None
    names = [value.name for value in frame.graph.inputs]
    if name in names:
        # Function inputs, loop-carried values and scan states stand at the place that the node reads them from.
        place = names.index(name)
        given = frame.node.inputs[place] if place < len(frame.node.inputs) else ""
        return (frame.parent, given) if given else None
    return frame.parent, name
