"""A trace of many runs stays small, and costs the garbage collector nothing."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kvviz
from kvviz.engine.session import Session
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
    rows = [trace.recorder.rows[run.first : run.last] for run in trace.runs]
    for old, new in zip(rows[0], rows[1], strict=True):
        # Refusals, the shape, and the strides of a view.
        assert old[3] is new[3]
        assert old[4][0][3] is new[4][0][3]
        assert old[4][0][6] is new[4][0][6]
    assert any(row[3] for row in rows[1]), "some op was refused to run in place"
    assert any(row[4][0][6] for row in rows[1]), "some output is a view"


def test_what_is_shared_still_tells_runs_apart(trace: kvviz.Trace) -> None:
    shapes = [s.outs[0].shape for s in trace.steps if s.outputs == ("z",)]
    assert shapes == [(3, n) for n in Thrice.lengths]
    strides = [s.outs[0].strides for s in trace.steps if s.outputs == ("z",)]
    assert strides == [(4, 12)] * 3
    storages = [s.outs[0].storage for s in trace.steps if s.outputs == ("shifted",)]
    assert len(set(storages)) == 3


def test_the_collector_does_not_walk_what_a_run_writes_down(trace: kvviz.Trace) -> None:
    old = {id(found) for found in gc.get_objects(generation=2)}
    assert all(id(row) in old for row in trace.recorder.rows)


def test_a_run_leaves_frozen_what_somebody_has_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        Thrice(graph_of(CHAIN)).run_to_end()
        assert gc.get_freeze_count() > frozen // 2 > 0
    finally:
        gc.unfreeze()
