"""onnxruntime's order and allocation plan, against the profile and the statistics of the installed onnxruntime."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.engine.plan import needed
from kvviz.graph.model import Graph
from kvviz.runtimes.frontier import PlanningEvent
from kvviz.runtimes.named_policies import planning_events
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALLOCATE,
    PRE_EXISTING,
    REUSE,
    STATIC,
    AllocationPlan,
    Buffer,
)
from kvviz.runtimes.ort.ort_policy import OrtOrder
from kvviz.trace import blockers as b
from tests.engine.graphs import graph_of, proto_of
from tests.engine.ort.judge import Verdict, judge
from tests.engine.ort.models import FILES, IDS, all_plans, real_model, stored_inputs, without_dead_nodes
from tests.engine.ort.oracle import observe
from tests.engine.ort.random_models import random_model
from tests.graph.build import model, node

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


def plan_of(proto: onnx.ModelProto) -> AllocationPlan:
    return next(all_plans(proto))[1]


def checked(proto: onnx.ModelProto, feeds: dict | None = None) -> AllocationPlan:
    """The plan of a model, after onnxruntime was seen to follow it."""
    assert judge(proto, feeds or X, Verdict()).wrong == []
    return plan_of(proto)


# ---- whole models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 360, 60))
def test_random_models_are_planned_without_one_wrong_byte(first: int) -> None:
    verdict = Verdict()
    for seed in range(first, first + 60):
        judge(*random_model(seed), verdict)
    assert verdict.wrong == []
    assert verdict.decisions > 2500
    assert min(verdict.kinds[kind] for kind in ("kReuse Alias", "kReuse MayInplace", "kReuse freelist")) > 20


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_are_planned_without_one_wrong_byte(path: Path) -> None:
    verdict, proto = Verdict(), real_model(path)
    runs = stored_inputs(path)
    for feeds in (runs[0], runs[-1]) if len(runs) > 1 else runs:
        judge(proto, feeds, verdict, mem_reuse=(True,))
    judge(proto, runs[-1], verdict, mem_reuse=(False,))
    assert verdict.wrong == [] and verdict.decisions > 60


# ---- one rule each --------------------------------------------------------------------------------------------------


def chain(
    *ops: str, x: str = "x float 2 3", extra: list | None = None, outputs: str = "y", **weights: Any
) -> onnx.ModelProto:
    """Ops one after the other, from x to y, the values between them called after their op and place."""
    names = ["x", *(f"{op.lower()}{i}" for i, op in enumerate(ops[:-1])), "y"]
    nodes = [node(op, f"{names[i]}", names[i + 1], name=f"n{i}") for i, op in enumerate(ops)]
    return model([*nodes, *(extra or [])], [x], outputs.split(), opset=18, **weights)


@pytest.mark.parametrize(("proto", "value", "mask"), [
    (chain("Relu", "Neg"), "relu0", b.BORROWED_INPUT),
    (chain("Neg", "Relu", "Exp", extra=[node("Exp", "neg0", "z")], outputs="y z"), "relu1", 0),
    (chain("Neg", "Relu", extra=[]), "y", refusal.OUTPUT),
    (chain("Neg", "Relu", "Exp", outputs="y neg0"), "relu1", b.REQUESTED_OUTPUT),
    (chain("Neg", "Relu", "Exp", x="x float ? 3"), "relu1", refusal.UNKNOWN),
    (chain("Neg", "Relu", "Exp", x="x float n 3"), "relu1", 0),
], ids=["input of the graph", "read before", "output of the graph", "requested", "unnamed", "named"])  # fmt: skip
def test_an_input_is_refused_for_the_reasons_that_hold(proto: onnx.ModelProto, value: str, mask: int) -> None:
    buffer = checked(proto).buffers[value]
    assert (buffer.refused == ((0, mask),)) if mask else buffer.rule == "MayInplace"


def test_a_weight_and_a_buffer_that_another_value_shares_are_refused() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] w = {1, 1, 1, 1, 1, 1}, int64[1] s = {-1}> {
        a = Relu(w) n = Neg(x) q = Sigmoid(n) f = Add(q, a) u = Reshape(f, s) v = Reshape(n, s) y = Add(u, v) }"""
    buffers = checked(proto_of(text, 18)).buffers
    assert buffers["w"].kind == STATIC and buffers["x"].kind == PRE_EXISTING
    assert buffers["a"].refused == ((0, b.CONSTANT),)
    assert buffers["v"] == Buffer("v", REUSE, "n", "Alias", 0)
    assert buffers["q"].refused == ((0, b.ALIASED),)


def test_the_reader_that_comes_last_in_onnxruntimes_order_is_the_one_that_overwrites() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y) { n = Neg(x) r = Relu(n) s = Sigmoid(n) y = Add(r, s) }"
    buffers = checked(proto_of(text, 18)).buffers
    assert buffers["s"].refused == ((0, b.NOT_LAST_USE),)
    assert buffers["r"].rule == "MayInplace"


def test_elements_of_one_size_are_enough_but_not_one_number_of_bytes() -> None:
    casts = "n = Neg(x) i = Cast <to = 6> (n) m = Neg(i) d = Cast <to = 7> (m) y = Neg(d)"
    buffers = checked(proto_of(f"g (float[2, 3] x) => (int64[2, 3] y) {{ {casts} }}", 18)).buffers
    assert buffers["i"].rule == "MayInplace"
    assert buffers["d"].refused == ((0, b.DTYPE_DIFFERS),)
    turned = "g (float[2, 3] x) => (float[3, 2] y) { n = Neg(x) t = Transpose(n) e = Exp(t) y = Exp(e) }"
    assert checked(proto_of(turned, 18)).buffers["t"].kind == ALLOCATE


def test_strings_are_never_overwritten_or_taken_over() -> None:
    chained = " ".join(f"{made} = Concat <axis = 0> ({read})" for read, made in pairwise("xacdy"))
    proto = proto_of(f"g (string[1, 2] x) => (string[1, 2] y) {{ {chained} }}", 18)
    feeds = {"x": np.array([["a", "b"]], object)}
    assert {checked(proto, feeds).buffers[name].kind for name in "acd"} == {ALLOCATE}


def test_optional_values_are_their_element_under_another_type() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        a = Concat <axis = 0> (x) o = Optional(a) e = OptionalGetElement(o) r = Relu(e) y = Neg(r) }"""
    buffers = checked(proto_of(text, 18)).buffers
    assert buffers["o"].root == buffers["e"].root == "a"
    assert buffers["r"] == Buffer("r", REUSE, "a", "MayInplace", 0)


def test_statistics_that_batch_normalization_trains_live_in_its_inputs() -> None:
    weights = ", ".join(f"float[3] w{i} = {{{-1 - i}, {-1 - i}, {-1 - i}}}" for i in range(4))
    text = f"""g (float[2, 3] x) => (float[2, 3] y, float[3] z) <{weights}> {{
        n = Neg(x) m0 = Neg(w0) m1 = Neg(w1) m2 = Neg(w2) m3 = Neg(w3)
        y, mean, var = BatchNormalization <training_mode = 1> (n, m0, m1, m2, m3) z = Neg(mean) }}"""
    buffers = checked(proto_of(text, 18)).buffers
    assert (buffers["mean"].root, buffers["var"].root) == ("m2", "m3")


# ---- bodies ---------------------------------------------------------------------------------------------------------


def test_a_body_never_overwrites_what_it_is_lent() -> None:
    proto = proto_of("""g (float[2, 3] x) => (float[2, 3] y) <bool q = {1}> { n = Neg(x)
        y = If (q) <then_branch = t () => (float[2, 3] b) { a = Relu(n) b = Neg(a) },
                    else_branch = e () => (float[2, 3] c) { c = Exp(n) }> }""", 18)  # fmt: skip
    assert judge(proto, X, Verdict()).wrong == []
    inner = next(plan.buffers for part, plan in all_plans(proto) if "a" in part.producers)
    assert inner["n"].kind == PRE_EXISTING
    assert inner["a"].refused == ((0, b.CAPTURED_BY_REFERENCE),)


def test_a_refusal_has_a_reason_whenever_the_planner_counts_another_use() -> None:
    """The reasons are collected apart from the counts, and must say no exactly where those do."""
    refused = 0
    for seed in range(120):
        for _, plan in all_plans(random_model(seed)[0]):
            for buffer in plan.buffers.values():
                assert all(mask for _, mask in buffer.refused)
                refused += len(buffer.refused)
    assert refused > 300


def ran(proto: onnx.ModelProto, feeds: dict, names: set[str]) -> list[str]:
    """Of these nodes those that ran, each once, in the order of the profile."""
    return [name for name in dict.fromkeys(name for name, _ in observe(proto, feeds).order) if name in names]


def assert_same_order(proto: onnx.ModelProto, feeds: dict) -> int:
    """Every graph of the model that ran has the profile's order; gives the number of nodes compared."""
    compared = 0
    for _, plan in all_plans(proto):
        planned = [n.name for n in plan.order]
        seen = ran(proto, feeds, set(planned))
        assert not seen or planned == seen
        compared += len(seen)
    return compared


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_run_in_the_order_of_the_profile(path: Path) -> None:
    assert assert_same_order(real_model(path), stored_inputs(path)[0]) > 30


def test_random_models_run_in_the_order_of_the_profile() -> None:
    assert sum(assert_same_order(*random_model(seed)) for seed in range(5000, 5060)) > 1000


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


def test_a_chain_of_thousands_of_nodes_is_walked() -> None:
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name=f"n{i}") for i in range(5000)]
    main = kvviz.load(model(nodes, ["v0 float 2"], ["v5000 float 2"]))
    assert main_order(main) == [f"n{i}" for i in range(5000)]


def events(graph: Graph) -> tuple[PlanningEvent, ...]:
    """What onnxruntime's planner does, step by step."""
    return planning_events(graph, policy="onnxruntime")


def small() -> Graph:
    text = """g (float[2, 3] x) => (float[2, 3] y, float[6] z) <int64[1] s = {-1}, int64[2] t = {2, 3}> {
        n = Neg(x) r = Relu(n) e = Exp(r) v = Reshape(e, s) w = Softmax(v) y = Reshape(w, t) z = Exp(v) }"""
    return graph_of(text, 18)


def test_every_output_of_every_planned_node_is_told_once_with_its_kind() -> None:
    main = small()
    buffers = [event for event in events(main) if event.phase == "buffer"]
    assert sorted(event.value for event in buffers) == sorted(name for n in main.nodes for name in n.outputs)
    kinds = {event.value: event.action for event in buffers}
    assert kinds == {
        "n": "kAllocate", "r": "kReuse", "e": "kAllocate", "v": "kReuse", "w": "kReuse",
        "y": "kAllocateOutput", "z": "kAllocateOutput",
    }  # fmt: skip


def test_the_reasons_name_what_decided() -> None:
    reasons = {event.value: event.reason for event in events(small()) if event.phase == "buffer"}
    assert "may run in place" in reasons["r"] and "the buffer of n" in reasons["r"]
    assert "does not run in place" in reasons["e"]
    assert "another name or shape" in reasons["v"]
    assert "memory of its own" in reasons["y"]


def test_a_refusal_is_told_with_its_reasons() -> None:
    main = kvviz.load(
        model([node("Neg", "x", "n"), node("Relu", "n", "r"), node("Exp", "r", "y")], ["x float ? 3"], ["y"])
    )
    reasons = {event.value: event.reason for event in events(main) if event.phase == "buffer"}
    assert reasons["r"] == (
        "Relu may not overwrite n (a dimension has neither a number nor a name); "
        "and no dead buffer of that size is free: new memory"
    )
