"""Changes to a run, one small value each, and the arguments for running it again with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvviz.engine.decide import by_value
from kvviz.engine.policy import Policy
from kvviz.graph.model import Dims, Graph, GraphPath, with_dims
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.schedules import Before, Picks
from kvviz.trace.recording import Trace


@dataclass(frozen=True, slots=True)
class RunFirst:
    """Run a reader before a node. ``graph`` is the path of their graph; both are indices in its node list."""

    graph: GraphPath
    reader: int
    node: int


@dataclass(frozen=True, slots=True)
class Donate:
    """Let the run overwrite an input."""

    input: str


@dataclass(frozen=True, slots=True)
class ByValue:
    """Let a branch take over captured values that nothing else needs."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Put an input into a buffer with room for ``rows`` rows along an axis."""

    input: str
    axis: int
    rows: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """Reserve rows in every growing cache before the first run of a decode."""

    rows: int


@dataclass(frozen=True, slots=True)
class GrowAfter:
    """Move a full cache into a larger buffer after a run of a decode."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not ask for an output."""

    output: str


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange the first two inputs of a commutative node."""

    graph: GraphPath
    node: int


@dataclass(frozen=True, slots=True)
class Reorder:
    """Run in another order: its name, the Python code for such a schedule, and the order itself."""

    name: str
    code: str
    order: Picks


@dataclass(frozen=True, slots=True)
class FixDims:
    """Write the lengths of free dimensions into the model: (input, axis, length) of each."""

    dims: Dims


@dataclass(frozen=True, slots=True)
class UsePolicy:
    """Run under the rules of another policy."""

    name: str


Change = RunFirst | Donate | ByValue | Reserve | Capacity | GrowAfter | Drop | Swap | FixDims | Reorder | UsePolicy


def arguments(
    trace: Trace, changes: Sequence[Change], picked: bool, policy: Policy, model: Graph | None = None
) -> dict[str, Any]:
    """The arguments of `kvviz.engine.sessions.recipe.Recipe.again`. ``picked``: keep the order that a person chose for
    the trace. ``policy``: the policy of the trace. ``model``: a graph like the trace's own, which is changed instead of
    it."""
    graph = model or trace.graph
    found: dict[str, Any] = {**changed_options(trace, changes)}
    changed = _policy(trace, changes, picked, policy)
    if changed is not policy:
        found["policy"] = changed
    room = {change.input: (change.axis, change.rows) for change in changes if isinstance(change, Reserve)}
    if room:
        found["room"] = room
    for change in changes:
        if isinstance(change, Swap):
            found["graph"] = swapped(found.get("graph", graph), change.graph, change.node)
        elif isinstance(change, FixDims):
            found["graph"] = with_dims(found.get("graph", graph), change.dims)
    return found


def changed_options(trace: Trace, changes: Sequence[Change]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    donated = [change.input for change in changes if isinstance(change, Donate)]
    if donated:
        found["donate"] = list(dict.fromkeys((*trace.options.donate, *donated)))
    dropped = {change.output for change in changes if isinstance(change, Drop)}
    if dropped:
        found["outputs"] = [name for name in asked(trace) if name not in dropped]
    for change in changes:
        if isinstance(change, Capacity):
            found["kv_capacity"] = change.rows
        elif isinstance(change, GrowAfter):
            found["growth"] = "after"
    return found


def asked(trace: Trace) -> tuple[str, ...]:
    outputs: tuple[str, ...] = trace.log.frames[0].program.outputs
    return outputs


def swapped(graph: Graph, key: GraphPath, index: int) -> Graph:
    """A graph in which one node, possibly in a body, has its first two inputs exchanged."""
    nodes = []
    for node in graph.nodes:
        if key and node.index == key[0][0]:
            attribute = key[0][1]
            if attribute == "function":
                assert node.function is not None
                node = replace(node, function=swapped(node.function, key[1:], index))
            else:
                body = swapped(node.subgraphs[attribute], key[1:], index)
                node = replace(node, subgraphs={**node.subgraphs, attribute: body})
        elif not key and node.index == index:
            node = replace(node, inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _policy(trace: Trace, changes: Sequence[Change], picked: bool, policy: Policy) -> Policy:
    for change in changes:
        if isinstance(change, UsePolicy):
            policy = replace(find_policy(change.name), schedule=policy.schedule)
        elif isinstance(change, ByValue):
            policy = replace(policy, captures=by_value)
        elif isinstance(change, Reorder):
            policy = replace(policy, schedule=change.order)
    if picked:
        policy = replace(policy, schedule=Picks.of(trace))
    pairs = tuple((c.graph, c.reader, c.node) for c in changes if isinstance(c, RunFirst))
    return replace(policy, schedule=Before(policy.schedule, pairs)) if pairs else policy
