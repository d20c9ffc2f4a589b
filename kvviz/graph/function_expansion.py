"""How large a model becomes when every call of its functions is spelled out, counted before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.errors import GraphError
from kvviz.graph.functions import FunctionKey, call_key, plain_domain, subgraphs
from kvviz.graph.names import quoted
from kvviz.graph.topological_order import find_cycle, topological


@dataclass(frozen=True, slots=True)
class Extent:
    """What a graph or function comes to with all that it calls."""

    nodes: int  # at any depth, each body once for each of its calls
    calls: int = 0  # bodies among them
    depth: int = 1  # graphs within each other


@dataclass(frozen=True, slots=True)
class _Own:
    """What one graph or function says itself: nodes, levels of subgraphs, and calls with the level they stand at."""

    nodes: int
    depth: int
    calls: tuple[tuple[FunctionKey, int], ...]


def extents(graph: Any, functions: Mapping[FunctionKey, Any], label: str) -> tuple[Extent, dict[FunctionKey, Extent]]:
    """Extent of a main graph, and of each function that it reaches, those that it calls first."""
    main = _own(graph, functions)
    own: dict[FunctionKey, _Own] = {}
    waiting = [key for key, _ in main.calls]
    while waiting:
        key = waiting.pop()
        if key not in own:
            own[key] = _own(functions[key], functions)
            waiting += [called for called, _ in own[key].calls]
    found: dict[FunctionKey, Extent] = {}
    for key in _callees_first(own, label):
        found[key] = _sum(own[key], found)
    return _sum(main, found), found


def _own(root: Any, functions: Mapping[FunctionKey, Any]) -> _Own:
    count, deepest = 0, 1
    calls: list[tuple[FunctionKey, int]] = []
    # Not by recursion: a proto in memory may nest thousands of levels.
    stack = [(root, 1)]
    while stack:
        graph, depth = stack.pop()
        count += len(graph.node)
        deepest = max(deepest, depth)
        for node in graph.node:
            stack += [(inner, depth + 1) for attribute in node.attribute for inner in subgraphs(attribute)]
            # Constant nodes become weights, whatever functions there are.
            if functions and (node.op_type != "Constant" or plain_domain(node.domain)):
                key = call_key(node)
                if key in functions:
                    calls.append((key, depth))
    return _Own(count, deepest, tuple(calls))


def _callees_first(own: Mapping[FunctionKey, _Own], label: str) -> list[FunctionKey]:
    keys = list(own)
    number = {key: str(i) for i, key in enumerate(keys)}
    reads = [list(dict.fromkeys(number[called] for called, _ in own[key].calls)) for key in keys]
    makes = [[number[key]] for key in keys]
    order = topological(reads, makes)
    if order is not None:
        return [keys[i] for i in order]
    circle = [keys[i] for i in reversed(find_cycle(reads, makes))]
    names = [quoted(name)[1:-1] for _, name, _ in (*circle[:8], circle[0])]
    more = f" ({len(circle) - 8} more functions lie between)" if len(circle) > 8 else ""
    raise GraphError(f"function {quoted(circle[0][1])} of {label} calls itself: {' → '.join(names)}{more}")


def _sum(own: _Own, found: Mapping[FunctionKey, Extent]) -> Extent:
    called = [(found[key], depth) for key, depth in own.calls]
    return Extent(
        own.nodes + sum(extent.nodes for extent, _ in called),
        len(called) + sum(extent.calls for extent, _ in called),
        max([own.depth, *(depth + extent.depth for extent, depth in called)]),
    )
