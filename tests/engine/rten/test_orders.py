"""The order of rten with its greedy rule put right: an op that can overwrite its input now goes before others."""

from __future__ import annotations

import kvviz
from kvviz.runtimes.rten.quirks import QUIRKS
from tests.engine.graphs import numbers, run

# Of a there are two readers that could overwrite it, and neither may go first for nothing; of b there is one.
TEXT = """g (float[8, 8] x) => (float[8, 24] y) {
    a = MatMul(x, x) b = MatMul(x, a)
    [first] p = Relu(a) [second] q = Neg(a) [lone] r = Sigmoid(b)
    y = Concat <axis = 1> (p, q, r) }"""


def order(policy: kvviz.Policy | str) -> list[str]:
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=policy)
    return [step.node for step in trace.steps if step.node in ("first", "second", "lone")]


def test_the_greedy_order_takes_ops_as_they_became_ready() -> None:
    assert order("rten") == ["first", "second", "lone"]


def test_without_greed_the_last_reader_of_its_input_goes_first_and_then_the_oldest() -> None:
    kept = [name for name in QUIRKS if name != "greedy_order"]
    assert order(kvviz.policies.rten(quirks=kept)) == ["lone", "first", "second"]
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=kvviz.policies.rten(quirks=kept))
    taken = {step.node: step.decision.taken for step in trace.steps}
    assert (taken["first"], taken["second"], taken["lone"]) == ((), ("a",), ("b",))
