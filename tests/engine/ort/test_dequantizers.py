"""Models with quantized values: onnxruntime gives every reader of a DequantizeLinear one of its own."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.runtimes.schedules import Picks
from tests.engine.ort.judge import Verdict, judge
from tests.engine.ort.oracle import observe
from tests.engine.ort.random_models import random_model
from tests.engine.ort.test_cast_chains import assert_as_there
from tests.engine.ort.test_policy import disagreements
from tests.graph.build import model, node
from tests.outside.told import differences, loaded

BITS = {"s": np.float32(0.5), "z": np.uint8(3)}
Q = {"q": np.arange(1024, dtype=np.uint8).reshape(32, 32)}


def dequantized(*readers: Any, outputs: str = "y", q: str = "q uint8 32 32", **attributes: Any) -> onnx.ModelProto:
    """A DequantizeLinear, what reads it, and other nodes."""
    first = node("DequantizeLinear", "q s z", "d", name="dq", **attributes)
    return model([first, *readers], [q], outputs.split(), opset=21, **BITS)


def test_every_reader_has_a_dequantizer_of_its_own_in_onnxruntimes_order() -> None:
    # given: two readers, of which one reads twice
    readers = [node("Relu", "d", "a", name="relu"), node("Mul", "d d", "b", name="mul"), node("Add", "a b", "y")]
    readers[-1].name = "add"
    trace = assert_as_there(dequantized(*readers), Q)
    names = ["dq/duplicated_token_1", "dq/duplicated", "mul", "dq", "relu", "add"]
    assert [step.node for step in trace.steps] == names
    assert [step.allocated for step in trace.steps] == [4096, 4096, 4096, 0, 0, 4096]
    assert trace.steps[2].inputs == ("d/duplicated", "d/duplicated_token_0")


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_copy_has_the_attributes_of_its_original(domain: str) -> None:
    nodes = [
        node("DequantizeLinear", "q s z", "d", name="dq", domain=domain, axis=0),
        node("Sign", "d", "a", name="sign"),
        node("Neg", "d", "b", name="neg"),
        node("Add", "a b", "y", name="add"),
    ]
    weights: dict[str, Any] = {"s": np.arange(1, 33, dtype=np.float32), "z": np.zeros(32, np.uint8)}
    proto = model(nodes, ["q uint8 32 32"], ["y"], opset=21, domains=["com.microsoft"], **weights)
    wanted = observe(proto, Q).outputs[0]
    np.testing.assert_array_equal(kvviz.run(kvviz.load(proto), Q, policy="onnxruntime").outputs["y"], wanted)


def test_a_trace_with_copies_is_the_same_from_a_file_and_has_a_page() -> None:
    readers = [node("Relu", "d", "a", name="relu"), node("Neg", "d", "b", name="neg"), node("Add", "a b", "y")]
    trace = kvviz.run(kvviz.load(dequantized(*readers, q="q uint8 n m")), Q, policy="onnxruntime")
    assert differences(trace, loaded(trace)) == [] and "duplicated" in trace.to_html()


def test_the_order_of_a_run_with_copies_can_be_followed_without_them_and_the_other_way_round() -> None:
    readers = [
        node("Relu", "d", "a", name="relu"),
        node("Neg", "d", "b", name="neg"),
        node("Add", "a b", "y", name="add"),
    ]
    main = kvviz.load(dequantized(*readers))
    with_copies, without = (kvviz.run(main, Q, policy=policy) for policy in ("onnxruntime", "ideal"))
    followed = kvviz.run(main, Q, policy=_in_order("ideal", with_copies))
    again = kvviz.run(main, Q, policy=_in_order("onnxruntime", without))
    assert [step.node for step in followed.steps] == ["dq", "neg", "relu", "add"]
    assert [step.node for step in again.steps] == ["dq", "relu", "dq/duplicated", "neg", "add"]


def _in_order(policy: str, trace: kvviz.Trace) -> kvviz.Policy:
    return replace(getattr(kvviz.policies, policy), schedule=Picks.of(trace))


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_random_models_with_quantized_values_run_as_there(first: int) -> None:
    verdict, compared, copies = Verdict(), 0, 0
    for seed in range(first, first + 40):
        proto, feeds = random_model(seed, 9, bits=True)
        try:
            ran = observe(proto, feeds).order
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            continue
        judge(proto, feeds, verdict)
        copies += sum("/duplicated" in name for name, _ in ran)
        for mem_reuse in (True, False):
            count, wrong = disagreements(proto, feeds, mem_reuse)
            assert wrong == [], seed
            compared += count
    assert verdict.wrong == [] and verdict.decisions > 1500 and compared > 1000 and copies > 40
