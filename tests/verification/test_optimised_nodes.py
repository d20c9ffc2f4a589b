"""What onnxruntime's optimiser made of a model, and what follows from it for memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.graph.model import Graph
from kvviz.verification.matching import FOLDED, FUSED, INLINED, INSERTED, KEPT
from kvviz.verification.verified import Verification
from tests.engine.graphs import graph_of, proto_of
from tests.graph.build import MODELS

LEVELS = onnxruntime.GraphOptimizationLevel
SIZE = 4096 * 64 * 4
HEAD = "g (float[N, 64] u, int64[N, 64] i"
ZEROS = "s = Shape (x)  z = ConstantOfShape (s)"
# Scattering into zeros that are a weight, or are computed for a length that is fixed or open; the result is an output,
# or is read once more.
WEIGHT = HEAD + ") => (float[4096, 64] h) { h = ScatterElements <axis = 0> (z, i, u) }"
OUTPUT = HEAD + f", float[4096, 64] x) => (float[4096, 64] h) {{ {ZEROS}  h = ScatterElements <axis = 0> (z, i, u) }}"
READ = OUTPUT.replace("(float[4096, 64] h)", "(float[4096, 64] y)").replace(" }", "  y = Relu (h) }")
# The inferred length of the zeros has no name, unless the model declares one.
OPEN = READ.replace("4096", "R")
NAMED = OPEN.replace("{", "<float[R, 64] z> {")


def scatter(text: str, level: Any) -> Verification:
    """One of the graphs, run at one level of optimisation."""
    model = proto_of(text, 18)
    if text == WEIGHT:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((4096, 64), np.float32), "z"))
    feeds: dict[str, Any] = {"u": np.ones((2, 64), np.float32), "i": np.zeros((2, 64), np.int64)}
    feeds.update({value.name: np.zeros((4096, 64), np.float32) for value in model.graph.input[2:]})
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return kvviz.verify(kvviz.load(model), feeds, options)


@pytest.mark.parametrize("level", [LEVELS.ORT_ENABLE_ALL, LEVELS.ORT_DISABLE_ALL], ids=["optimised", "as written"])
@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (WEIGHT, (True, True)),
        (OUTPUT, (True, True)),
        (READ, (True, False)),
        (OPEN, (True, True)),
        (NAMED, (False, False)),
    ],
    ids=["weight", "output", "read", "open", "named"],
)
def test_a_scatter_copies_what_is_or_becomes_a_weight_or_an_output(
    text: str, copies: tuple[bool, bool], level: Any
) -> None:
    found = scatter(text, level)
    assert found.differences == ()
    (row,) = [row for row in found.rows if row.op == "ScatterElements"]
    assert (row.observed == row.predicted == SIZE) == copies[level == LEVELS.ORT_DISABLE_ALL]
    assert row.observed in (0, SIZE) and row.microseconds > 0


def test_a_folded_value_that_is_scattered_into_is_a_sentence_with_its_step() -> None:
    found = scatter(READ, LEVELS.ORT_ENABLE_ALL)
    folded = next(change for change in found.changes if change.step >= 0)
    step = next(step for step in found.trace.steps if step.op_type == "ScatterElements")
    words = f"constant folding made 'z' a weight, and ScatterElements may not write over a weight (step {step.index})"
    assert (folded.ops, folded.step, folded.words) == (("ConstantOfShape",), step.index, words)
    assert words in str(found) and words in {change["words"] for change in found.to_dict()["changes"]}
    assert all(change.kind == KEPT for change in scatter(READ, LEVELS.ORT_DISABLE_ALL).changes)


def in_graphs(graph: Graph) -> Iterator[str]:
    """Names of the nodes of a graph and of its bodies, but not those inside of functions."""
    for node in graph.nodes:
        yield node.name
        for body in node.subgraphs.values():
            yield from in_graphs(body)


@pytest.mark.parametrize("name", ["concat", "attention_23", "static_scatter_nd", "merged_if"])
def test_each_node_of_both_graphs_is_in_one_change(name: str) -> None:
    path = MODELS / "storyteller" / name / "model.onnx"
    found, graph = kvviz.verify(path), kvviz.load(path)
    assert {node for change in found.changes for node in change.nodes} == {*in_graphs(graph)}
    written = [change.into for change in found.changes if change.kind in (KEPT, FUSED, INSERTED)]
    assert sorted(written) == sorted(in_graphs(found.trace.graph))
    bodies = {f"{node.name}[{body}]" for node in graph.nodes for body in node.subgraphs}
    assert {change.frame for change in found.changes} == {"", *bodies}


BODY = "k = Mul (two, three)  e = Mul (a, k)  s = Sigmoid (e)  i = Identity (s)  "
BODIES = {
    "If": f"""y = If (p) <then_branch = t () => (float[N, 64] b) {{ {BODY.replace("(a,", "(x,")} b = Mul (e, i) }},
        else_branch = o () => (float[N, 64] m) {{ m = Neg (x) }}>""",
    "Loop": f"""y = Loop (n, p, x) <body = l (int64 j, bool c, float[N, 64] a) => (bool d, float[N, 64] b) {{
        d = Identity (c) {BODY} b = Mul (e, i) }}>""",
    "Scan": f"""y, r = Scan <num_scan_inputs = 1,
        body = l (float[N, 64] a, float[64] q) => (float[N, 64] b, float[64] o) {{
        {BODY} b = Mul (e, i)  o = Neg (q) }}> (x, x)""",
}


@pytest.mark.parametrize("op", BODIES)
def test_what_was_fused_and_folded_in_a_body_is_a_change_of_that_body(op: str) -> None:
    head = "g (float[N, 64] x, bool p, int64 n) => (float[N, 64] z) <float[1] two = {2}, float[1] three = {3}>"
    feeds = {"x": np.ones((4, 64), np.float32), "p": np.array(True), "n": np.array(2)}
    found = kvviz.verify(graph_of(f"{head} {{ {BODIES[op]}  z = Neg (y) }}", 17), feeds)
    inside = [change for change in found.changes if change.frame.startswith("y[")]
    (fused,) = [change for change in inside if change.into_op == "com.microsoft.QuickGelu"]
    assert set(fused.ops) >= {"Sigmoid", "Mul"} and fused.kind == FUSED
    (folded,) = [change for change in inside if change.kind == FOLDED]
    assert folded.nodes == ("k",) and "constant folding made 'k' a weight" in folded.words
    assert "Sigmoid, Identity, Mul → com.microsoft.QuickGelu" in str(found)


def test_the_branch_of_a_constant_condition_is_inlined() -> None:
    text = """g (float[N, 64] x) => (float[N, 64] z) <bool yes = {1}> {
        w = If (yes) <then_branch = t () => (float[N, 64] a) { e = Exp (x)  a = Relu (e) },
                      else_branch = o () => (float[N, 64] b) { b = Neg (x) }>
        z = Neg (w) }"""
    found = kvviz.verify(graph_of(text, 17), {"x": np.ones((4, 64), np.float32)})
    assert [(change.kind, change.ops, change.into_op) for change in found.changes] == [
        (INLINED, (), "Exp"),
        (INLINED, ("If",), "Relu"),
        (KEPT, ("Neg",), "Neg"),
    ]


def test_a_norm_is_one_node_and_a_blocked_convolution_stands_for_its_activation_and_its_sum() -> None:
    found = kvviz.verify(MODELS / "storyteller" / "concat" / "model.onnx")
    norms = [change for change in found.changes if change.into_op == "SimplifiedLayerNormalization"]
    assert len(norms) == 7 and all({"Pow", "ReduceMean", "Sqrt"} <= set(change.ops) for change in norms)
    # Added, read twice, and in the blocked layout: 24 channels are whole blocks of 8, and not of 16.
    text = """g (float[N, 24, 32, 32] x) => (float[N, 24, 16, 16] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w, b)  c = Relu (a)
        d = Conv <pads = [1, 1, 1, 1]> (c, w)  f = Add (d, c)  e = Relu (f)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e) }"""
    model = proto_of(text, 17)
    for name, shape in (("w", (24, 24, 3, 3)), ("b", (24,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    found = kvviz.verify(kvviz.load(model), {"x": np.ones((1, 24, 32, 32), np.float32)})
    # they need no kernel here
    assert found.differences == () and found.total >= 5
    blocked = "com.microsoft.nchwc."
    assert {row.op for row in found.rows} >= {f"{blocked}Conv", f"{blocked}ReorderInput"}
    assert [change.ops for change in found.changes if change.into_op == f"{blocked}Conv"] == [
        ("Conv", "Relu"),
        ("Conv", "Add", "Relu"),
    ]
    inserted = {change.into_op for change in found.changes if change.kind == INSERTED}
    assert inserted <= {f"{blocked}ReorderInput", f"{blocked}ReorderOutput"}
