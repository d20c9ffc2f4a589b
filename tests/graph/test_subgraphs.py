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
from tests.graph.build import graph, model, node, run_in_onnxruntime
from tests.work import at_most


def branching(then: onnx.GraphProto, other: onnx.GraphProto | None = None, *before: onnx.NodeProto) -> Graph:
    """A loaded graph that ends with one If on ``flag``, with inputs x, y and z."""
    choose = node("If", "flag", "out", then_branch=then, else_branch=other or then)
    return load(model([*before, choose], ["flag bool -", "x float 1", "y float 1", "z float 1"], ["out float 1"]))


def test_a_branch_captures_outer_values_once_in_order_of_first_use() -> None:
    then = graph([node("Add", "y x", "a"), node("Add", "a x", "b"), node("Add", "b y", "c")], [], ["c"])
    other = graph([node("Add", "z x", "a")], [], ["a"])
    loaded = branching(then, other)
    assert set(loaded.nodes[0].captures) == {"x", "y", "z"}
    assert loaded.nodes[0].subgraphs["then_branch"].captures == ("y", "x")
    assert loaded.nodes[0].subgraphs["else_branch"].captures == ("z", "x")
    assert loaded.consumers["y"] == (loaded.nodes[0],)
    # A branch whose output is an outer value captures it.
    assert branching(graph([], [], ["y"])).nodes[0].captures == ("y",)


def test_inner_names_hide_outer_ones() -> None:
    # given a branch with its own x (made by a node), y (a weight) and the loop body's own input z
    body = graph(
        [node("Add", "z x", "s"), node("Identity", "c", "c2")], ["i int64 -", "c bool -", "z float 1"], ["c2", "s"]
    )
    loop = node("Loop", "- flag y", "t", body=body)
    then = graph([node("Neg", "w", "x"), loop, node("Add", "t y", "u")], [], ["u"], y=np.ones(1, np.float32))
    # when the graph is read, where x, y, z and w exist outside as well
    outer = branching(then, graph([], [], ["z"]), node("Abs", "z", "w")).nodes[-1]
    # then only what the branch does not define itself comes from outside
    assert outer.subgraphs["then_branch"].captures == ("w", "flag")
    inner_loop = next(n for n in outer.subgraphs["then_branch"].nodes if n.op_type == "Loop")
    assert inner_loop.captures == ("x",)


def test_captures_reach_through_all_levels() -> None:
    innermost = graph([node("Add", "x local", "a")], [], ["a"])
    choose = node("If", "flag", "b", then_branch=innermost, else_branch=innermost)
    middle = graph([node("Neg", "y", "local"), choose], [], ["b"])
    outer = branching(middle).nodes[0]
    assert outer.captures == ("y", "flag", "x")
    inner = outer.subgraphs["then_branch"].nodes[-1]
    assert inner.captures == ("x", "local")


def test_a_node_waits_for_what_its_subgraphs_capture() -> None:
    # given an If that stands before the node whose value its branch reads
    then = graph([node("Neg", "late", "a")], [], ["a"])
    nodes = [node("If", "flag", "out", then_branch=then, else_branch=then), node("Abs", "x", "late")]
    loaded = load(model(nodes, ["flag bool -", "x float 1"], ["out float 1"]))
    assert [n.op_type for n in loaded.nodes] == ["Abs", "If"]
    assert [n.index for n in loaded.nodes] == [1, 0]


def test_a_constant_in_a_branch_is_that_branchs_weight() -> None:
    then = graph([node("Constant", outputs="two", value_float=2.0), node("Mul", "x two", "a")], [], ["a"])
    loaded = branching(then, graph([], [], ["x"]))
    branch = loaded.nodes[0].subgraphs["then_branch"]
    assert branch.weights["two"] == 2
    assert "two" not in loaded.weights
    assert branch.nodes[0].index == 1


def function(
    name: str,
    inputs: str,
    outputs: str,
    nodes: list[onnx.NodeProto],
    attributes: str = "",
    defaults: dict | None = None,
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = [helper.make_attribute(key, value) for key, value in (defaults or {}).items()]
    return helper.make_function(
        "local", name, inputs.split(), outputs.split(), nodes, imports, attributes.split(), attribute_protos=made
    )


def with_reference(
    made: onnx.NodeProto, attribute: str, refers_to: str, kind: int = onnx.AttributeProto.FLOAT
) -> onnx.NodeProto:
    """The node with an attribute that takes the value of the function's attribute."""
    made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=refers_to, type=kind))
    return made


def scaled_leaky() -> onnx.FunctionProto:
    """LeakyRelu with the slope as an attribute without default, times a constant with default 2."""
    scale = with_reference(node("Constant", outputs="k"), "value_float", "scale")
    leaky = with_reference(node("LeakyRelu", "x", "r"), "alpha", "slope")
    return function("Scaled", "x", "y", [scale, leaky, node("Mul", "r k", "y")], "slope", {"scale": 2.0})


def test_each_call_of_a_function_sees_its_own_attributes() -> None:
    # given two calls with different attributes, and one without any
    calls = [
        node("Scaled", "x", "a", domain="local", slope=0.5),
        node("Scaled", "a", "b", domain="local", slope=0.25, scale=3.0),
        node("Scaled", "b", "c", domain="local"),
    ]
    loaded = load(model(calls, ["x float 3"], ["c float 3"], functions=[scaled_leaky()], domains=["local"]))
    # then each has a body with the given values, the function's defaults, or no attribute at all
    bodies = [n.function for n in loaded.nodes]
    assert [b.nodes[0].attributes for b in bodies if b] == [{"alpha": 0.5}, {"alpha": 0.25}, {}]
    assert [float(b.weights["k"]) for b in bodies if b] == [2, 3, 2]
    assert [v.name for b in bodies if b for v in (*b.inputs, *b.outputs)] == ["x", "y"] * 3


def test_a_resolved_body_computes_what_the_call_computes() -> None:
    # given a function that calls a function with its own attribute, inside a branch
    inner_call = with_reference(node("Scaled", "x", "s", domain="local"), "slope", "steep")
    then = graph([inner_call], [], ["s"])
    choose = node("If", "flag", "y", then_branch=then, else_branch=graph([node("Neg", "x", "n")], [], ["n"]))
    outer = function("Outer", "flag x", "y", [choose], "steep")
    call = node("Outer", "flag x", "y", domain="local", steep=0.125)
    proto = model(
        [call], ["flag bool -", "x float 3"], ["y float 3"], functions=[scaled_leaky(), outer], domains=["local"]
    )
    # when the bodies are spelled out from what was read
    body = load(proto).nodes[0].function
    assert body is not None
    branch = body.nodes[0].subgraphs["then_branch"]
    leaf = branch.nodes[0].function
    assert leaf is not None
    spelled = [node_proto(leaf, n) for n in leaf.nodes]
    flat = model(spelled, ["x float 3"], ["y float 3"], k=np.asarray(leaf.weights["k"]))
    # then they give onnxruntime's result for the call
    x = np.array([-4, 0, 5], np.float32)
    (expected,) = run_in_onnxruntime(proto, flag=np.array(True), x=x)
    np.testing.assert_array_equal(expected, [-1, 0, 10])
    np.testing.assert_array_equal(run_in_onnxruntime(flat, x=x)[0], expected)


def test_inputs_that_a_call_leaves_out_are_absent_inside() -> None:
    clip = function("Limit", "x low high", "y", [node("Clip", "x low high", "y")])
    call = node("Limit", "x - high", "y", domain="local")
    short = node("Limit", "y", "z", domain="local")
    inputs = ["x float 3", "high float -"]
    loaded = load(model([call, short], inputs, ["z float 3"], functions=[clip], domains=["local"]))
    first, second = (n.function for n in loaded.nodes)
    assert first is not None
    assert second is not None
    assert first.nodes[0].inputs == ("x", "", "high")
    assert second.nodes[0].inputs == ("x", "", "")
    assert [v.name for v in second.inputs] == ["x", "low", "high"]


def test_a_function_has_its_own_operator_versions_and_number_of_inputs() -> None:
    body = function("F", "x", "y", [node("Relu", "x", "y")])
    body.opset_import[0].version = 14
    values: dict = {"inputs": ["x float 1"], "outputs": ["y float 1"], "functions": [body], "domains": ["local"]}
    loaded = load(model([node("F", "x", "y", domain="local")], **values))
    assert loaded.nodes[0].function is not None
    assert (loaded.nodes[0].function.nodes[0].opset, loaded.opsets[""]) == (14, 18)
    with pytest.raises(GraphError, match=r"'call' .*2 inputs.* has 1"):
        load(model([node("F", "x x", "y", domain="local", name="call")], **values))


def calling(levels: int, times: int) -> onnx.ModelProto:
    """A model that calls F0, where each function calls the next one so often, and the last one is a Relu."""
    functions = [function(f"F{levels - 1}", "x", "y", [node("Relu", "x", "y")])]
    for level in range(levels - 2, -1, -1):
        names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
        calls = [node(f"F{level + 1}", a, b, domain="local") for a, b in itertools.pairwise(names)]
        functions.append(function(f"F{level}", "x", "y", calls))
    call = node("F0", "x", "y", domain="local")
    return model([call], ["x float 1"], ["y float 1"], functions=functions, domains=["local"])


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
    proto = calling(20, 2)
    ring = [function(a, "x", "y", [node(b, "x", "y", domain="local")]) for a, b in ("AB", "BC", "CA")]
    proto.functions.extend(ring)
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
            with_reference(call, "table", "table", onnx.AttributeProto.TENSOR)
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
        attribute = choose.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        inner = attribute.g
        inner.output.add(name="y")
    inner.node.add(op_type="Neg", input=["x"], output=["y"])
    if levels == 30:
        loaded = load(proto)
        assert set(loaded.nodes[0].captures) == {"flag", "x"}
        assert sum(n.op_type == "Neg" for _, n in loaded.walk()) == 1
        return
    with pytest.raises(LoadError, match="deep"):
        load(proto)
