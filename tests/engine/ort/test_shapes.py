"""What is known of shapes before a run, against what onnxruntime itself inferred."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import kvviz
from kvviz.graph.loading.tensors import Weights
from kvviz.graph.model import Value
from kvviz.graph.shape_inference import infer
from kvviz.runtimes.ort.known_types import RULES
from kvviz.runtimes.ort.rewiring import without_duplicates
from tests.engine.graphs import proto_of
from tests.engine.ort.models import FILES, IDS, random_model, with_names
from tests.engine.ort.oracle import inferred
from tests.graph.build import graph, model, node

Dims = tuple
MS = "com.microsoft"


def mismatches(proto: onnx.ModelProto) -> tuple[int, list[tuple]]:
    """How many values were compared, and those of which onnxruntime knows something else."""
    main = kvviz.load(proto)
    mine, theirs = infer(main, RULES), inferred(proto, main)
    compared, wrong = 0, []
    for part, values in theirs.items():
        gone = without_duplicates(part, part.nodes, [v.name for v in part.outputs], mine[part]).stands_for
        # A Cast that is dropped leaves its value behind, with the type of what is read instead.
        for name in [n for n in values if (n in mine[part] or n in part.producers) and n not in gone]:
            compared += 1
            have = mine[part].get(name, Value(name))
            code = 0 if have.dtype is None else helper.np_dtype_to_tensor_dtype(have.dtype)
            if (code, have.shape) != values[name]:
                wrong.append((name, code, have.shape, values[name]))
    return compared, wrong


def known(proto: onnx.ModelProto, name: str) -> Dims | None:
    """Shape of a value, after all of the model was compared with onnxruntime."""
    assert mismatches(proto)[1] == []
    main = kvviz.load(proto)
    return infer(main, RULES)[main][name].shape


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_have_the_shapes_that_onnxruntime_infers(path: Path) -> None:
    compared, wrong = mismatches(with_names(onnx.load(path)))
    assert compared > 50 and wrong == []


def test_random_models_have_the_shapes_that_onnxruntime_infers() -> None:
    compared = 0
    for seed in range(6000, 6200):
        count, wrong = mismatches(random_model(seed)[0])
        assert wrong == [], seed
        compared += count
    assert compared > 3000


@pytest.mark.parametrize(("said", "stays"), [
    ("a 3", ("a", 3)), ("other 3", ("other", 3)), ("? 3", ("a", 3)), ("7 3", (7, 3)), ("a 4", ("a", None)),
    ("a 3 1", None), ("", ("a", 3)),
])  # fmt: skip
def test_a_declared_name_stays_a_number_wins_and_a_conflict_is_unknown(said: str, stays: Dims | None) -> None:
    proto = proto_of("g (float[a, 3] x) => (float y) { w = Neg(x) y = Neg(w) }", 18)
    proto.graph.output[0].ClearField("type")
    if said:
        dims: list[Any] = [int(d) if d.isdigit() else None if d == "?" else d for d in said.split()]
        proto.graph.value_info.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, dims))
    assert known(proto, "w") == known(proto, "y") == stays


# What computes a shape ``d`` from the shape ``s`` of an input of 5 by 6 by 4, and what is known of it.
SHAPES_OF = [
    ("d = Identity(s)", (None, None, None)),
    ("c = Cast <to = 6> (s) d = Cast <to = 7> (c)", (5, 6, 4)),
    ("d = Concat <axis = 0> (s, s)", (5, 6, 4, 5, 6, 4)),
    ("d = Concat <axis = 0> (s, two1)", (None,) * 4),
    ("d = Gather(s, zero1)", (5,)),
    ("d = Gather(s, both)", (None, None)),
    ("g = Gather(s, two) d = Unsqueeze(g, zero1)", (4,)),
    ("g = Gather(s, two) m = Mul(g, g) d = Unsqueeze(m, zero1)", (16,)),
    ("g = Gather(s, two) m = Mul(g, two) d = Unsqueeze(m, zero1)", (None,)),
    ("g = Gather(s, one) h = Gather(s, two) m = Div(g, h) d = Unsqueeze(m, zero1)", (1,)),
    ("g = Gather(s, one1) h = Gather(s, two1) d = Div(g, h)", (1,)),
    ("d = Add(s, s)", (10, 12, 8)),
    ("d = Add(s, one1)", (None, None, None)),
    ("g = Gather(s, two1) d = Sub(s, g)", (1, 2, 0)),
    ("d = Slice(s, zero1, two1)", (None, None)),
    ("u = Unsqueeze(s, one1) d = Squeeze(u, one1)", (5, 6, 4)),
    ("u = Unsqueeze(s, one1) d = Squeeze(u)", (5, 6, 4)),
    ("a = Shape(one1) u = Unsqueeze(s, a) d = Squeeze(u, one1)", (None, None, None)),
    ("n = Size(s) d = Unsqueeze(n, zero1)", (120,)),
]


@pytest.mark.parametrize(("text", "shape"), SHAPES_OF)
def test_values_follow_from_whole_shapes_as_far_as_onnxruntime_follows_them(text: str, shape: Dims) -> None:
    weights = "int64[1] zero1 = {0}, int64[1] one1 = {1}, int64[1] two1 = {2}, int64 one = {1}, int64 two = {2}"
    whole = f"""g (float[5, 6, 4] x) => (float[] y) <{weights}, int64[2] both = {{0, 1}}> {{
        s = Shape(x) {text} y = ConstantOfShape(d) }}"""
    assert known(proto_of(whole, 18), "y") == shape
    # A shape with one dimension that is unknown tells nothing.
    if text == "d = Gather(s, zero1)":
        assert known(proto_of(whole.replace("[5, 6, 4]", "[5, b, 4]"), 18), "y") == (None,)


SHAPES = ("b s 16", "2 3 16", "b ? 16", "? ? ?", "")
ONES = np.ones(16, np.float32)
CONV = {"known": "float 4 1 3", "named": "float 4 1 k", "none": "float"}


def compared_in(nodes: list, inputs: list[str], **weights: Any) -> int:
    """How many values of a model all of whose values are outputs were compared; none of them may differ."""
    outputs = [name for n in nodes for name in n.output if name]
    compared, wrong = mismatches(model(nodes, inputs, outputs, opset=21, domains=[MS], **weights))
    assert wrong == []
    return compared


@pytest.mark.parametrize("dims", SHAPES, ids=lambda d: d or "no shape")
def test_onnxruntimes_own_operators_have_the_shapes_that_it_infers(dims: str) -> None:
    x, u8 = f"x float {dims}".strip(), f"u uint8 {dims or '? ? ?'}"
    weights: dict[str, Any] = {"w": ONES, "one": np.float32(1), "zero": np.int8(0), "zu": np.uint8(0)}
    weights |= {"B": np.zeros((5, 1, 8), np.uint8), "S": np.ones((5, 1), np.float32), "p": np.array([0])}
    weights |= {"c": np.ones((8, 4), np.float32), "W8": np.ones((16, 7), np.int8), "bs": np.array([1], np.float32)}
    nodes = [
        *(node(op, "x", op, domain=MS) for op in ("FastGelu", "Gelu", "QuickGelu")),
        node("BiasGelu", "x w", "bias", domain=MS),
        node("SkipSimplifiedLayerNormalization", "x x w", "a - a2 a3", domain=MS),
        node("SkipLayerNormalization", "x x w", "b b1 b2 b3", domain=MS),
        node("SimplifiedLayerNormalization", "x w", "e e1"),
        node("Trilu", "x", "f", domain=MS),
        node("QuantizeLinear", "x one zero", "g", domain=MS),
        node("DequantizeLinear", "u one zu", "h", domain=MS),
        node("MatMulNBits", "x B S", "i", domain=MS, K=16, N=5, block_size=16, bits=4),
        node("RotaryEmbedding", "x p c c", "j", domain=MS, num_heads=2),
        node("DynamicQuantizeMatMul", "x W8 bs", "k", domain=MS),
        node("MatMulIntegerToFloat", "u W8 one one", "l", domain=MS),
    ]
    for q, kv in ((4, 2), (2, 4)):
        heads: dict[str, Any] = {"q_num_heads": q, "kv_num_heads": kv, "update_rule": "linear", "domain": MS}
        nodes.append(node("LinearAttention", "x x x", f"m{q} state{q}", **heads))
    ways: tuple[dict[str, Any], ...] = ({"dilation": 2}, {"channels_last": 1})
    for i, (weight, told) in enumerate(product(CONV, ways)):
        nodes.append(node("CausalConvWithState", f"x {weight}", f"n{i} o{i}", domain=MS, **told))
    assert compared_in(nodes, [x, u8, *(f"{name} {dims}" for name, dims in CONV.items())], **weights) > len(nodes)


@pytest.mark.parametrize(("left", "right", "attributes"), [
    ("b s 16", "b 16 n", {}), ("b s 16", "16 4", {}), ("2 3 16", "2 16 4", {}), ("", "16 4", {}), ("b s 16", "", {}),
    ("b 16 s", "b 16 n", {"transA": 1}), ("b s 16", "b n 16", {"transB": 1}), ("2 3 16", "2 4 16", {"transB": 1}),
    ("h b s 16", "h b 16 n", {"transBatchA": 1}), ("2 3 5 16", "16 2 3 4", {"transBatchB": 1}),
    ("h b s t", "h b t n", {"transA": 1, "transBatchA": 1}), ("? ? ?", "? ? ?", {"transA": 1, "transB": 1}),
])  # fmt: skip
def test_a_fused_product_has_the_shape_that_onnxruntime_infers(left: str, right: str, attributes: dict) -> None:
    inputs = [f"x float {left}".strip(), f"z float {right}".strip()]
    nodes = [node("FusedMatMul", "x z", "y", domain=MS, **attributes)]
    if not any("Batch" in name for name in attributes):
        nodes.append(node("TransposeMatMul", "x z", "w", domain=MS, **attributes))
    assert compared_in(nodes, inputs)


PASTS = ("b 2 p 8", "2 2 5 8", "2 2 0 8", "", "absent")


@pytest.mark.parametrize(("query", "past", "told"), list(product(("b s", "2 1", "? ?", ""), PASTS, (None, 7))))
def test_attention_with_caches_has_the_shapes_that_onnxruntime_infers(query: str, past: str, told: int | None) -> None:
    def typed(name: str, width: int) -> str:
        return f"{name} float {query} {width}" if query else f"{name} float"

    weights: dict[str, Any] = {} if told is None else {"t": np.array(told, np.int32)}
    inputs = [typed("q", 64), typed("k", 16), typed("v", 16), typed("wide", 64), typed("packed", 96), "l int32 b"]
    inputs += [] if told is not None else ["t int32 -"]
    pasts = "- -"
    if past != "absent":
        pasts = "pk pv"
        inputs += [f"{name} float {past}".strip() for name in ("pk", "pv")]
    heads: dict[str, Any] = {"num_heads": 8, "domain": MS}
    nodes = [
        node("GroupQueryAttention", f"q k v {pasts} l t", "y0 k0 v0", kv_num_heads=2, **heads),
        node("GroupQueryAttention", f"packed - - {pasts} l t", "y1 k1 v1", kv_num_heads=2, **heads),
    ]
    if past != "absent":
        nodes.append(node("MultiHeadAttention", f"q wide wide - - - {pasts}", "y2 k2 v2", **heads))
    assert compared_in(nodes, inputs, **weights)


@pytest.mark.parametrize("dims", ["b s", "2 3", "? ?"])
@pytest.mark.parametrize("past", ["p", "5", "?", "absent"])
def test_every_form_of_attention_has_the_shapes_that_onnxruntime_infers(dims: str, past: str) -> None:
    batch = dims.split()[0]
    heads: dict[str, Any] = {"domain": MS, "num_heads": 8}
    window: dict[str, Any] = {"local_window_size": 4, "sliding_window_cache": 1, "kv_num_heads": 8}
    packed: dict[str, Any] = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1, "domain": MS}
    nodes = [
        node("MultiHeadAttention", "q k v" if past == "absent" else "q k v - - - pk pv", "y0 k0 v0", **heads),
        node("MultiHeadAttention", "q crossk crossv", "y1", **heads),
        node("MultiHeadAttention", "q pair", "y2", **heads),
        node("MultiHeadAttention", "whole", "y3", **heads),
        node("Attention", "q W bias", "y4", **heads),
        node("Attention", "q W bias - past", "y5 k5", unidirectional=1, **heads),
        node("Attention", "q W", "y6", **heads),
        node("GatherBlockQuantized", "rows i scales", "a", bits=4, **packed),
        node("GatherBlockQuantized", "rows i scales2", "b", bits=8, **packed),
    ]
    inputs = [*(f"{name} float {dims} 64" for name in "qkv"), "W float 64 192", f"i int64 {dims}"]
    inputs += [f"cross{name} float {batch} 8 t 8" for name in "kv"]
    inputs += [f"pair float {batch} t 8 2 8", f"whole float {dims} 8 3 8", f"past float 2 {batch} 8 5 8"]
    if past != "absent":
        nodes.append(node("GroupQueryAttention", "q k v pk pv l t", "y7 present.key present.value", **heads, **window))
        inputs += [*(f"{name} float {batch} 8 {past} 8" for name in ("pk", "pv")), f"l int32 {batch}", "t int32 1"]
    weights: dict[str, Any] = {"bias": np.ones(192, np.float32), "rows": np.zeros((10, 32), np.uint8)}
    weights |= {"scales": np.ones((10, 4), np.float32), "scales2": np.ones((10, 2), np.float32)}
    assert compared_in(nodes, inputs, **weights) >= 15


@pytest.mark.parametrize("opset", [11, 13, 16, 18, 21, 24])
@pytest.mark.parametrize("said", ["a 4", "a ?", ""])
def test_bodies_are_told_and_tell_what_onnxruntime_tells_them(opset: int, said: str) -> None:
    typed = f"float {said}".strip() if said else ""
    then = graph([node("Neg", "r", "t"), node("Relu", "t", "t2")], [], [f"t2 {typed}".strip()])
    other = graph([node("Exp", "r", "e"), node("Relu", "e", "e2")], [], ["e2"])
    body = graph(
        [node("Identity", "c", "c2"), node("Add", "s r", "s2"), node("Neg", "s2", "out")],
        ["i int64 -", "c bool -", f"s float {said}".strip()],
        ["c2 bool -", "s2", "out"],
    )
    rows = graph([node("Add", "h p", "h2"), node("Neg", "h2", "o")], ["h float", "p float"], ["h2", "o"])
    nodes = [
        node("Neg", "x", "r"),
        node("If", "q", "i0", then_branch=then, else_branch=other),
        node("Loop", "m q x", "l0 l1", body=body),
        node("Scan", "h0 x", "s0 s1", body=rows, num_scan_inputs=1),
        node("Scan", "h1 x", "s3 s4", body=rows, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1]),
        *(node("Relu", name, f"{name}_end") for name in ("i0", "l0", "l1", "s0", "s1", "s3", "s4")),
    ]
    inputs = ["x float a 4", "q bool -", "m int64 -", "h0 float 4", "h1 float a"]
    outputs = [n.output[0] for n in nodes if n.op_type == "Relu"]
    compared, wrong = mismatches(model(nodes, inputs, outputs, opset=opset))
    assert compared > 25 and wrong == []


def test_the_batches_of_the_oldest_scan_are_told_apart() -> None:
    rows = graph([node("Add", "h p", "h2"), node("Neg", "h2", "o")], ["h float", "p float"], ["h2 float", "o float"])
    nodes = [node("Scan", "- h0 x", "s0 s1", body=rows, num_scan_inputs=1), node("Relu", "s1", "y")]
    proto = model(nodes, ["x float b a 4", "h0 float b 4"], ["s0", "y"], opset=8)
    proto.ir_version = 7
    assert known(proto, "y") == ("b", "a", 4)


def test_large_weights_are_not_read() -> None:
    weights: dict[str, Any] = {"big": np.ones((64, 64), np.float32), "shape": np.array([8, -1])}
    nodes = [node("MatMul", "x big", "m"), node("Reshape", "m shape", "y")]
    main = kvviz.load(model(nodes, ["x float 2 64"], ["y"], **weights))
    assert infer(main, RULES)[main]["y"].shape == (8, 16)
    assert isinstance(main.weights, Weights) and set(main.weights._arrays) == {"shape"}
