"""Small graphs: read from ONNX text, printed step by step, and run in every legal order to find the correct ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import parser

from kvviz.engine.plan import needed
from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph, Node
from kvviz.report.faces.hazard_table import Hazards, hazards
from kvviz.runtimes.frontier import makers, reads
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.schedules import Picks
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.recording import Trace
from kvviz.view.compare import runner


def small_graph(text: str, opset: int = 21) -> Graph:
    """Read one graph in ONNX's text form: name, inputs, outputs and nodes, without the header.

    Raises `KvvizError`: if the text cannot be read.

    >>> small_graph("one (float[2] x) => (float[2] y) { y = Relu(x) }").nodes[0].op_type
    'Relu'
    """
    try:
        return load(parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}'))
    except parser.ParseError as error:
        reason = error.args[0]
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise KvvizError(f"this is not a graph in ONNX's text form: {reason}") from None


def print_steps(trace: Trace) -> None:
    """Print for each step its op, how it was called, where its outputs lie, and the blockers that could change."""
    ops = ["/".join((*step.frame, step.op_type)) for step in trace.steps]
    width = max(map(len, ops), default=0) + 2
    for op, step in zip(ops, trace.steps):
        places = ", ".join(f"{out.name} in {out.label} ({out.how})" for out in step.outs)
        print(f"{op:{width}}{step.decision.dispatch:10}{places}")
        for blocker in step.decision.blockers:
            if blocker.code != BlockerCode.OP_CANNOT:  # an op that never runs in place is no news
                print(f"{'':{width}}  {blocker.code}: {blocker.message}")


@dataclass(frozen=True, slots=True)
class Order:
    """One legal order of a graph's ops, and its results."""

    nodes: tuple[str, ...]  # names, in the order of running
    wrong: tuple[str, ...]  # outputs that differ from what the graph means
    hazards: Hazards
    trace: Trace


def legal_orders(graph: Graph, outputs: Sequence[str]) -> Iterator[tuple[Node, ...]]:
    """Every order in which the needed nodes of a graph can run, the model's own first."""
    nodes = needed(graph, outputs)
    made_by = makers(nodes)
    needs = {node.index: {made_by[name].index for name in reads(node) if name in made_by} for node in nodes}

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

    ``graph, inputs, outputs, donate, policy``: as in `kvviz.run`. The inputs are unchanged afterwards. ``limit``: the
    most orders to try.

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
        wrong = tuple(name for name in wanted if not np.array_equal(trace.outputs[name], meant[name]))
        found.append(Order(tuple(node.name for node in nodes), wrong, hazards(trace), trace))
    return tuple(found)
