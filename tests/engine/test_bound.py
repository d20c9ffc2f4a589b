"""Binding an output to an input: obeyed without a look at who still reads it, as IO binding does."""

from __future__ import annotations

import numpy as np

import kvviz
from kvviz.engine.io_binding import bind
from tests.engine.graphs import graph_of, numbers, run_graph

GRAPH = """
agraph (float[2, 3] past) => (float[2, 3] present, float before)
{ present = Neg (past) before = ReduceSum <keepdims = 0> (past) }
"""
bound = bind(kvviz.policies.ideal, {"present": "past"})


def test_a_bound_output_overwrites_what_a_later_op_still_reads() -> None:
    past = numbers(2, 3)
    trace = run_graph(graph_of(GRAPH), {"past": past.copy()}, donate=["past"], policy=bound)
    assert trace.steps[0].decision.taken == ("past",)
    np.testing.assert_allclose(trace.outputs["before"], -past.sum(), rtol=1e-6)


def test_the_same_graph_is_right_without_the_binding() -> None:
    past = numbers(2, 3)
    trace = run_graph(graph_of(GRAPH), {"past": past.copy()}, donate=["past"])
    assert trace.steps[0].decision.dispatch == "run"
    np.testing.assert_allclose(trace.outputs["before"], past.sum(), rtol=1e-6)


def test_only_the_op_that_makes_the_bound_output_is_told() -> None:
    graph = graph_of("agraph (float[2, 3] past) => (float[2, 3] present) { a = Neg (past) present = Add (a, past) }")
    trace = run_graph(graph, {"past": numbers(2, 3)}, donate=["past"], policy=bound)
    assert [step.decision.taken for step in trace.steps] == [(), ("past",)]
