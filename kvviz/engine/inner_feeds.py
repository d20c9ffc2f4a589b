"""Runs that are given inner values by name: the graph begins there, and what only made them does not run.

rten takes any value of a graph as an input (``Graph::run`` at commit c7f7bad9); onnxruntime takes declared ones only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvviz.engine.plan import check_outputs, needed
from kvviz.engine.policy import Policy
from kvviz.errors import InputError
from kvviz.graph.model import Graph, Value
from kvviz.graph.shapes import infer


def beginning_at(graph: Graph, given: Iterable[str], outputs: Sequence[str] | None, policy: Policy) -> Graph:
    """The graph that a run computes which is given some inner values; the graph itself where there are none.

    ``given``: names of all values that the run is given.
    ``outputs``: what is wanted; the graph's outputs by default.

    Raises `InputError`: if an op must run although one of its outputs is given: rten runs what reads that value twice
      then, once with the given one and once with the one that is made.
    Raises `GraphError`: for an output that the graph does not have.
    """
    given = frozenset(given)
    declared = {value.name for value in (*graph.inputs, *graph.overridable)}
    inner = [name for name in graph.producers if name in given - declared]
    if not inner or not policy.feeds_inner:
        return graph
    names = tuple(value.name for value in graph.outputs) if outputs is None else tuple(outputs)
    key = ("begins at", given, names)
    if key not in graph.derived:
        check_outputs(graph, names)
        graph.derived[key] = _cut(graph, inner, given, names)
    return graph.derived[key]


def _cut(graph: Graph, inner: Sequence[str], given: frozenset[str], outputs: Sequence[str]) -> Graph:
    known = infer(graph)[graph]
    fed = tuple(graph.value_info.get(name) or replace(known.get(name, Value(name)), shape=None) for name in inner)
    nodes = tuple(needed(replace(graph, inputs=(*graph.inputs, *fed)), outputs))
    for node in nodes:
        made = [name for name in node.outputs if name in inner]
        if made:
            others = ", ".join(repr(name) for name in node.outputs if name and name not in made)
            raise InputError(
                f"{made[0]!r} is given, but node {node.name!r} ({node.qualified_op}) makes it and must run for its "
                f"other outputs; give {others} as well if it is needed, or let the node compute all of them"
            )
    read = {name for node in nodes for name in (*node.inputs, *node.captures)} | set(outputs)
    inputs = tuple(value for value in graph.inputs if value.name in read | given)
    return replace(graph, inputs=(*inputs, *fed), nodes=nodes)
