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


def test_a_scan_that_was_saved_knows_what_it_carries(tmp_path: Path) -> None:
    # given: the state of the Scan is an output of its body, as its name says
    trace = run(
        """g (float[3, 2] x, float[2] s) => (float[2] y, float[3, 2] z) { a = Exp(x) h = Neg(s)
            y, z = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] r) => (float[2] w, float[2] o)
                { w = Add(v, r) o = Relu(r) }> (h, a) }""",
        {"x": numbers(3, 2), "s": numbers(2)},
        policy="rten",
    )
    # when
    trace.save(tmp_path / "trace")
    loaded = kvviz.Trace.load(tmp_path / "trace")
    # then
    assert kvviz.explain(loaded).held_too_long == kvviz.explain(trace).held_too_long
    assert kvviz.hazards(loaded) == kvviz.hazards(trace) == ()


def test_a_view_that_numpy_had_to_copy_begins_where_its_storage_begins(tmp_path: Path) -> None:
    """onnxruntime shows the result of Reshape as a view; of a transposed array NumPy makes a copy."""
    trace = run(
        """g (float[2, 3] x, bool c) => (float[6] y) <int64[1] n = {6}> { r = Reshape(x, n)
            y = If (c) <then_branch = t () => (float[6] p) { p = Neg(r) }, else_branch = e () => (float[6] q)
                { q = Exp(r) }> }""",
        {"x": numbers(3, 2).T, "c": np.array(True)},
        policy="onnxruntime",
    )
    assert {bound.offset for frame in trace.frames for bound in frame.bindings} == {0}
    trace.save(tmp_path / "trace")
    assert kvviz.Trace.load(tmp_path / "trace").frames == trace.frames or len(trace.frames) == 2
