"""The examples of extensions do what they say; mypy and pyright check their types. A wrong extension is named in one
sentence, and one that is registered anew takes effect at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import kvviz
from kvviz import ext
from kvviz.errors import ExtensionError
from kvviz.ops import registry
from kvviz.trace.blockers import BlockerCode
from tests.engine.graphs import graph_of
from tests.ext.own_policy import SMALL, thrifty
from tests.ext.own_producer import record
from tests.ext.own_schedule import last_readers_first

SWISH = "g (float[4] x) => (float[4] y) { a = Neg(x) b = acme.Swish(a) y = Neg(b) }"
BRANCH = """g (float[4] x, bool c) => (float[4] y) { a = Neg(x)
    y = If(c) <then_branch = t () => (float[4] p) { p = Abs(a) },
               else_branch = e () => (float[4] q) { q = Neg(a) }> }"""
X = {"x": np.ones(4, np.float32)}


@pytest.fixture(autouse=True)
def _own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that these tests register are not there for others."""
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def loaded(text: str = SWISH) -> ext.Graph:
    return kvviz.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "acme" : 1]> {text}'))


def swish(kernel: Callable[..., Any], **facts: Any) -> kvviz.Trace:
    ext.op("Swish", domain="acme", **facts)(kernel)
    return kvviz.run(loaded(), X)


def test_a_kernel_that_was_missed_or_is_registered_anew_takes_effect_in_branches_too() -> None:
    graph = loaded()
    branch = loaded(BRANCH.replace("Abs(a)", "acme.Swish(a)"))
    with pytest.raises(kvviz.KvvizError, match=r"no kernel for acme.Swish"):
        kvviz.run(graph, X)
    for factor in (2, 3, 5):
        ext.op("Swish", domain="acme")(lambda x, factor=factor: x * np.float32(factor))
        assert kvviz.run(graph, X).outputs["y"].tolist() == [factor] * 4
        assert kvviz.run(branch, {**X, "c": np.array(True)}).outputs["y"].tolist() == [-factor] * 4


def test_a_wrong_registration_says_what_is_meant() -> None:
    cases: list[tuple[Any, Any, Any, str]] = [
        (("Swish", "acme"), {}, lambda x: x, r"op\('Swish', 'acme'\) .* a domain is given by name: .*domain='acme'"),
        (("Swish", "acme.ops"), {}, lambda x: x, "a domain is given by name"),
        ((lambda x: x,), {}, None, "op takes the names of operators"),
        (("Swish",), {"overwrite": (0,)}, lambda x: x, "there is no overwrite=; an operator has overwrites"),
        (("Swish",), {"overwrites": 0}, lambda x, *, out=None: x, r"overwrites= is a tuple, such as \(0,\), not 0"),
        (("Swish",), {"overwrites": (0,)}, lambda x: x, "the kernel has to take out=None"),
        (("Swish",), {"since": "21"}, lambda x: x, "since a number"),
        (("Swish",), {}, 3, "decorates a function, not a int"),
    ]
    for names, facts, kernel, told in cases:
        with pytest.raises(ExtensionError, match=told):
            ext.op(*names, **facts)(kernel)


_AT = r"the kernel <lambda> of acme.Swish \(node 'b'\) returned "


def test_what_a_kernel_may_not_return_is_said_of_the_kernel() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda x: [x], "a list; it has to return an ndarray"),
        (lambda x: x.tolist(), "a list; it has to return an ndarray"),
        (lambda x: None, "nothing; it has to return an ndarray"),
        (lambda x: 1.0, "a float; it has to return an ndarray"),
        (lambda x: (None,), "a NoneType for 'b'"),
        (lambda x: (), "0 of the 1 outputs"),
        (lambda x: (x, x), "2 outputs, and the node names 1; with n_outputs=1 among its keywords"),
        (lambda x: x * np.float64(2), "float64 for 'b', and none of its inputs is float64"),
    ]
    for kernel, told in cases:
        with pytest.raises(ExtensionError, match=_AT + told):
            swish(kernel)


def test_a_dtype_that_the_model_or_overwriting_promises_otherwise_is_said_of_the_kernel() -> None:
    def kernel(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        return x.astype(np.float16)

    with pytest.raises(ExtensionError, match=r"returned float16 for 'b', for which overwrites=\(0,\) promises"):
        swish(kernel, overwrites=(0,))
    ext.op("Swish", domain="acme")(lambda x: x.astype(np.float16))
    with pytest.raises(ExtensionError, match="returned float16 for 'y', for which the model declares float32"):
        kvviz.run(loaded(SWISH.replace("y = Neg(b)", "y = acme.Swish(b)")), X)


def test_a_scalar_and_as_many_outputs_as_are_wanted_are_fine() -> None:
    assert swish(lambda x: np.float32(2)).outputs["y"] == -2
    assert swish(lambda x, *, n_outputs=1: (x, x)[:n_outputs]).outputs["y"].tolist() == [1] * 4


def test_an_attribute_by_position_is_said_of_the_kernel() -> None:
    def scaled(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
        return x * np.float32(alpha)

    ext.op("Swish", domain="acme")(scaled)
    with pytest.raises(ExtensionError, match=r"the kernel scaled .* takes the attribute alpha by position"):
        kvviz.run(loaded(SWISH.replace("Swish", "Swish<alpha = 0.5>")), X)


def under(**rules: Any) -> kvviz.Trace:
    policy = replace(kvviz.policies.ideal, name="mine", **rules)
    return kvviz.run(loaded(BRANCH), {**X, "c": np.array(True)}, policy=policy)


def test_a_verdict_that_is_none_is_said_of_the_policy() -> None:
    cases: list[tuple[Any, str]] = [
        (True, r"in_place at node 'a' \(Neg\) returned True; it has to return \(taken, refused, how\)"),
        (None, "returned None"),
        (((), ()), "returned "),
        ((0, (), {}), "returned "),
        (((7,), (), {"out": None}), "took over input 7, of which the op can overwrite only 0"),
        (((0,), (), {}), "took over input 0 and passed the kernel no out="),
        (((), (0,), {}), "refused 0, which is no pair"),
        (((), ((0, 0),), {}), r"refused \(0, 0\), which is no pair"),
        (((), ((0, ext.rule(3)),), {}), r"refused for rule\(3\), and the policy has 0 sentences in rules="),
    ]
    for verdict, told in cases:
        with pytest.raises(ExtensionError, match=f"policy 'mine': .*{told}"):
            under(in_place=lambda frame, planned, args, verdict=verdict: verdict)


def test_a_rule_that_fails_is_said_of_the_policy_and_not_of_the_op() -> None:
    def boom(*_: Any) -> Any:
        raise AttributeError("no x")

    with pytest.raises(ExtensionError, match=r"policy 'mine': in_place at node 'a' .* failed: AttributeError: no x"):
        under(in_place=boom)
    with pytest.raises(ExtensionError, match=r"policy 'mine': captures at node 'y' .* failed: AttributeError: no x"):
        under(captures=boom)


def test_another_wrong_part_of_a_policy_is_named() -> None:
    cases: list[tuple[Any, str]] = [
        ({"captures": lambda frame, planned: True}, r"captures at node 'y' \(If\) returned True"),
        ({"rewrite": lambda graph, outputs: None}, "rewrite returned a NoneType, not a Graph"),
        ({"pool": lambda: 3}, "pool returned 3"),
        ({"in_place": True}, "in_place is a function, not True"),
        ({"schedule": [1, 2]}, r"schedule is a function, not \[1, 2\]"),
        ({"rules": "one sentence"}, "rules is a tuple of sentences"),
        ({"growth": "later"}, "growth is 'start' or 'after'"),
    ]
    for rules, told in cases:
        with pytest.raises(ExtensionError, match=f"policy 'mine': {told}"):
            under(**rules)


def test_a_schedule_that_is_no_order_is_said_of_the_schedule() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda nodes: None, "returned None"),
        (lambda nodes: True, "failed: TypeError"),
        (lambda nodes: nodes[::-1], "put 'y' before 'b', which makes 'b' for it"),
        (lambda nodes: nodes[:-1], "returned 2 nodes for 3, without 'y'"),
        (lambda nodes: [*nodes, nodes[0]], "returned 4 nodes for 3, with a node twice"),
        (lambda nodes: [node.name for node in nodes], r"returned \['a', 'b', 'y'\]"),
    ]
    for order, told in cases:

        def mine(graph: ext.Graph, nodes: Any, outputs: Any, order: Any = order) -> Any:
            return order(nodes)

        ext.op("Swish", domain="acme")(lambda x: x)
        with pytest.raises(ExtensionError, match=f"the schedule mine {told}"):
            kvviz.run(loaded(), X, policy=replace(kvviz.policies.ideal, schedule=mine))


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
    graph = graph_of(f"g (float[{size}] x) => (float[{size}] y) {{ a = Neg(x) y = Neg(a) }}")
    trace = kvviz.run(graph, {"x": np.ones(size, np.float32)}, policy=thrifty)
    assert (trace.steps[1].outs[0].how == "in place") is in_place
    told = [(b.code, b.message) for entry in kvviz.explain(trace).missed for b in entry.blockers if entry.step == 1]
    reason = "Neg leaves a alone: it has less than 64 bytes"
    assert told == ([] if in_place else [(BlockerCode.POLICY, reason)])


def test_an_order_of_ones_own_frees_sooner() -> None:
    # given two long arms of a graph that both start at once in the model's order
    graph = graph_of("""g (float[99] x) => (float[1] y) <int64[1] axes = {0}> {
        a = Neg(x) b = Abs(x) one = ReduceSum<keepdims = 0>(a) two = ReduceSum<keepdims = 0>(b)
        s = Add(one, two) y = Unsqueeze(s, axes) }""")
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
