"""Subgraphs and model-local functions: what they take from outside, and which attributes they see."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kvviz.errors import GraphError, LimitError, LoadError
from kvviz.graph import Graph, load
from kvviz.graph.loading import from_onnx
from kvviz.graph.loading.from_onnx import node_proto
from tests.engine.graphs import graph_of, proto_of
from tests.graph.build import model, run_in_onnxruntime
from tests.work import at_most


def branching(then: str, other: str, before: str = "") -> Graph:
    """A loaded graph that ends with one If on ``flag``, with inputs x, y and z."""
    return graph_of(f"""g (bool flag, float[1] x, float[1] y, float[1] z) => (float[1] out) {{
        {before} out = If (flag) <then_branch = t () => {then}, else_branch = e () => {other}> }}""")


def test_a_branch_captures_outer_values_once_in_order_of_first_use() -> None:
    loaded = branching("(float c) { a = Add (y, x) b = Add (a, x) c = Add (b, y) }", "(float a) { a = Add (z, x) }")
    choose = loaded.nodes[0]
    assert set(choose.captures) == {"x", "y", "z"}
    assert [choose.subgraphs[name].captures for name in ("then_branch", "else_branch")] == [("y", "x"), ("z", "x")]
    assert loaded.consumers["y"] == (choose,)
    # A branch whose output is an outer value captures it.
    assert branching("(float y) { }", "(float y) { }").nodes[0].captures == ("y",)


def test_inner_names_hide_outer_ones() -> None:
    # given a branch with its own x (made by a node), y (a weight) and the loop body's own input z
    then = """(float u) <float[1] y = {1}> { x = Neg (w) u = Add (v, y) v = Loop (, flag, y)
        <body = b (int64 i, bool c, float z) => (bool c2, float s) { s = Add (z, x) c2 = Identity (c) }> }"""
    # when the graph is read, where x, y, z and w exist outside as well
    outer = branching(then, "(float z) { }", "w = Abs (z)").nodes[-1]
    # then only what the branch does not define itself comes from outside
    assert outer.subgraphs["then_branch"].captures == ("w", "flag")
    inner_loop = next(n for n in outer.subgraphs["then_branch"].nodes if n.op_type == "Loop")
    assert inner_loop.captures == ("x",)


def test_captures_reach_through_all_levels() -> None:
    inside = "(float a) { a = Add (x, local) }"
    middle = f"""(float b) {{ local = Neg (y)
        b = If (flag) <then_branch = t2 () => {inside}, else_branch = e2 () => {inside}> }}"""
    outer = branching(middle, "(float z) { }").nodes[0]
    branch = outer.subgraphs["then_branch"]
    assert (branch.captures, branch.nodes[-1].captures) == (("y", "flag", "x"), ("x", "local"))


def test_a_node_waits_for_what_its_subgraphs_capture() -> None:
    # given an If that stands before the node whose value its branch reads
    loaded = graph_of("""g (bool flag, float[1] x) => (float[1] y) {
        y = If (flag) <then_branch = t () => (float a) { a = Neg (late) }, else_branch = e () => (float x) { }>
        late = Abs (x) }""")
    assert [(n.op_type, n.index) for n in loaded.nodes] == [("Abs", 1), ("If", 0)]


def test_a_constant_in_a_branch_is_that_branchs_weight() -> None:
    loaded = branching("(float a) { two = Constant <value_float = 2.0> () a = Mul (x, two) }", "(float x) { }")
    branch = loaded.nodes[0].subgraphs["then_branch"]
    assert branch.weights["two"] == 2 and "two" not in loaded.weights
    assert branch.nodes[0].index == 1


# LeakyRelu with the slope as an attribute without default, times a constant with default 2.
HEAD = '<domain: "local", opset_import: ["" : 18, "local" : 1]>'
SCALED = f"""{HEAD} Scaled <slope, scale: float = 2.0> (x) => (y) {{
    k = Constant <value_float: float = @scale> () r = LeakyRelu <alpha: float = @slope> (x) y = Mul (r, k) }}"""


def test_each_call_of_a_function_sees_its_own_attributes() -> None:
    # given two calls with different attributes, and one without any
    loaded = graph_of(f"""g (float[3] x) => (float[3] c) {{ a = local.Scaled <slope = 0.5> (x)
        b = local.Scaled <slope = 0.25, scale = 3.0> (a) c = local.Scaled (b) }} {SCALED}""")
    # then each has a body with the given values, the function's defaults, or no attribute at all
    bodies = [n.function for n in loaded.nodes]
    assert [b.nodes[0].attributes for b in bodies if b] == [{"alpha": 0.5}, {"alpha": 0.25}, {}]
    assert [float(b.weights["k"]) for b in bodies if b] == [2, 3, 2]
    assert [v.name for b in bodies if b for v in (*b.inputs, *b.outputs)] == ["x", "y"] * 3


def test_a_resolved_body_computes_what_the_call_computes() -> None:
    # given a function that calls a function with its own attribute, inside a branch
    proto = proto_of(f"""g (bool flag, float[3] x) => (float[3] y) {{ y = local.Outer <steep = 0.125> (flag, x) }}
        {HEAD} Outer <steep> (flag, x) => (y) {{ y = If (flag) <
            then_branch = t () => (float[3] s) {{ s = local.Scaled <slope: float = @steep> (x) }},
            else_branch = e () => (float[3] n) {{ n = Neg (x) }}> }} {SCALED}""")
    # when the bodies are spelled out from what was read
    body = load(proto).nodes[0].function
    assert body is not None
    leaf = body.nodes[0].subgraphs["then_branch"].nodes[0].function
    assert leaf is not None
    spelled = [node_proto(leaf, n) for n in leaf.nodes]
    flat = model(spelled, ["x float 3"], ["y float 3"], k=np.asarray(leaf.weights["k"]))
    # then they give onnxruntime's result for the call
    x = np.array([-4, 0, 5], np.float32)
    (expected,) = run_in_onnxruntime(proto, flag=np.array(True), x=x)
    np.testing.assert_array_equal(expected, [-1, 0, 10])
    np.testing.assert_array_equal(run_in_onnxruntime(flat, x=x)[0], expected)


def test_inputs_that_a_call_leaves_out_are_absent_inside() -> None:
    loaded = graph_of(f"""g (float[3] x, float high) => (float[3] z) {{
        y = local.Limit (x, , high) z = local.Limit (y) }}
        {HEAD} Limit (x, low, high) => (y) {{ y = Clip (x, low, high) }}""")
    bodies = [n.function for n in loaded.nodes]
    assert [b.nodes[0].inputs for b in bodies if b] == [("x", "", "high"), ("x", "", "")]
    assert [[v.name for v in b.inputs] for b in bodies if b] == [["x", "low", "high"]] * 2


def test_a_function_has_its_own_operator_versions_and_number_of_inputs() -> None:
    text = "g (float[1] x) => (float[1] y) { [call] y = local.F (ARGS) }" + f"{HEAD} F (x) => (y) {{ y = Relu (x) }}"
    loaded = graph_of(text.replace("ARGS", "x"))
    assert loaded.nodes[0].function is not None
    assert (loaded.nodes[0].function.nodes[0].opset, loaded.opsets[""]) == (18, 21)
    with pytest.raises(GraphError, match=r"'call' .*2 inputs.* has 1"):
        graph_of(text.replace("ARGS", "x, x"))


def calling(levels: int, times: int) -> onnx.ModelProto:
    """A model that calls F0, where each function calls the next one so often, and the last one is a Relu."""
    functions = [f"{HEAD} F{levels - 1} (x) => (y) {{ y = Relu (x) }}"]
    for level in range(levels - 2, -1, -1):
        names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
        calls = " ".join(f"{b} = local.F{level + 1} ({a})" for a, b in itertools.pairwise(names))
        functions.append(f"{HEAD} F{level} (x) => (y) {{ {calls} }}")
    return proto_of("g (float[1] x) => (float[1] y) { y = local.F0 (x) }" + " ".join(functions))


@pytest.mark.parametrize(
    ("levels", "times", "words"),
    [
        (26, 2, r"100,663,295 nodes .* 1,000,000 nodes .*'F6' alone has 1,572,862"),
        (17, 2, r"131,071 calls .* 100,000 calls .*'F0' alone has 131,070"),
        (60, 100, r"about 10\^118 nodes"),
        (2_000, 2, "more than 64 deep"),
    ],
)
def test_functions_that_multiply_are_counted_and_refused_before_anything_is_built(
    levels: int, times: int, words: str
) -> None:
    data = calling(levels, times).SerializeToString()
    # some lines for each call that is written down, and none for each that would be made
    with at_most(1_000 * levels * times), pytest.raises((LoadError, LimitError), match=words):
        load(data)


def test_a_circle_behind_many_calls_is_found_first_and_told_in_the_order_of_the_calls() -> None:
    ring = " ".join(f"{HEAD} {a} (x) => (y) {{ y = local.{b} (x) }}" for a, b in ("AB", "BC", "CA"))
    proto = calling(20, 2)
    proto.functions.extend(proto_of(f"g () => () {{ }} {ring}").functions)
    proto.functions[0].node[0].domain, proto.functions[0].node[0].op_type = "local", "A"
    with pytest.raises(GraphError, match="A → B → C → A"):
        load(proto)
    # but functions that nothing calls are nobody's fault
    proto.functions[0].node[0].op_type = "Nothing"
    with pytest.raises(LimitError, match="nodes"):
        load(proto)


def test_constants_of_functions_are_not_copied_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a megabyte that is handed down as an attribute, into every one of 1,023 bodies
    monkeypatch.setattr(from_onnx, "MAX_COPIED", 20_000_000)
    table = helper.make_attribute("table", numpy_helper.from_array(np.zeros(250_000, np.float32)))
    proto = calling(10, 2)
    for body in proto.functions:
        body.attribute.append("table")
        for call in body.node:
            call.attribute.add(name="table", ref_attr_name="table", type=onnx.AttributeProto.TENSOR)
    proto.graph.node[0].attribute.append(table)
    with pytest.raises(LimitError, match=r"20,000,000 bytes .*'F"):
        load(proto)


@pytest.mark.parametrize("levels", [30, 100, 1000])
def test_thirty_nested_branches_are_read_and_a_hundred_refused_with_a_sentence(levels: int) -> None:
    # given branches within branches, deeper than any file can hold but not a proto in memory
    proto = model([], ["flag bool -", "x float 1"], ["y float 1"])
    inner = proto.graph
    for _ in range(levels):
        choose = inner.node.add(op_type="If", input=["flag"], output=["y"])
        inner = choose.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        inner.output.add(name="y")
    inner.node.add(op_type="Neg", input=["x"], output=["y"])
    if levels == 30:
        loaded = load(proto)
        assert set(loaded.nodes[0].captures) == {"flag", "x"}
        assert sum(n.op_type == "Neg" for _, n in loaded.walk()) == 1
        return
    with pytest.raises(LoadError, match="deep"):
        load(proto)
