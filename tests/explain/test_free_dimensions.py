"""Fixing free dimensions: what onnxruntime cannot compare before it runs, it can once the model says the lengths."""

from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz.explain.summary import Missed
from kvviz.fixes.changes import FixDims
from tests.engine.graphs import ort_run
from tests.engine.random_graphs import Example, examples, feeds
from tests.explain.applying import offered, problems, same_results
from tests.explain.nested_graphs import nested
from tests.explain.test_fixes import DECODERS, decoded
from tests.graph.build import model, node


def speech() -> onnx.ModelProto:
    """A chain of ops over a batch and a length that nobody has named."""
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3], pads=[1, 1]),
        node("Relu", "c", "r", name="relu"),
        node("Concat", "r r", "d", axis=1),
        node("Sigmoid", "d", "s", name="sigmoid"),
        node("Softmax", "s", "p", name="softmax", axis=-1),
        node("ReduceMean", "p", "y"),
    ]
    made: onnx.ModelProto = model(nodes, ["x float ? 2 ?"], ["y float 1 1 1"], w=np.ones((4, 2, 3), np.float32))
    return made


def run(proto: onnx.ModelProto, **options: Any) -> kvviz.Trace:
    x = np.arange(48, dtype=np.float32).reshape(2, 2, 12)
    return kvviz.run(kvviz.load(proto), {"x": x}, policy="onnxruntime", **options)


def freed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model that says nothing of the lengths of its inputs, nor of any other value."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    copy.graph.ClearField("value_info")
    return copy


def dims_fixed(trace: kvviz.Trace) -> int:
    """How many fixes of a trace fix dimensions."""
    return sum(any(isinstance(c, FixDims) for c in fix.changes) for _, _, fix in offered(trace))


def test_one_fix_gives_all_ops_that_only_lack_numbers_their_input_and_onnxruntime_agrees_on_the_result() -> None:
    trace = run(speech())
    entries: tuple[Missed, ...] = kvviz.explain(trace).missed
    assert {entry.node for entry in entries} == {"relu", "sigmoid", "softmax"}
    fixes = {entry.fix.changes: entry.fix for entry in entries if entry.fix is not None}
    (fix,) = fixes.values()
    assert (fix.kind, fix.label) == ("fix_dims", "fix the free dimensions")
    assert fix.changes == (FixDims((("x", 0, 2), ("x", 2, 12))),)
    after = fix.apply()
    assert kvviz.explain(after).missed == () and same_results(trace, after)
    assert after.bytes_allocated < trace.bytes_allocated and after.peak_bytes < trace.peak_bytes
    assert problems(trace) == []
    # and its code does the same to the file
    changed = speech()
    exec(fix.code, {"model": changed})
    onnx.checker.check_model(changed, full_check=True)
    assert [dim.dim_value for dim in changed.graph.input[0].type.tensor_type.shape.dim] == [2, 2, 12]
    again = run(changed)
    assert kvviz.explain(again).missed == () and same_results(trace, again)
    x = np.arange(48, dtype=np.float32).reshape(2, 2, 12)
    np.testing.assert_allclose(again.outputs["y"], ort_run(changed, {"x": x})[0], atol=1e-5)


def test_a_length_that_differs_from_run_to_run_is_left_free() -> None:
    path = next(path for path in DECODERS if "storyteller" in str(path))
    trace = decoded(path, 3, policy="onnxruntime")
    for _, _, fix in offered(trace):
        dims = [dim for change in fix.changes if isinstance(change, FixDims) for dim in change.dims]
        assert not [axis for name, axis, _ in dims if name.startswith("past") and axis == 2]


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(example=examples())
def test_every_fix_of_a_random_graph_without_lengths_works(example: Example) -> None:
    graph = kvviz.load(freed(example.model))
    trace = kvviz.run(graph, feeds(example), donate=example.donate, policy="onnxruntime")
    assert problems(trace) == []


def test_every_fix_of_bodies_inside_bodies_without_lengths_works_and_some_fix_dimensions() -> None:
    found = 0
    for seed in range(120):
        proto, inputs, donate = nested(seed)
        fresh = {name: array.copy() for name, array in inputs.items()}
        trace = kvviz.run(kvviz.load(freed(proto)), fresh, donate=donate, policy="onnxruntime")
        assert problems(trace) == [], f"seed {seed}"
        found += dims_fixed(trace)
    assert found >= 5
