"""A trace of many runs stays small, and costs the garbage collector nothing."""

import gc

import numpy as np
import pytest

import kvviz
from kvviz.engine.sessions.session import Session
from tests.engine.graphs import graph_of

CHAIN = """
    chain (float[n, 3] x) => (float[n, 3] y, float[m, n] z)
    <float[3] bias = {1, 2, 3}>
    {
        shifted = Add(x, bias)
        scaled = Mul(shifted, shifted)
        z = Transpose(shifted)
        y = Neg(scaled)
    }
"""


class Thrice(Session):
    """The same graph over inputs of several lengths, one after the other."""

    lengths = (2, 2, 5)

    def next_run(self) -> bool:
        """Feed an array of the next length."""
        done = len(self.trace.runs)
        if done < len(self.lengths):
            self.begin({"x": np.ones((self.lengths[done], 3), np.float32)}, ())
        return done < len(self.lengths)


@pytest.fixture
def trace() -> kvviz.Trace:
    """Three runs, of which the first two are alike."""
    return Thrice(graph_of(CHAIN)).run_to_end()


def test_steps_that_do_what_they_did_before_share_their_records(trace: kvviz.Trace) -> None:
    rows = [trace.log[run.first : run.last] for run in trace.runs]
    for old, new in zip(rows[0], rows[1], strict=True):
        # Refusals, the shape, and the strides of a view.
        assert old.masks is new.masks
        (before,), (after,) = old.outs, new.outs
        assert before is not None and after is not None
        assert before.shape is after.shape and before.strides is after.strides
    assert any(row.masks for row in rows[1]), "some op was refused to run in place"
    assert any(out is not None and out.strides for row in rows[1] for out in row.outs), "some output is a view"


def test_what_a_step_writes_down_is_nothing_for_the_collector_to_walk() -> None:
    graph = graph_of(
        "g (float[4] x) => (float[4] y) { v0 = Neg(x) "
        + "".join(f"v{i + 1} = Exp(v{i}) " for i in range(999))
        + "y = Neg(v999) }"
    )
    kvviz.run(graph, {"x": np.ones(4, np.float32)}, policy="never")
    gc.collect()
    before = len(gc.get_objects())
    trace = kvviz.run(graph, {"x": np.ones(4, np.float32)}, policy="never")
    trace.log.settle()
    gc.collect()
    assert len(trace.log) == 1001
    assert len(gc.get_objects()) - before < 200


def test_a_run_leaves_frozen_what_somebody_has_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        Thrice(graph_of(CHAIN)).run_to_end()
        assert gc.get_freeze_count() > frozen // 2 > 0
    finally:
        gc.unfreeze()
