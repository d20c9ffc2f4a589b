"""A graph that ran often on other inputs against one that has not run: the same outputs and the same trace."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.engine.program import prepared_call
from kvviz.ext import op
from kvviz.ops import registry
from tests.engine.graphs import proto_of
from tests.engine.test_step_program import logged

Feeds = Callable[[], dict[str, Any]]


@pytest.fixture(autouse=True)
def _reads_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_call, "_PAUSE", 0)


def said(trace: kvviz.Trace) -> tuple:
    """All that a trace says, and what its outputs are."""
    outputs = [(name, type(y), y.dtype, y.shape, y.strides, y.tobytes()) for name, y in trace.outputs.items()]
    return outputs, logged(trace), trace.options


def deferred(text: str, series: Iterable[Feeds], **options: Any) -> list[bool]:
    """Of calls of one graph, whose outputs and traces are those of graphs that have not run, which did not run step by
    step."""
    model = proto_of(text)
    graph, found, traces = kvviz.load(model), [], []
    for feeds in series:
        trace = kvviz.run(graph, feeds(), **options)
        found.append("log" not in vars(trace))
        traces.append((trace, kvviz.run(kvviz.load(model), feeds(), **options)))
    for trace, first in traces:
        assert said(trace) == said(first)
    return found


def ones(*shape: int, order: Any = "C") -> Feeds:
    return lambda: {"x": np.ones(shape, np.float32, order)}


def test_an_output_that_is_absent_is_no_input_of_what_is_computed_once() -> None:
    text = """absent (float[n] x) => (float[n] y) <float[4] w = {3, 1, 2, 4}, int64[2] n = {1, 3}, float top = {2}> {
        "", a = Split <axis = 0> (w, n) b = Neg (a) c = Clip (b, "", top) d = ReduceSum (c) y = Add (x, d) }"""
    assert deferred(text, [ones(2)] * 4)[3]


def test_a_result_without_axes_is_an_array() -> None:
    text = "scalars (float x) => (float y, float z) { y = Neg (x) z = Exp (x) }"
    model = proto_of(text)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    graph = kvviz.load(model)
    for shape in [(2,), (3,), (4,), (), (2, 2), ()]:
        for y in kvviz.run(graph, {"x": np.ones(shape, np.float32)}).outputs.values():
            assert type(y) is np.ndarray and y.shape == shape and y.flags.writeable


def test_a_result_of_a_kernel_that_returns_a_scalar_for_some_numbers_alone_is_an_array() -> None:
    text = "slopes (float x) => (float y) { y = PRelu (x, x) }"
    series = [lambda number=number: {"x": np.array(number, np.float32)} for number in (-1, -2, -3, -4, 0.5, -7)]
    assert deferred(text, series)[3]


def test_what_is_computed_once_has_the_type_that_it_had_in_memory_of_an_input() -> None:
    text = """whole (float[n] x) => (float[n] y, int64[4] c) <int64[2] w = {3, 0}> {
        y = Neg (x) a = Mul (w, w) b = Or (a, w) c = Concat <axis = 0> (b, b) }"""
    assert deferred(text, [ones(2)] * 4)[3]


@pytest.mark.parametrize("orders", ["FFFFF", "CCCCFCF"])
@pytest.mark.parametrize("sizes", [[3], [3, 4]])
def test_the_trace_tells_how_an_axis_of_one_element_lay(orders: str, sizes: list[int]) -> None:
    text = "flat (float[a, b] x) => (float[b, a] y) { t = Transpose (x) y = Neg (t) }"
    series = [ones(sizes[at % len(sizes)], 1, order=order) for at, order in enumerate(orders)]
    found = deferred(text, series)
    assert found[3] == (orders[3] == "C") and not any(found[at] for at, order in enumerate(orders) if order == "F")


def test_a_branch_that_was_not_taken_before_takes_values_of_any_size() -> None:
    text = """sizes (bool flag, float[n, 3] x) => (float[n, 3] y) {
        a = Neg (x) b = Abs (a) c = Exp (b) d = Tanh (c)
        e = If (flag) <then_branch = then () => (float[p, 3] f) { f = Sin (d) },
                       else_branch = other () => (float[p, 3] g) { s = Shape (x) o = ConstantOfShape (s) g = Neg (o) }>
        y = Identity (e) z = Neg (y) }"""  # fmt: skip
    model = proto_of(text)
    graph = kvviz.load(model)

    def feeds(flag: bool, rows: int) -> dict[str, np.ndarray]:
        return {"flag": np.array(flag), "x": np.ones((rows, 3), np.float32)}

    calls = list[bool]()
    for flag, rows in [(True, 2), (True, 4), (True, 6), (True, 6)] + [(False, 6)] * 6 + [(False, 1)] * 2:
        if len(calls) == 7:
            lent = feeds(flag, rows)
            lent["x"].flags.writeable = False
            kvviz.run(graph, lent, record=False)  # which stops what is known of the ops before the branch
        trace = kvviz.run(graph, feeds(flag, rows))
        calls.append("log" not in vars(trace))
        assert said(trace) == said(kvviz.run(kvviz.load(model), feeds(flag, rows))), len(calls)
    assert calls[3] and calls[8]


def test_the_trace_is_made_with_the_kernels_that_the_call_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    text = """branches (bool flag, float[n] x) => (float[n] y) {
        a = Neg (x) y = If (flag) <then_branch = then () => (float[n] c) { b = Exp (a) c = Tanh (b) },
                                   else_branch = other () => (float[n] d) { d = Sin (a) }> }"""
    model = proto_of(text)
    graph, first = kvviz.load(model), kvviz.load(model)
    feeds = {"flag": np.array(True), "x": np.arange(3, dtype=np.float32)}
    called, wanted = [kvviz.run(graph, feeds) for _ in range(4)][3], said(kvviz.run(first, feeds))
    op("Exp", since=1)(lambda x: np.zeros_like(x))
    assert kvviz.run(graph, feeds).outputs["y"].tolist() == [0, 0, 0]
    assert "log" not in vars(called) and said(called) == wanted
    assert called.value("b", 1).tolist() == np.exp(-feeds["x"]).tolist()
