"""Changes that help together: what they come to is what a run with them does, and no smaller set does as well."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.fixes.changes import arguments
from kvviz.report.explain import explain
from kvviz.trace.outcome import copied_in_all
from tests.engine.graphs import graph_of

POLICIES = ["ideal", "rten"]
# Two pasts that are made longer, and two inputs that could be overwritten.
TWO = """g (float[1, N, 64] a, float[1, M, 96] b, float[1, 1, 64] c, float[1, 1, 96] d, float[2048] u, float[4096] v)
    => (float[1, P, 64] p, float[1, Q, 96] q, float[2048] x, float[4096] y) {
    p = Concat <axis = 1> (a, c) q = Concat <axis = 1> (b, d) x = Relu(u) y = Neg(v) }"""


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture(scope="module", params=POLICIES)
def trace(request: pytest.FixtureRequest) -> kvviz.Trace:
    given = {"a": numbers(1, 8, 64), "b": numbers(1, 8, 96), "c": numbers(1, 1, 64), "d": numbers(1, 1, 96)}
    return kvviz.run(graph_of(TWO), {**given, "u": numbers(2048), "v": numbers(4096)}, policy=request.param)


def costs(trace: kvviz.Trace) -> dict[str, int]:
    return {"copy": copied_in_all(trace), "peak": trace.peak_bytes}


def test_a_set_does_what_it_says_and_no_smaller_one_does(trace: kvviz.Trace) -> None:
    report = explain(trace)
    units = [group.changes for group in report.groups if group.changes]
    assert len(units) >= 2 and report.together
    recipe: Any = trace.recipe
    for fix in report.together:
        goal = "peak" if "a peak of" in fix.sentence else "copy"
        after = fix.apply()
        # then: the figures are those of a run in numbers, and the results are the same
        assert costs(trace)[goal] - costs(after)[goal] == fix.saves > 0
        assert trace.peak_bytes - after.peak_bytes == fix.peak
        assert all(np.array_equal(after.outputs[name], value) for name, value in trace.outputs.items())
        # and: no set of fewer units reaches it, and none reaches less
        size = sum(set(unit) <= set(fix.changes) for unit in units)
        for length in range(len(units) + 1):
            for some in combinations(units, length):
                changes = tuple(dict.fromkeys(change for unit in some for change in unit))
                try:
                    other = recipe.again(**arguments(trace, changes, False, trace.recipe.options["policy"]))
                except KvvizError:
                    continue
                least = costs(other)[goal]
                assert least > costs(after)[goal] if length < size else least >= costs(after)[goal]


def test_one_change_that_does_it_all_is_not_said_twice() -> None:
    graph = graph_of("g (float[64] x) => (float[64] y) { h = Neg(x) y = Relu(h) }")
    report = explain(kvviz.run(graph, {"x": numbers(64)}))
    assert report.missed and report.together == ()
