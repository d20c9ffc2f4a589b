"""An extension that is wrong is named in one sentence, and one that is registered anew takes effect at once."""

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

SWISH = """
<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
g (float[4] x) => (float[4] y) { a = Neg(x) b = acme.Swish(a) y = Neg(b) }
"""
BRANCH = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4] x, bool c) => (float[4] y) {
    a = Neg(x)
    y = If(c) <then_branch = t () => (float[4] p) { p = Abs(a) }, else_branch = e () => (float[4] q) { q = Neg(a) }>
}
"""
X = {"x": np.ones(4, np.float32)}


@pytest.fixture(autouse=True)
def _own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that these tests register are not there for others."""
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def loaded(text: str = SWISH) -> ext.Graph:
    return kvviz.load(onnx.parser.parse_model(text))


def swish(kernel: Callable[..., Any], **facts: Any) -> kvviz.Trace:
    """A run of a graph with a kernel under ``acme.Swish``."""
    ext.op("Swish", domain="acme", **facts)(kernel)
    return kvviz.run(loaded(), X)


def test_a_kernel_that_was_missed_or_is_registered_anew_takes_effect_in_branches_too() -> None:
    graph = loaded()
    branch = loaded(BRANCH.replace("Abs(a)", "acme.Swish(a)").replace('"" : 21', '"" : 21, "acme" : 1'))
    with pytest.raises(kvviz.KvvizError, match=r"no kernel for acme.Swish"):
        kvviz.run(graph, X)
    for factor in (2, 3, 5):
        ext.op("Swish", domain="acme")(lambda x, factor=factor: x * np.float32(factor))
        assert kvviz.run(graph, X).outputs["y"].tolist() == [factor] * 4
        assert kvviz.run(branch, {**X, "c": np.array(True)}).outputs["y"].tolist() == [-factor] * 4


@pytest.mark.parametrize(
    ("names", "facts", "kernel", "told"),
    [
        (("Swish", "acme"), {}, lambda x: x, r"op\('Swish', 'acme'\) .* a domain is given by name: .*domain='acme'"),
        (("Swish", "acme.ops"), {}, lambda x: x, "a domain is given by name"),
        ((lambda x: x,), {}, None, "op takes the names of operators"),
        (("Swish",), {"overwrite": (0,)}, lambda x: x, "there is no overwrite=; an operator has overwrites"),
        (("Swish",), {"overwrites": 0}, lambda x, *, out=None: x, r"overwrites= is a tuple, such as \(0,\), not 0"),
        (("Swish",), {"overwrites": (0,)}, lambda x: x, "the kernel has to take out=None"),
        (("Swish",), {"since": "21"}, lambda x: x, "since a number"),
        (("Swish",), {}, 3, "decorates a function, not a int"),
    ],
)
def test_a_wrong_registration_says_what_is_meant(names: Any, facts: Any, kernel: Any, told: str) -> None:
    with pytest.raises(ExtensionError, match=told):
        ext.op(*names, **facts)(kernel)


_AT = r"the kernel <lambda> of acme.Swish \(node 'b'\) returned "


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (lambda x: [x], "a list; it has to return an ndarray"),
        (lambda x: x.tolist(), "a list; it has to return an ndarray"),
        (lambda x: None, "nothing; it has to return an ndarray"),
        (lambda x: 1.0, "a float; it has to return an ndarray"),
        (lambda x: (None,), "a NoneType for 'b'"),
        (lambda x: (), "0 of the 1 outputs"),
        (lambda x: (x, x), "2 outputs, and the node names 1; with n_outputs=1 among its keywords"),
        (lambda x: x * np.float64(2), "float64 for 'b', and none of its inputs is float64"),
    ],
)
def test_what_a_kernel_may_not_return_is_said_of_the_kernel(kernel: Any, told: str) -> None:
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
    """A run of a graph with a branch under a policy with these rules."""
    policy = replace(kvviz.policies.ideal, name="mine", **rules)
    return kvviz.run(loaded(BRANCH), {**X, "c": np.array(True)}, policy=policy)


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (True, r"in_place at node 'a' \(Neg\) returned True; it has to return \(taken, refused, how\)"),
        (None, "returned None"),
        (((), ()), "returned "),
        ((0, (), {}), "returned "),
        (((7,), (), {"out": None}), "took over input 7, of which the op can overwrite only 0"),
        (((0,), (), {}), "took over input 0 and passed the kernel no out="),
        (((), (0,), {}), "refused 0, which is no pair"),
        (((), ((0, 0),), {}), r"refused \(0, 0\), which is no pair"),
        (((), ((0, ext.rule(3)),), {}), r"refused for rule\(3\), and the policy has 0 sentences in rules="),
    ],
)
def test_a_verdict_that_is_none_is_said_of_the_policy(verdict: Any, told: str) -> None:
    with pytest.raises(ExtensionError, match=f"policy 'mine': .*{told}"):
        under(in_place=lambda frame, planned, args: verdict)


def test_a_rule_that_fails_is_said_of_the_policy_and_not_of_the_op() -> None:
    def boom(*_: Any) -> Any:
        raise AttributeError("no x")

    with pytest.raises(ExtensionError, match=r"policy 'mine': in_place at node 'a' .* failed: AttributeError: no x"):
        under(in_place=boom)
    with pytest.raises(ExtensionError, match=r"policy 'mine': captures at node 'y' .* failed: AttributeError: no x"):
        under(captures=boom)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"captures": lambda frame, planned: True}, r"captures at node 'y' \(If\) returned True"),
        ({"rewrite": lambda graph, outputs: None}, "rewrite returned a NoneType, not a Graph"),
        ({"pool": lambda: 3}, "pool returned 3"),
        ({"in_place": True}, "in_place is a function, not True"),
        ({"schedule": [1, 2]}, r"schedule is a function, not \[1, 2\]"),
        ({"rules": "one sentence"}, "rules is a tuple of sentences"),
        ({"growth": "later"}, "growth is 'start' or 'after'"),
    ],
)
def test_another_wrong_part_of_a_policy_is_named(rules: Any, told: str) -> None:
    with pytest.raises(ExtensionError, match=f"policy 'mine': {told}"):
        under(**rules)


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (lambda nodes: None, "returned None"),
        (lambda nodes: True, "failed: TypeError"),
        (lambda nodes: nodes[::-1], "put 'y' before 'b', which makes 'b' for it"),
        (lambda nodes: nodes[:-1], "returned 2 nodes for 3, without 'y'"),
        (lambda nodes: [*nodes, nodes[0]], "returned 4 nodes for 3, with a node twice"),
        (lambda nodes: [node.name for node in nodes], r"returned \['a', 'b', 'y'\]"),
    ],
)
def test_a_schedule_that_is_no_order_is_said_of_the_schedule(order: Any, told: str) -> None:
    def mine(graph: ext.Graph, nodes: Any, outputs: Any) -> Any:
        return order(nodes)

    ext.op("Swish", domain="acme")(lambda x: x)
    with pytest.raises(ExtensionError, match=f"the schedule mine {told}"):
        kvviz.run(loaded(), X, policy=replace(kvviz.policies.ideal, schedule=mine))
