"""Predicted beside observed: the allocations of real onnxruntime sessions, and the report of them as HTML."""

import json
import re
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.cli import main
from kvviz.errors import KvvizError
from kvviz.graph.loading.tensors import Weights
from kvviz.runtimes.ort import refusal
from kvviz.verification.session_record import observe
from kvviz.verification.verified import Verification, bound_by
from kvviz.verification.verify import compared, run_session
from tests.engine.graphs import graph_of
from tests.explain.test_fixes import file_id
from tests.graph.build import MODELS, model

FILES = sorted(MODELS.rglob("*.onnx"))


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_a_default_session_allocates_as_predicted(path: Path) -> None:
    found = kvviz.verify(path)
    assert found.differences == () and found.agree == found.total > 20
    assert found.unknown == ()


@pytest.mark.parametrize("path", FILES[::3], ids=file_id)
@pytest.mark.parametrize(("reuse", "parallel"), [(False, False), (True, True), (False, True)])
def test_the_options_of_a_session_count(path: Path, reuse: bool, parallel: bool) -> None:
    options = onnxruntime.SessionOptions()
    options.enable_mem_reuse = reuse
    options.execution_mode = getattr(onnxruntime.ExecutionMode, "ORT_PARALLEL" if parallel else "ORT_SEQUENTIAL")
    found = kvviz.verify(path, options=options)
    assert found.differences == () and found.unknown == () and found.total > 20
    assert [word in str(found) for word in ("in parallel", "without mem_reuse")] == [parallel, not reuse]
    views = [row for row in found.rows if row.op in ("Unsqueeze", "Reshape", "Squeeze") and not row.frame]
    assert {row.observed == 0 for row in views} <= {not parallel}


LOOP = """g (float[N, 64] x, float limit, bool go) => (float[N, 64] y, float[K, N, 64] all) {
    y, all = Loop (, go, x) <body = b (int64 i, bool c, float[N, 64] s) => (bool d, float[N, 64] t, float[N, 64] e) {
        e = Exp (s)  t = Sqrt (s)  u = ReduceMax <keepdims = 0> (t)  d = Less (limit, u) }>
}"""
SCAN = """g (float[64] s, float[8, 64] x) => (float[64] t, float[8, 64] z) {
    t, y = Scan <num_scan_inputs = 1, body = b (float[64] a, float[64] e) => (float[64] c, float[64] o) {
        c = Add (a, e)  o = Neg (c) }> (s, x)
    z = Relu (y) }"""
BRANCH = """g (float[N, 64] x, float limit) => (float[N, 64] z) {
    m = ReduceMax <keepdims = 0> (x)  q = Less (m, limit)
    y = If (q) <then_branch = t () => (float[N, 64] a) { e = Exp (x)  a = Relu (e) },
                else_branch = o () => (float[N, 64] b) { b = Neg (x) }>
    z = Neg (y) }"""
# The inner branch makes what the outer one hands on.
NESTED = """g (float[N, 64] x, bool p, bool q) => (float[N, 64] z) {
    y = If (p) <
        then_branch = t () => (float[N, 64] a) {
            a = If (q) <then_branch = u () => (float[N, 64] c) { c = Exp (x) },
                        else_branch = v () => (float[N, 64] d) { d = Neg (x) }> },
        else_branch = o () => (float[N, 64] b) { b = Neg (x) }>
    z = Neg (y) }"""

# What grows in a loop, and one name in the branches of two Ifs: the statistics count a name once in a run.
GROWING = """g (float[N, 64] x, int64 n) => (float[M, 64] y) {
    y = Loop (n, , x) <body = b (int64 i, bool c, float[A, 64] s) => (bool d, float[B, 64] t) {
        d = Identity (c)  u = Concat <axis = 0> (s, x)  t = Softmax <axis = 1> (u) }> }"""
TWICE = """g (float[N, 64] x, bool p) => (float[N, 64] y, float[N, 64] z) {
    y = If (p) <then_branch = t () => (float[N, 64] a) { e = Exp (x)  a = Neg (e) },
                else_branch = o () => (float[N, 64] b) { b = Neg (x) }>
    z = If (p) <then_branch = u () => (float[N, 64] a) { e = Sqrt (x)  a = Neg (e) },
                else_branch = v () => (float[N, 64] b) { b = Exp (x) }> }"""


@pytest.mark.parametrize(
    ("text", "feeds", "inside"),
    [
        (NESTED, {"x": np.ones((64, 64), np.float32), "p": np.array(True), "q": np.array(False)}, 2),
        (LOOP, {"x": np.full((4, 64), 16, np.float32), "limit": np.float32(1.9), "go": np.array(True)}, 4),
        (SCAN, {"s": np.ones(64, np.float32), "x": np.ones((8, 64), np.float32)}, 2),
        (BRANCH, {"x": np.ones((64, 64), np.float32), "limit": np.float32(9)}, 2),
        (BRANCH, {"x": np.ones((64, 64), np.float32), "limit": np.float32(0)}, 1),
        (GROWING, {"x": np.ones((16, 64), np.float32), "n": np.array(3)}, 3),
        (TWICE, {"x": np.ones((64, 64), np.float32), "p": np.array(True)}, 4),
    ],
    ids=["nested", "loop", "scan", "then", "else", "growing", "twice"],
)
def test_what_data_decides_in_bodies_is_taken_from_the_session(text: str, feeds: dict[str, Any], inside: int) -> None:
    found = kvviz.verify(graph_of(text, 17), feeds)
    assert found.differences == () and found.unknown == ()
    assert sum(bool(row.frame) for row in found.rows) == inside
    assert text != LOOP or {frame.iteration for frame in found.trace.frames} == {None, 0, 1, 2}


@pytest.mark.parametrize(("opset", "width"), [(9, 4), (13, 1)])
def test_the_mask_of_a_dropout_has_the_type_of_its_opset(opset: int, width: int) -> None:
    text = "g (float[N, 64] x) => (float[N, 64] y) { e = Exp (x)  d, mask = Dropout (e)  y = Neg (d) }"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found = kvviz.verify(graph_of(text, opset), {"x": np.ones((64, 64), np.float32)}, options)
    (row,) = [row for row in found.rows if row.op == "Dropout"]
    assert found.differences == () and row.observed is not None
    assert row.observed == row.predicted and row.observed % (64 * 64 * 4) == 64 * 64 * width % (64 * 64 * 4)


# The branch that is taken has no node: its output is a weight, which onnxruntime copies.
WEIGHT = """g (float[N, 64] x, float limit) => (float[P, 64] z) {
    m = ReduceMax <keepdims = 0> (x)  q = Less (m, limit)
    y = If (q) <then_branch = t () => (float[A, 64] a) { a = Exp (x) },
                else_branch = o () => (float[8, 64] b) { s = Constant <value_ints = [8, 64]> ()
                                                         b = ConstantOfShape (s) }>
    z = Neg (y) }"""


@pytest.mark.parametrize(("limit", "branch"), [(9, "then_branch"), (0, "else_branch")])
def test_a_branch_without_a_node_is_taken_where_the_other_did_not_run(limit: float, branch: str) -> None:
    feeds = {"x": np.ones((64, 64), np.float32), "limit": np.float32(limit)}
    found = kvviz.verify(graph_of(WEIGHT, 17), feeds)
    (node,) = [node for node in found.trace.graph.nodes if node.op_type == "If"]
    assert [len(body.nodes) for name, body in sorted(node.subgraphs.items())] == [0, 1]
    assert found.differences == () and found.unknown == ()
    (row,) = [row for row in found.rows if row.op == "If"]
    assert branch in row.reason and row.observed == {"then_branch": 64, "else_branch": 8}[branch] * 256


@pytest.mark.parametrize("name", ["a,b", "a\nb", 'a"b,1', "é/🎉"])
def test_a_node_may_have_any_name(name: str) -> None:
    nodes = [onnx.helper.make_node("Exp", ["x"], [name], name=name), onnx.helper.make_node("Neg", [name], ["y"])]
    found = kvviz.verify(kvviz.load(model(nodes, ["x float 64"], ["y float 64"])))
    assert (found.agree, found.total, found.unknown) == (2, 2, ())


def test_the_command_prints_the_slowest_ops_and_fails_where_something_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(MODELS / "storyteller" / "concat" / "model.onnx")
    assert main(["verify", path]) == 0
    told = capsys.readouterr().out
    assert f"by onnxruntime {onnxruntime.__version__}" in told and "as predicted" in told
    assert "3 × Sigmoid, Mul → com.microsoft.QuickGelu" in told
    assert main(["verify", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["agree"] == data["total"] == len(data["rows"]) > 50
    assert {"node", "step", "op", "predicted", "observed", "microseconds", "reason"} <= set(data["rows"][0])
    assert {change["kind"] for change in data["changes"]} >= {"kept", "fused"}
    assert main(["verify", path, "--inputs", ""]) == 2
    assert "--inputs is empty" in capsys.readouterr().err
    # a table that is wrong is noticed
    monkeypatch.setitem(refusal.MAY_INPLACE, ("", "Add"), ((0, 0),))
    assert main(["verify", path]) == 1
    told, found = capsys.readouterr().out, kvviz.verify(path)
    assert found.differences and all(row.cause for row in found.differences)
    assert [row.agrees for row in found.rows] == sorted(row.agrees for row in found.rows)
    assert f"differs: {found.differences[0].op}" in told and found.differences[0].cause in told


def test_what_cannot_be_run_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    path = MODELS / "storyteller" / "concat" / "model.onnx"
    with pytest.raises(KvvizError, match="refuses") as refused:
        kvviz.verify(path, {"input_ids": np.array([[999_999]])})
    assert "\n" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(KvvizError, match="pip install onnxruntime"):
        kvviz.verify(path)


LLAMA = MODELS / "o01_optimum_llama" / "model.onnx"
WRONG: Any = [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kvviz.verify(LLAMA, WRONG), "inputs must be a mapping of input names to arrays"),
        (lambda: kvviz.verify(LLAMA, {"nope": 1}), "the graph has no input named 'nope'"),
        (lambda: kvviz.verify(LLAMA, {"input_ids": np.zeros((1, 1, 1, 1), np.int64)}), "input_ids"),
        (lambda: kvviz.verify(LLAMA, options=3), "options must be onnxruntime.SessionOptions, not int"),
        (lambda: kvviz.verify(kvviz.shapes.preset("llama-3-8b")), "from its shapes and has no weights; use kvviz.dry"),
        (lambda: kvviz.verify_decode(MODELS / "o09_dynamo_qwen2_nocache" / "model.onnx", [5]), "no cache to follow"),
        (lambda: kvviz.verify_decode(LLAMA, [5], 0), "max_new_tokens=0"),
        (lambda: kvviz.verify_decode(LLAMA, [5], binding="both"), "must be one of none, io, shared, not 'both'"),
        (lambda: kvviz.verify_decode(LLAMA, [5], 2, WRONG), "inputs must be a mapping"),
        (lambda: kvviz.verify_decode(LLAMA, [5, 999999]), "outside of the model's vocabulary"),
        (lambda: kvviz.dry(LLAMA, prompt_tokens=WRONG), "prompt_tokens is how many tokens the prompt has"),
        (lambda: kvviz.Comparison.of(WRONG), "takes traces by the names of their rows"),
        (lambda: kvviz.Comparison.of({"a": WRONG}), "takes traces by the names of their rows"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(KvvizError, match=message):
        call()


MODEL = MODELS / "o04_dynamo_static_llama_op18" / "model.onnx"


@pytest.fixture(scope="module")
def found() -> Verification:
    return kvviz.verify(MODEL)


def test_each_step_has_the_time_at_which_the_session_ran_it(found: Verification) -> None:
    times = found.trace.log.declared.times
    assert sorted(times) == [step for row in sorted(found.rows, key=lambda row: row.step) for step in row.steps]
    for row in found.rows:
        assert sum(times[step].end - times[step].start for step in row.steps) == pytest.approx(row.microseconds)
    # They ran one after the other, in the order of the steps.
    ends = [(times[step].start, times[step].end) for step in sorted(times)]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert {timing.lane for timing in times.values()} == {"onnxruntime"}


def test_the_page_has_the_figures_and_the_debugger(found: Verification, tmp_path: Path) -> None:
    page = found.to_html(tmp_path / "verified.html")
    assert page == (tmp_path / "verified.html").read_text(encoding="utf-8")
    assert f"{found.agree:,} of {found.total:,}</span>" in page and 'id="kvviz-payload"' in page
    assert "http" not in found._repr_html_().replace("http://www.w3.org", "")
    bars = re.findall(r'<rect x="[\d.]+" width="([\d.]+)"', page)
    assert len(bars) == len([row for row in found.rows if row.microseconds])
    assert sum(map(float, bars)) == pytest.approx(1000, abs=len(bars) * 0.005)


def test_where_they_differ_is_said_in_the_report_and_marked_in_the_trace() -> None:
    # given a record that says of one node that it allocated what it did not
    graph = kvviz.load(MODEL)
    feeds = kvviz.inputs(graph)
    record = observe(graph, partial(run_session, feeds))
    allocated = dict(record.allocated or {})
    name = max(allocated, key=allocated.__getitem__)
    # when
    wrong = compared(record._replace(allocated={**allocated, name: allocated[name] + 256}), feeds)
    # then
    (row,) = wrong.differences
    (mark,) = wrong.trace.log.declared.marks
    assert mark.kind == "differs" and mark.after == row.step and mark.value == row.node
    assert row.cause in wrong._repr_html_() and f"{wrong.total - 1:,} of {wrong.total:,}</span>" in wrong._repr_html_()


def test_work_is_counted_from_shapes(found: Verification) -> None:
    weights = found.trace.graph.weights
    assert isinstance(weights, Weights)
    product = next(row for row in found.rows if row.op == "MatMul" and found.trace.steps[row.step].inputs[1] in weights)
    step = found.trace.steps[product.step]
    left = next(out for s in found.trace.steps for out in s.outs if out.name == step.inputs[0])
    # Its bytes stay in a file of the session that is gone by now, where they are many.
    weight = weights.tensors[step.inputs[1]]
    (made,) = step.outs
    assert left.shape is not None and made.shape is not None
    assert product.flops == 2 * made.nbytes // 4 * left.shape[-1]
    assert product.moved == left.nbytes + weight.nbytes + made.nbytes
    assert bound_by(10**12, 10, 1e6) == "compute" and bound_by(10, 10**11, 1e6) == "memory"
    assert bound_by(10, 10, 1e6) == "overhead"


def test_the_report_on_the_prediction_ranks_what_was_missed_by_the_time_of_the_session() -> None:
    found = kvviz.verify(MODELS / "storyteller" / "attention_23" / "model.onnx")
    report, times = kvviz.explain(found.trace), found.trace.log.declared.times
    took = [sum(times[s].end - times[s].start for one in group.entries for s in one.steps) for group in report.groups]
    assert len(took) > 1 and took == sorted(took, reverse=True) and took[0] > 0
    assert [group.time for group in report.groups] == pytest.approx(took)
    assert list(report.missed) == [one for group in report.groups for one in group.entries]
    assert ", by time" in str(report) and ", by time" in report._repr_html_()
    # Without times the order is that of bytes.
    plain = kvviz.explain(kvviz.dry(MODELS / "storyteller" / "attention_23" / "model.onnx", policy="onnxruntime"))
    spent = [group.bytes for group in plain.groups]
    assert spent == sorted(spent, reverse=True) and "by time" not in str(plain)
