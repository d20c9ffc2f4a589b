"""onnxruntime's order and allocation plan, against the profile and the statistics of the installed onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.engine.plan import needed
from kvviz.graph.model import Graph
from kvviz.runtimes.named_policies import planning_events
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import Buffer
from kvviz.runtimes.ort.ort_policy import OrtOrder
from kvviz.trace import blockers as b
from tests.engine.graphs import graph_of, proto_of
from tests.engine.ort.models import (
    FILES,
    IDS,
    Verdict,
    all_plans,
    judge,
    random_model,
    stored_inputs,
    with_names,
    without_dead_nodes,
)  # fmt: skip
from tests.engine.ort.oracle import observe

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


def assert_same_order(proto: onnx.ModelProto, feeds: dict) -> int:
    """Every graph of the model that ran has the profile's order; gives the number of nodes compared."""
    compared, ran = 0, dict.fromkeys(name for name, _ in observe(proto, feeds).order)
    for _, plan in all_plans(proto):
        planned = [n.name for n in plan.order]
        seen = [name for name in ran if name in set(planned)]
        assert not seen or planned == seen
        compared += len(seen)
    return compared


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_models_are_planned_without_one_wrong_byte_in_the_order_of_the_profile(first: int) -> None:
    verdict, refused, compared = Verdict(), 0, 0
    for seed in range(first, first + 100):
        proto, feeds = random_model(seed)
        judge(proto, feeds, verdict)
        compared += assert_same_order(proto, feeds)
        for _, plan in all_plans(proto):
            for buffer in plan.buffers.values():
                # The reasons are collected apart from the counts, and must say no exactly where those do.
                assert all(mask for _, mask in buffer.refused)
                refused += len(buffer.refused)
    assert verdict.wrong == []
    assert verdict.decisions > 1500 and compared > 700 and refused > 100
    assert min(verdict.kinds[kind] for kind in ("kReuse Alias", "kReuse MayInplace", "kReuse freelist")) > 15


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_are_planned_without_one_wrong_byte_in_the_order_of_the_profile(path: Path) -> None:
    verdict, proto = Verdict(), with_names(onnx.load(path))
    runs = stored_inputs(path)
    for feeds in (runs[0], runs[-1]) if len(runs) > 1 else runs:
        judge(proto, feeds, verdict, mem_reuse=(True,))
    judge(proto, runs[-1], verdict, mem_reuse=(False,))
    assert verdict.wrong == [] and verdict.decisions > 60
    assert assert_same_order(proto, runs[0]) > 30


def main_order(main: Graph) -> list[str]:
    return [n.name for n in OrtOrder()(main, main.nodes, [v.name for v in main.outputs])]


def test_dead_nodes_can_change_the_order_of_the_others() -> None:
    """What kvviz runs is the model without them, and for that model the order is onnxruntime's again."""
    changed = 0
    for seed in range(5000, 5060):
        proto, feeds = random_model(seed)
        whole = main_order(kvviz.load(proto))
        without_dead_nodes(proto.graph)
        main = kvviz.load(proto)
        outputs = [v.name for v in main.outputs]
        alone = [n.name for n in OrtOrder()(main, needed(main, outputs), outputs)]
        assert alone == main_order(main)
        assert_same_order(proto, feeds)
        changed += [name for name in whole if name in set(alone)] != alone
    assert changed


WEIGHTS = ", ".join(f"float[3] w{i} = {{{-1 - i}, {-1 - i}, {-1 - i}}}" for i in range(4))
# A graph, and of some of its values why they overwrite nothing, or whose buffer they have and by which rule.
RULES: dict[str, tuple[str, dict[str, int | str]]] = {
    "input of the graph": (
        "(float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Neg(a) }",
        {"x": "kPreExisting", "a": b.BORROWED_INPUT},
    ),
    "read before": (
        "(float[2, 3] x) => (float[2, 3] y, float[2, 3] z) { n = Neg(x) r = Relu(n) y = Exp(r) z = Exp(n) }",
        {"r": "MayInplace of n"},
    ),
    "output of the graph": ("(float[2, 3] x) => (float[2, 3] y) { n = Neg(x) y = Relu(n) }", {"y": refusal.OUTPUT}),
    "requested": (
        "(float[2, 3] x) => (float[2, 3] y, float[2, 3] n) { n = Neg(x) r = Relu(n) y = Exp(r) }",
        {"r": b.REQUESTED_OUTPUT},
    ),
    "unnamed": ("(float[?, 3] x) => (float[?, 3] y) { n = Neg(x) r = Relu(n) y = Exp(r) }", {"r": refusal.UNKNOWN}),
    "named": ("(float[k, 3] x) => (float[k, 3] y) { n = Neg(x) r = Relu(n) y = Exp(r) }", {"r": "MayInplace of n"}),
    "a weight, and a buffer that another value shares": (
        """(float[2, 3] x) => (float[2, 3] y) <float[2, 3] w = {1, 1, 1, 1, 1, 1}, int64[1] s = {-1}> {
        a = Relu(w) n = Neg(x) q = Sigmoid(n) f = Add(q, a) u = Reshape(f, s) v = Reshape(n, s) y = Add(u, v) }""",
        {"w": "kAllocateStatically", "a": b.CONSTANT, "v": "Alias of n", "q": b.ALIASED},
    ),
    "the reader that comes last in onnxruntime's order": (
        "(float[2, 3] x) => (float[2, 3] y) { n = Neg(x) r = Relu(n) s = Sigmoid(n) y = Add(r, s) }",
        {"s": b.NOT_LAST_USE, "r": "MayInplace of n"},
    ),
    "elements of one size": (
        """(float[2, 3] x) => (int64[2, 3] y) {
        n = Neg(x) i = Cast <to = 6> (n) m = Neg(i) d = Cast <to = 7> (m) y = Neg(d) }""",
        {"i": "MayInplace of n", "d": b.DTYPE_DIFFERS},
    ),
    "as many bytes in another shape": (
        "(float[2, 3] x) => (float[3, 2] y) { n = Neg(x) t = Transpose(n) e = Exp(t) y = Exp(e) }",
        {"t": "kAllocate"},
    ),
    "an optional value is its element": (
        """(float[2, 3] x) => (float[2, 3] y) {
        a = Concat <axis = 0> (x) o = Optional(a) e = OptionalGetElement(o) r = Relu(e) y = Neg(r) }""",
        {"o": "Alias of a", "e": "Alias of a", "r": "MayInplace of a"},
    ),
    "statistics that are trained": (
        f"""(float[2, 3] x) => (float[2, 3] y, float[3] z) <{WEIGHTS}> {{
        n = Neg(x) m0 = Neg(w0) m1 = Neg(w1) m2 = Neg(w2) m3 = Neg(w3)
        y, mean, var = BatchNormalization <training_mode = 1> (n, m0, m1, m2, m3) z = Neg(mean) }}""",
        {"mean": "Alias of m2", "var": "Alias of m3"},
    ),
    "what is lent to a body": (
        """(float[2, 3] x) => (float[2, 3] y) <bool q = {1}> { n = Neg(x)
        y = If (q) <then_branch = t () => (float[2, 3] b) { a = Relu(n) b = Neg(a) },
                    else_branch = e () => (float[2, 3] c) { c = Exp(n) }> }""",
        {"a": b.CAPTURED_BY_REFERENCE},
    ),
    "text": (
        "(string[1, 2] x) => (string[1, 2] y) { a = Concat <axis = 0> (x) c = Concat <axis = 0> (a) y = Identity(c) }",
        {"a": "kAllocate", "c": "kAllocate"},
    ),
}


def said(buffer: Buffer) -> Any:
    if buffer.refused:
        return buffer.refused[0][1]
    return f"{buffer.rule} of {buffer.root}" if buffer.rule else buffer.kind


@pytest.mark.parametrize(("text", "wanted"), RULES.values(), ids=RULES)
def test_a_buffer_is_shared_or_refused_for_the_reasons_that_hold(text: str, wanted: dict[str, int | str]) -> None:
    proto = proto_of(f"g {text}", 18)
    feeds = {"x": np.array([["a", "b"]], object)} if "string" in text else X
    assert judge(proto, feeds, Verdict()).wrong == []
    buffers = {name: buffer for _, plan in reversed([*all_plans(proto)]) for name, buffer in plan.buffers.items()}
    assert {name: said(buffers[name]) for name in wanted} == wanted


def test_every_output_of_every_planned_node_is_told_once_with_its_kind_and_reasons() -> None:
    main = graph_of("""g (float[?, 3] x) => (float[2, 3] y, float[6] z) <int64[1] s = {-1}, int64[2] t = {2, 3}> {
        o = Neg(x) p = Relu(o) n = Reshape(p, t) r = Relu(n) e = Exp(r) v = Reshape(e, s) w = Softmax(v)
        y = Reshape(w, t) z = Exp(v) }""", 18)  # fmt: skip
    told = planning_events(main, policy="onnxruntime")
    assert list(dict.fromkeys(event.phase for event in told)) == ["walk", "pick", "buffer"]
    picked = [event.node for event in told if event.phase == "pick"]
    assert picked == [event.node for event in told if event.action == "append"]
    events = [event for event in told if event.phase == "buffer"]
    assert [event.value for event in events] == [name for node in picked if node for name in node.outputs]
    kinds = {event.value: event.action for event in events}
    assert {kinds[name] for name in "oe"} == {"kAllocate"} and {kinds[name] for name in "nrvw"} == {"kReuse"}
    assert {kinds[name] for name in "yz"} == {"kAllocateOutput"}
    reasons = {event.value: event.reason for event in events}
    assert "may run in place" in reasons["r"] and "does not run in place" in reasons["e"]
    assert reasons["p"] == (
        "Relu may not overwrite o (a dimension has neither a number nor a name); "
        "and no dead buffer of that size is free: new memory"
    )
