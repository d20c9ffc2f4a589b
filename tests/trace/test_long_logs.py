"""A log that is too long to keep its ops makes them when they are asked for; every reader gets the same answers."""

from __future__ import annotations

import random

import pytest

import kvviz
from kvviz import Trace
from kvviz.graph.model import Graph
from kvviz.report.explain import explain
from tests.explain.nested_graphs import nested


def recorded(graph: Graph, seed: int) -> Trace:
    _, inputs, donate = nested(seed)
    return kvviz.run(graph, {name: array.copy() for name, array in inputs.items()}, donate=donate)


@pytest.mark.parametrize("seed", range(20))
def test_ops_and_reports_are_those_of_a_short_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kvviz.load(nested(seed)[0])
    short, long = recorded(graph, seed), recorded(graph, seed)
    ops, report = list(short.log), explain(short)
    monkeypatch.setattr("kvviz.trace.log._KEPT", 0)
    assert list(long.log) == ops
    order = [*range(len(ops)), *random.Random(seed).sample(range(len(ops)), len(ops))]
    assert [long.log[step] for step in order] == [ops[step] for step in order]
    assert [long.log[-1 - step] for step in order] == [ops[-1 - step] for step in order]
    assert explain(long) == report
