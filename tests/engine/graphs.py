"""Small graphs written as ONNX text, run by kvviz and by onnxruntime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser

import kvviz
from kvviz import Trace
from kvviz.graph.model import Graph
from kvviz.trace.records import Step
from tests.ort_session import session_of


def proto_of(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model from its text; ``[name]`` before a node names it, and functions follow in the domain ``local``."""
    domains = '"local" : 1, "com.microsoft" : 1, "ai.onnx.ml" : 1'
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, {domains}]> {text}')


def graph_of(text: str, opset: int = 21) -> Graph:
    """The loaded model of a text."""
    return kvviz.load(proto_of(text, opset))


def run(text: str, inputs: Mapping[str, Any] | None = None, *, opset: int = 21, **options: Any) -> Trace:
    """Run a text with poison on; inputs that it borrows are read-only for it, and must be the same afterwards."""
    return run_graph(graph_of(text, opset), inputs or {}, **options)


def run_graph(graph: Graph, inputs: Mapping[str, Any], **options: Any) -> Trace:
    """The same for a graph that is loaded already."""
    feeds = dict(inputs)
    borrowed = {name: value for name, value in feeds.items() if name not in options.get("donate", ())}
    for name, value in borrowed.items():
        feeds[name] = value.view()
        feeds[name].flags.writeable = False
    before = {name: value.tobytes() for name, value in borrowed.items()}
    trace = kvviz.run(graph, feeds, poison=True, **options)
    assert {name: value.tobytes() for name, value in borrowed.items()} == before, "a borrowed input has changed"
    return trace


def ort_run(model: onnx.ModelProto, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
    """What onnxruntime makes of a model, on one thread and without rewriting it."""
    return session_of(model).run(None if outputs is None else list(outputs), dict(inputs))


def assert_like_ort(text: str, inputs: dict, opset: int = 21) -> Trace:
    """Run both, under both policies, and compare all outputs; gives the trace of ``ideal``."""
    expected = ort_run(proto_of(text, opset), inputs)
    traces = [run(text, inputs, opset=opset, policy=policy) for policy in ("ideal", "never")]
    for trace in traces:
        for have, want in zip(trace.outputs.values(), expected, strict=True):
            assert (have.dtype, have.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    for first, second in zip(traces[0].outputs.values(), traces[1].outputs.values()):
        assert first.tobytes() == second.tobytes()
    return traces[0]


def step_of(trace: Trace, node: str, which: int = 0) -> Step:
    """The step of a node, by its name; the last one for ``which=-1``."""
    found = [step for step in trace.steps if step.node == node]
    assert found, f"{node} did not run; what ran is {[step.node for step in trace.steps]}"
    return found[which]


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers in memory of their own."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)
