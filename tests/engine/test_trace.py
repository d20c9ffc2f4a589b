"""The trace: its steps as a sequence, and saving and loading it."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.trace.index.value_index import index_of
from tests.engine.graphs import graph_of, numbers, run
from tests.engine.test_control import FUNCTIONS, NESTED
from tests.graph.build import MODELS
from tests.outside.told import differences

LOOP = """g (float[2] x, int64 n) => (float[2] y, float[k, 2] s) <int64[1] z = {0}> {
    a = Exp(x) b = Unsqueeze(a, z) c = Squeeze(b)
    [loop] y, s = Loop (n, "", c) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] u) {
        on = Identity(go) w = Add(v, x) u = Mul(w, a) }> }"""


def make(kind: str) -> Trace:
    if kind == "nested":
        return run(NESTED, {"x": numbers(2), "c": np.array(True), "d": np.array(False)})
    if kind == "functions":
        return run(FUNCTIONS, {"x": numbers(4)})
    if kind == "loop":
        return run(LOOP, {"x": numbers(2), "n": np.array(3)})
    graph = kvviz.load(MODELS / "storyteller" / kind / "model.onnx")
    words = json.loads((MODELS / "storyteller" / "vocab.json").read_text("utf-8"))
    return kvviz.decode(graph, [1, 2, 3], 3, kv_capacity=80, tokenizer=words, progress=False)


def test_steps_are_a_sequence() -> None:
    trace = make("loop")
    steps = trace.steps
    assert [s.index for s in steps] == list(range(len(steps)))
    assert steps[-1] == steps[len(steps) - 1] == list(steps)[-1]
    assert steps[2:8:3] == [steps[2], steps[5]]
    assert steps[1] in steps and steps.index(steps[4]) == 4
    for outside in (len(steps), -len(steps) - 1):
        with pytest.raises(IndexError, match=f"step {outside} does not exist; the trace has {len(steps)} steps"):
            steps[outside]


def test_a_loaded_graph_knows_the_types_of_its_values(tmp_path: Path) -> None:
    text = """g (float16[n, 2] x, int64 i, seq(float[2]) s) => (float16[n, 2] y, float[2] t) {
        y = Neg(x) t = SequenceAt(s, i) }"""
    feeds = {"x": numbers(3, 2, dtype=np.float16), "i": np.array(0), "s": [numbers(2)]}
    kvviz.run(graph_of(text), feeds).save(tmp_path / "a")
    graph = Trace.load(tmp_path / "a").graph
    known = [(value.name, value.dtype, value.shape) for value in (*graph.inputs, *graph.outputs)]
    half, single, number = (np.dtype(name) for name in ("float16", "float32", "int64"))
    assert known[:2] == [("x", half, ("n", 2)), ("i", number, ())]
    assert known[3:] == [("y", half, ("n", 2)), ("t", single, (2,))]
    assert [value.kind == graph.inputs[0].kind for value in graph.inputs] == [True, True, False]


def test_the_weights_of_a_body_are_alive_before_it_is_entered() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) { a = Exp(x)
        y = If (c) <then_branch = t () => (float[2] p) <float[2] w = {1, 2}> { p = Add(a, w) },
                    else_branch = e () => (float[2] q) <float[2] v = {3, 4}> { q = Add(a, v) }> }"""
    trace = run(text, {"x": numbers(2), "c": np.array(True)})
    weights = [storage for storage in trace.storages if storage.origin == "weights"]
    assert [(storage.name, storage.born) for storage in weights] == [("w", -1), ("", -1)]
    assert trace.steps[0].live_bytes == sum(s.capacity for s in trace.storages if s.born < 1)


@pytest.mark.parametrize("handed", ["Add(q, e)", "Identity(e)"])
def test_an_element_of_a_sequence_is_as_old_as_the_sequence(handed: str) -> None:
    # given: rten copies s for each iteration, and the pool hands out the elements of the copy
    text = f"""g (float[64] x, int64 n) => (float[64] y) <int64 o = {{0}}> {{ s = SequenceConstruct(x, x)
        y = Loop (n, "", x) <body = b (int64 i, bool go, float[64] v) => (bool on, float[64] w)
            {{ on = Identity(go) u = Sin(v) p = Cos(v) q = Sum(u, p, v) e = SequenceAt(s, o) w = {handed} }}> }}"""
    trace = run(text, {"x": numbers(64), "n": np.array(4)}, policy="rten")
    copies = [bound.storage for frame in trace.frames for bound in frame.bindings if bound.how == "captured by value"]
    assert len(copies) == 4
    for copy in copies:
        assert len({(trace.storages[copy + k].name, trace.storages[copy + k].born) for k in range(3)}) == 1
        lives = [life for life in index_of(trace).lives if life.born == trace.storages[copy].born]
        assert {copy, copy + 1, copy + 2} <= {life.storage for life in lives}
    peak = kvviz.explain(trace).peak
    assert peak.bytes == trace.peak_bytes == sum(part.bytes for part in peak.parts)


def test_a_trace_and_its_report_are_pickled_as_a_file_holds_them() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    trace = kvviz.decode(graph, [1, 5, 9], 3, kv_capacity=8, progress=False)
    again, report = pickle.loads(pickle.dumps((trace, kvviz.explain(trace))))
    assert differences(trace, again, pictures=False) == [] and again.outputs.keys() == trace.outputs.keys()
    assert all(np.array_equal(again.outputs[name], value) for name, value in trace.outputs.items())
    assert repr(report) == repr(kvviz.explain(trace)) and report.missed == kvviz.explain(trace).missed


def test_a_view_that_numpy_had_to_copy_begins_where_its_storage_begins() -> None:
    # onnxruntime shows the result of Reshape as a view; of a transposed array NumPy makes a copy.
    text = """g (float[2, 3] x, bool c) => (float[6] y) <int64[1] n = {6}> { r = Reshape(x, n)
        y = If (c) <then_branch = t () => (float[6] p) { p = Neg(r) },
                    else_branch = e () => (float[6] q) { q = Exp(r) }> }"""
    trace = run(text, {"x": numbers(3, 2).T, "c": np.array(True)}, policy="onnxruntime")
    assert {bound.offset for frame in trace.frames for bound in frame.bindings} == {0}
