"""onnxruntime's allocation plan, against the memory statistics of the installed onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALLOCATE,
    PRE_EXISTING,
    REUSE,
    STATIC,
    AllocationPlan,
    Buffer,
)
from kvviz.trace import blockers as b
from tests.engine.ort.judge import Verdict, judge
from tests.engine.ort.models import FILES, IDS, all_plans, real_model, stored_inputs
from tests.engine.ort.random_models import random_model
from tests.graph.build import graph, model, node

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
    nodes = [
        node("Relu", "w", "a"),
        node("Neg", "x", "n"),
        node("Sigmoid", "n", "g"),
        node("Add", "g a", "f"),
        node("Reshape", "f s", "u"),
        node("Reshape", "n s", "v"),
        node("Add", "u v", "y"),
    ]
    weights: dict[str, Any] = {"w": np.ones((2, 3), np.float32), "s": np.array([-1])}
    buffers = checked(model(nodes, ["x float 2 3"], ["y"], opset=18, **weights)).buffers
    assert buffers["w"].kind == STATIC and buffers["x"].kind == PRE_EXISTING
    assert buffers["a"].refused == ((0, b.CONSTANT),)
    assert buffers["v"] == Buffer("v", REUSE, "n", "Alias", 0)
    assert buffers["g"].refused == ((0, b.ALIASED),)


def test_the_reader_that_comes_last_in_onnxruntimes_order_is_the_one_that_overwrites() -> None:
    nodes = [node("Neg", "x", "n"), node("Relu", "n", "r"), node("Sigmoid", "n", "s"), node("Add", "r s", "y")]
    buffers = checked(model(nodes, ["x float 2 3"], ["y"], opset=18)).buffers
    assert buffers["s"].refused == ((0, b.NOT_LAST_USE),)
    assert buffers["r"].rule == "MayInplace"


def test_elements_of_one_size_are_enough_but_not_one_number_of_bytes() -> None:
    casts = [node("Neg", "x", "n"), node("Cast", "n", "i", to=6), node("Neg", "i", "m"), node("Cast", "m", "d", to=7)]
    proto = model([*casts, node("Neg", "d", "y")], ["x float 2 3"], ["y"], opset=18)
    buffers = checked(proto).buffers
    assert buffers["i"].rule == "MayInplace"
    assert buffers["d"].refused == ((0, b.DTYPE_DIFFERS),)
    turned = [node("Neg", "x", "n"), node("Transpose", "n", "t"), node("Exp", "t", "e"), node("Exp", "e", "y")]
    assert checked(model(turned, ["x float 2 3"], ["y"], opset=18)).buffers["t"].kind == ALLOCATE


def test_strings_are_never_overwritten_or_taken_over() -> None:
    feeds = {"x": np.array([["a", "b"]], object)}
    nodes = [node("Concat", "x", "a", axis=0), node("Concat", "a", "c", axis=0), node("Concat", "c", "d", axis=0)]
    proto = model([*nodes, node("Concat", "d", "y", axis=0)], ["x string 1 2"], ["y"], opset=18)
    assert {checked(proto, feeds).buffers[name].kind for name in "acd"} == {ALLOCATE}


def test_optional_values_are_their_element_under_another_type() -> None:
    nodes = [
        node("Concat", "x", "a", axis=0),
        node("Optional", "a", "o"),
        node("OptionalGetElement", "o", "e"),
        node("Relu", "e", "r"),
        node("Neg", "r", "y"),
    ]
    buffers = checked(model(nodes, ["x float 2 3"], ["y"], opset=18)).buffers
    assert buffers["o"].root == buffers["e"].root == "a"
    assert buffers["r"] == Buffer("r", REUSE, "a", "MayInplace", 0)


def test_statistics_that_batch_normalization_trains_live_in_its_inputs() -> None:
    nodes = [
        node("Neg", "x", "n"),
        *(node("Neg", f"w{i}", f"m{i}") for i in range(4)),
        node("BatchNormalization", "n m0 m1 m2 m3", "y mean var", training_mode=1),
        node("Neg", "mean", "z"),
    ]
    weights: dict[str, Any] = {f"w{i}": np.full(3, -1.0 - i, np.float32) for i in range(4)}
    buffers = checked(model(nodes, ["x float 2 3"], ["y", "z"], opset=18, **weights)).buffers
    assert (buffers["mean"].root, buffers["var"].root) == ("m2", "m3")


# ---- bodies ---------------------------------------------------------------------------------------------------------


def test_a_body_never_overwrites_what_it_is_lent() -> None:
    then = graph([node("Relu", "n", "a"), node("Neg", "a", "b")], [], ["b float 2 3"])
    other = graph([node("Exp", "n", "c")], [], ["c float 2 3"])
    nodes = [node("Neg", "x", "n"), node("If", "q", "y", then_branch=then, else_branch=other)]
    proto = model(nodes, ["x float 2 3"], ["y"], opset=18, q=np.array(True))
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
