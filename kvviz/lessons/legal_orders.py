"""Every legal order of a small graph, run and judged: which of them give the results that the graph means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvviz.engine.plan import needed
from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node
from kvviz.report.hazard_table import Hazards, hazards
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.schedules.picks import Picks
from kvviz.trace.recording import Trace
from kvviz.view.compare import runner


@dataclass(frozen=True, slots=True)
class Order:
    """One legal order of a graph's ops, and what came of it.

    ``nodes``: names, in the order of running.
    ``wrong``: outputs that differ from what the graph means.
    """

    nodes: tuple[str, ...]
    wrong: tuple[str, ...]
    hazards: Hazards
    trace: Trace


def legal_orders(graph: Graph, outputs: Sequence[str]) -> Iterator[tuple[Node, ...]]:
    """Every order in which the needed nodes of a graph can run, the model's own first."""
    nodes = needed(graph, outputs)
    made_by = {name: node.index for node in nodes for name in node.outputs if name}
    needs = {
        node.index: {made_by[name] for name in (*node.inputs, *node.captures) if name in made_by} for node in nodes
    }

    def extend(done: tuple[Node, ...], left: list[Node]) -> Iterator[tuple[Node, ...]]:
        if not left:
            yield done
        ran = {node.index for node in done}
        for node in left:
            if needs[node.index] <= ran:
                yield from extend((*done, node), [other for other in left if other is not node])

    return extend((), nodes)


def orders(
    graph: Graph,
    inputs: Mapping[str, Any],
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    limit: int = 200,
) -> tuple[Order, ...]:
    """Run a graph in every legal order under a policy, and compare with a run in which nothing is overwritten.

    ``graph, inputs, outputs, donate, policy``: as in `kvviz.run`. The inputs are the same afterwards.
    ``limit``: orders to try at most.

    Raises `KvvizError`: if the graph has more legal orders than that.
    """
    wanted = tuple(outputs) if outputs is not None else tuple(value.name for value in graph.outputs)
    once = runner(graph, inputs, None, donate, {"outputs": wanted})
    meant = once(find_policy("never")).outputs
    found: list[Order] = []
    for nodes in legal_orders(graph, wanted):
        if len(found) == limit:
            raise KvvizError(f"{graph.name} has more than {limit} legal orders; ask for fewer outputs or raise limit")
        picks = Picks(tuple(((), node.index) for node in nodes))
        trace = once(replace(find_policy(policy), schedule=picks))
        wrong = tuple(name for name in wanted if not _equal(trace.outputs[name], meant[name]))
        found.append(Order(tuple(node.name for node in nodes), wrong, hazards(trace), trace))
    return tuple(found)


def _equal(one: Any, two: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(two)))
