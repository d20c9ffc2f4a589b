"""What onnxruntime does and the policy does not follow: each with the smallest model that shows it."""

import numpy as np
import onnx
from onnx import helper

import kvviz
from kvviz import Trace
from tests.engine.ort.oracle import observe
from tests.graph.build import graph, model, node

X = {"x": np.ones((2, 3), np.float32)}


def both(proto: onnx.ModelProto, feeds: dict[str, np.ndarray] = X) -> tuple[list[str], Trace]:
    """Names of the nodes that ran in onnxruntime, and our trace of the same."""
    trace = kvviz.run(kvviz.load(proto), feeds, policy="onnxruntime", poison=True)
    return [name for name, _ in observe(proto, feeds).order], trace


def test_nodes_that_no_output_needs_run_there_only() -> None:
    nodes = [node("Neg", "x", "y", name="wanted"), node("Exp", "x", "z", name="dead")]
    ran, trace = both(model(nodes, ["x float 2 3"], ["y"], opset=18))
    assert ran == ["dead", "wanted"] and [step.node for step in trace.steps] == ["wanted"]


def test_a_local_function_is_spelled_out_there_and_a_frame_here() -> None:
    body = [node("Neg", "a", "b", name="inner"), node("Exp", "b", "c", name="last")]
    function = helper.make_function("my", "F", ["a"], ["c"], body, [helper.make_opsetid("", 18)])
    nodes = [
        node("Neg", "x", "h", name="first"),
        node("F", "h", "g", name="call", domain="my"),
        node("Neg", "g", "y", name="end"),
    ]
    proto = model(nodes, ["x float 2 3"], ["y"], opset=18, functions=[function], domains=["my"])
    ran, trace = both(proto)
    assert observe(proto, X).allocated[ran[2]] == 0
    assert len(ran) == 4 and not {"call", "inner"} & set(ran)
    assert [step.node for step in trace.steps] == ["first", "inner", "last", "call", "end"]
    # What a body returns has memory of its own here; there the last op takes over the dead buffer of h.
    assert [step.allocated for step in trace.steps] == [24, 24, 24, 0, 24]


def test_an_operator_without_a_kernel_is_spelled_out_there_and_one_op_here() -> None:
    nodes = [node("Neg", "x", "h", name="first"), node("HardSwish", "h", "y", name="swish")]
    ran, trace = both(model(nodes, ["x float 2 3"], ["y"], opset=18))
    assert len(ran) > 2 and "swish" not in ran
    assert [step.node for step in trace.steps] == ["first", "swish"]


def test_half_precision_is_computed_in_single_there() -> None:
    nodes = [node("Relu", "x", "h", name="first"), node("Sigmoid", "h", "y", name="second")]
    ran, trace = both(model(nodes, ["x half 2 3"], ["y"], opset=18), {"x": np.ones((2, 3), np.float16)})
    assert len(ran) == 4 and sum("Cast" in name for name in ran) == 2
    assert [step.node for step in trace.steps] == ["first", "second"]


def test_an_output_that_nobody_reads_dies_at_once_here() -> None:
    nodes = [node("TopK", "x k", "v i", name="topk"), node("Neg", "v", "y", name="neg")]
    _, trace = both(model(nodes, ["x float 2 3"], ["y"], opset=18, k=np.array([3])))
    (_, indices) = trace.log[0].outs
    assert indices is not None and indices.storage in trace.log[0].freed


def test_a_scan_allocates_its_slices_here() -> None:
    body = graph([node("Add", "s p", "s2", name="sum"), node("Neg", "s2", "o", name="out")],
                 ["s float 3", "p float 3"], ["s2 float 3", "o float 3"])  # fmt: skip
    nodes = [node("Scan", "w x", "last y", name="scan", body=body, num_scan_inputs=1)]
    proto = model(nodes, ["x float 2 3"], ["last", "y"], opset=18, w=np.zeros(3, np.float32))
    _, trace = both(proto)
    assert observe(proto, X).allocated["out"] == 0
    assert [step.allocated for step in trace.steps if step.node == "out"] == [12, 12]
