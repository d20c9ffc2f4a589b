"""The examples of extensions do what they say. mypy and pyright check their types."""

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

import kvviz
from kvviz import ext
from kvviz.ops import registry
from kvviz.trace.blockers import BlockerCode
from tests.ext.own_policy import SMALL, thrifty
from tests.ext.own_producer import record
from tests.ext.own_schedule import last_readers_first


@pytest.fixture(autouse=True)
def _own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that these tests register are not there for others."""
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def load(text: str) -> ext.Graph:
    return kvviz.load(onnx.parser.parse_model(text))


def test_every_name_says_what_it_is() -> None:
    assert all(getattr(ext, name).__doc__ for name in ext.__all__ if name not in ("Schedule", "Verdict"))
    assert ext.__all__ == sorted(ext.__all__)


def test_an_operator_of_ones_own_runs_in_place_as_any_other() -> None:
    from tests.ext.own_kernel import run  # which registers the operator

    trace = run()
    assert trace.outputs["y"].tolist() == [0, -0.5, -1, -1]
    assert [step.outs[0].how for step in trace.steps] == ["new", "in place", "in place"]
    ramp = trace.steps[1]
    assert ramp.op_type == "ClampedRamp" and ramp.outs[0].storage == trace.steps[0].outs[0].storage


@pytest.mark.parametrize(("size", "in_place"), [(SMALL // 4 - 1, False), (SMALL // 4, True)])
def test_a_policy_of_ones_own_gives_its_own_reason(size: int, in_place: bool) -> None:
    graph = load(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[{size}] x) => (float[{size}] y) {{ a = Neg(x) y = Neg(a) }}'
    )
    trace = kvviz.run(graph, {"x": np.ones(size, np.float32)}, policy=thrifty)
    assert (trace.steps[1].outs[0].how == "in place") is in_place
    told = [(b.code, b.message) for entry in kvviz.explain(trace).missed for b in entry.blockers if entry.step == 1]
    reason = "Neg leaves a alone: it has less than 64 bytes"
    assert told == ([] if in_place else [(BlockerCode.POLICY, reason)])


def test_an_order_of_ones_own_frees_sooner() -> None:
    # given two long arms of a graph that both start at once in the model's order
    graph = load(
        '<ir_version: 10, opset_import: ["": 21]> g (float[99] x) => (float[1] y)'
        "{ a = Neg(x) b = Abs(x) one = ReduceSum<keepdims = 0>(a) two = ReduceSum<keepdims = 0>(b) s = Add(one, two)"
        " axes = Constant<value_ints = [0]>() y = Unsqueeze(s, axes) }"
    )
    x = {"x": np.ones(99, np.float32)}
    model_order = kvviz.run(graph, x)
    mine = kvviz.run(graph, x, policy=replace(kvviz.policies.ideal, schedule=last_readers_first))
    assert [step.node for step in mine.steps] == ["a", "one", "b", "two", "s", "y"]
    assert mine.outputs["y"] == model_order.outputs["y"]
    assert mine.peak_bytes < model_order.peak_bytes


@pytest.mark.parametrize(("room", "copied"), [(0, 64 * (4 + 5)), (1, 64 * 5), (2, 0)])
def test_a_log_of_another_runtime_is_a_trace(room: int, copied: int) -> None:
    trace = record(room)
    assert trace.bytes_copied == copied
    assert str(kvviz.explain(trace))
    assert trace.to_html().startswith("<!doctype html>")
