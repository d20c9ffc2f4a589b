"""onnxruntime's walk over a graph, and its planning step by step, for people: where each output will live and why.

The walk is its order of execution, and the order in which it changes nodes before.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.graph.model import Graph, Node
from kvviz.runtimes.frontier import Log, PlanningEvent
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALIAS,
    ALLOCATE,
    ALLOCATE_OUTPUT,
    FREELIST,
    MAY_INPLACE,
    SHARE,
    Buffer,
    allocation_plan,
)
from kvviz.runtimes.ort.known_types import known


def walked(node: Node, reader: Node | None, depth: int, leaving: bool, again: bool, planned: int) -> PlanningEvent:
    """One step of the walk: a node is met, met again, or put into the order."""
    first = next((name for name in node.outputs if name), "")
    if leaving:
        why = f"all that {node.op_type} reads is in the order now"
        return PlanningEvent("walk", node, first, "append", why, planned=planned, depth=depth)
    if reader is None:
        led, why = first, f"nothing follows {node.op_type}; of such ends the one that the model lists last comes first"
    else:
        led = next((name for name in (*reader.inputs, *reader.captures) if name in node.outputs), first)
        why = f"{reader.op_type} reads {led}; of what it reads, the model lists this maker last among those left"
    if again:
        return PlanningEvent("walk", node, led, "skip", f"{node.op_type} was met already", planned=planned, depth=depth)
    return PlanningEvent("walk", node, led, "visit", why, planned=planned, depth=depth)


def log_buffers(
    graph: Graph,
    order: Sequence[Node],
    outputs: Sequence[str],
    log: Log,
    mem_reuse: bool = True,
    parallel: bool = False,
) -> None:
    """Log for every output of every node, in running order, what the allocation plan says."""
    facts = known(graph)
    plan = allocation_plan(graph, order, outputs, facts.types, facts.inside, mem_reuse, parallel=parallel)
    for position, node in enumerate(order, 1):
        for name in filter(None, node.outputs):
            buffer = plan.buffers[name]
            log(PlanningEvent("buffer", node, name, buffer.kind, reason(node, buffer), planned=position))


def reason(node: Node, buffer: Buffer) -> str:
    """Why a value has the buffer that it has, in one sentence."""
    name, op = buffer.value, node.op_type
    if buffer.kind == ALLOCATE_OUTPUT:
        return f"{name} is an output of the graph: it gets memory of its own"
    if buffer.kind == SHARE:
        return f"{name} is what the loop carries, handed on as it is: it shares the memory of {node.inputs[0]}"
    if buffer.rule == ALIAS:
        source = node.inputs[buffer.position]
        return f"{op} only gives {source} another name or shape: it shares the buffer of {buffer.root}"
    if buffer.rule == MAY_INPLACE:
        return (
            f"{op} may run in place, nobody else needs {node.inputs[buffer.position]}, and both have one size: "
            f"it overwrites the buffer of {buffer.root}"
        )
    if buffer.rule == FREELIST:
        return f"the buffer of {buffer.root} is dead and of the same size: {name} takes it over"
    assert buffer.kind == ALLOCATE
    if not buffer.refused:
        return f"{op} does not run in place, and no dead buffer of that size is free: new memory"
    words = "; ".join(_refusal(node, position, mask) for position, mask in buffer.refused)
    return f"{words}; and no dead buffer of that size is free: new memory"


def buffer_text(buffer: Buffer) -> str:
    """The plan of a value in onnxruntime's words, e.g. ``kReuse of relu_out (MayInplace)``."""
    if buffer.rule:
        return f"{buffer.kind} of {buffer.root} ({buffer.rule})"
    return buffer.kind


def _refusal(node: Node, position: int, mask: int) -> str:
    return f"{node.op_type} may not overwrite {node.inputs[position]} ({', '.join(refusal.words(mask))})"


def walk(nodes: Sequence[Node], log: Log | None = None) -> list[Node]:
    """The walk itself, over nodes whose inputs are as onnxruntime has them."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    above = {
        node.index: sorted({makers[n].index for n in (*node.inputs, *node.captures) if n in makers}) for node in nodes
    }
    followed = {index for indices in above.values() for index in indices}
    by_index = {node.index: node for node in nodes}
    # (node, the one whose makers brought it here, depth); -1 for an end of the graph
    stack = [(index, -1, 0, False) for index in sorted(by_index) if index not in followed]
    order: list[Node] = []
    met: set[int] = set()
    while stack:
        index, reader, depth, leaving = stack.pop()
        node = by_index[index]
        if leaving:
            order.append(node)
        if log is not None:
            log(walked(node, by_index.get(reader), depth, leaving, index in met, len(order)))
        if leaving or index in met:
            continue
        met.add(index)
        stack.append((index, reader, depth, True))
        stack += [(i, index, depth + 1, False) for i in above[index] if i not in met]
    return order
