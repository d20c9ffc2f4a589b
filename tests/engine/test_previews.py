"""What an op of the frontier would allocate and free, told before it runs."""

import numpy as np
import pytest

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.sessions.session import Session
from tests.engine.graphs import graph_of, numbers
from tests.graph.build import MODELS


def foretold(session: Session) -> int:
    """Run on, each time the op that comes next, and compare with what was told of it; gives how many were compared."""
    session.previews, compared = True, 0
    while (live := session.look_ahead()) is not None:
        told = live.costs[0] if live.frontier else (None, 0)
        session.advance(live.frontier[0] if live.frontier else None)
        step = session.trace.steps[-1]
        if told[0] is None:
            continue
        freed = sum(session.trace.storages[storage].capacity for storage in step.freed)
        assert (step.node, *told) == (step.node, step.allocated, freed)
        compared += 1
    return compared


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_an_op_does_what_was_foretold(policy: str) -> None:
    text = """g (float[2, 4] x, float[2, 4] o) => (float[8] y, float[2, 3] z) <int64[2] k = {1, 3}, int64[1] m = {-1}> {
        a = Add(x, o) b, z = Split <axis = 1> (a, k) c = Neg(o) d = Relu(c) t = Transpose <perm = [1, 0]> (d)
        e = Reshape(d, m) u = Exp(t) r = ReduceSum(u, m) f = Sub(e, b) h, i = TopK (r, m1) y = Mul(f, e) }"""
    text = text.replace("h, i = TopK (r, m1) ", "").replace("f = Sub(e, b) y = Mul(f, e)", "y = Mul(e, e)")
    feeds = {"x": numbers(2, 4), "o": numbers(2, 4, seed=1)}
    session = SingleRun(graph_of(text), feeds, donate=["x"], policy=policy)
    assert foretold(session) >= 6


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
def test_every_op_of_a_decode_does_what_was_foretold(policy: str) -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    session = DecodeSession(graph, [1, 2, 3], max_new_tokens=2, policy=policy, kv_capacity=8)
    assert foretold(session) > 400
    assert np.isfinite(session.trace.logits[-1]).all()
