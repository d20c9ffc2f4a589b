"""A trace that was saved says the same of its decisions, whatever rules made them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz import Policy
from tests.engine.graphs import numbers, run

# x has a reader after the Add, a is used by two bodies, and the Softmax runs across the layout.
GRAPH = """
agraph (float[4, 16] x, bool c) => (float[4, 16] y, float[4, 16] z, int64[2] s)
{
    a = Relu (x)
    b = Add (a, x)
    s = Shape (b)
    r = Reshape (b, s)
    d = Neg (r)
    y = Softmax <axis = 0> (d)
    z = If (c) <
        then_branch = yes () => (float[4, 16] t) { t = Neg (a) },
        else_branch = no () => (float[4, 16] e) { e = Sin (a) }
    >
}
"""
POLICIES = [
    kvviz.policies.rten,
    kvviz.policies.rten(quirks=False),
    kvviz.policies.onnxruntime,
    kvviz.policies.never,
    kvviz.policies.ideal,
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_saved_trace_gives_the_same_reasons(policy: Policy, tmp_path: Path) -> None:
    trace = run(GRAPH, {"x": numbers(4, 16), "c": np.array(True)}, policy=policy)
    trace.save(tmp_path / "trace")
    loaded = kvviz.Trace.load(tmp_path / "trace")
    assert [step.decision for step in loaded.steps] == [step.decision for step in trace.steps]
    assert any(step.decision.blockers for step in trace.steps)
