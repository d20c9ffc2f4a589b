"""Hazards and memory that is handed out again: what lay there before is no part of the storage's next life."""

from __future__ import annotations

import pytest

from kvviz.report.hazard_table import hazards
from tests.engine.graphs import numbers, run

# A product that is summed up, beside a chain of others that nothing but the schedule keeps behind it.
TEXT = """g (float[8, 8] x) => (float s, float[8, 8] y) {
    a = MatMul(x, x) c = MatMul(x, x) s = ReduceSum <keepdims = 0> (a)
    d = MatMul(x, c) e = MatMul(x, d) y = MatMul(x, e) }"""


@pytest.mark.parametrize("policy", ["rten", "onnxruntime"])
def test_a_block_from_the_pool_begins_anew(policy: str) -> None:
    # given a block that is handed out again after its last reader, which no edge puts before the next writer
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=policy)
    made = {out.name: out for step in trace.steps for out in step.outs}
    assert made["a"].storage in {made[name].storage for name in ("d", "e") if made[name].how == "pool"}
    # then the two lives of the block are no hazard for each other
    assert hazards(trace) == ()
