"""Shapes of onnxruntime's own operators, as its schemas infer them (version 1.31).

A rule gets the node, the types of its inputs and a reader of constants, and gives one type an output. Where
onnxruntime's own inference says less than could be known (the present of MultiHeadAttention), so do these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from kvviz.graph.model import Dim, Node
from kvviz.graph.shape_merge import dims_of, tensor_of

Types = Sequence[Any]
Constant = Callable[[int], np.ndarray | None]
Dims = list[Dim]


def _like_first(node: Node, types: Types, constant: Constant) -> list[Any]:
    return [types[0]]


def _layer_norm(node: Node, types: Types, constant: Constant) -> list[Any]:
    """Y, and the deviation of each row: of the first axis only, although the operator normalises over all from there
    on."""
    dims = _dims(types, 0)
    if dims:
        dims[int(node.attributes.get("axis", -1)) % len(dims)] = 1
    return [types[0], _typed(onnx.TensorProto.FLOAT, dims)]


def _skip_layer_norm(node: Node, types: Types, constant: Constant) -> list[Any]:
    dims = _dims(types, 0)
    row = _typed(onnx.TensorProto.FLOAT, [*dims[:-1], 1] if dims else dims)
    return [types[0], row, row, types[0]]


def _matmul(node: Node, types: Types, constant: Constant) -> list[Any]:
    left, right = _dims(types, 0), _dims(types, 1)
    code = _elem(types, 2) if node.op_type == "MatMulIntegerToFloat" else _elem(types, 0)
    if left is None or right is None:
        return [_typed(code, None)]
    left = _transposed(left, bool(node.attributes.get("transA")), bool(node.attributes.get("transBatchA")))
    right = _transposed(right, bool(node.attributes.get("transB")), bool(node.attributes.get("transBatchB")))
    product = _as_onnx("MatMul", Node("", "MatMul", "", ("a", "b"), ("y",), 0), [_typed(1, left), _typed(1, right)])
    return [_typed(code, _dims(product, 0))]


def _matmul_nbits(node: Node, types: Types, constant: Constant) -> list[Any]:
    dims = _dims(types, 0)
    return [_typed(_elem(types, 0), None if dims is None else [*dims[:-1], int(node.attributes["N"])])]


def _gather_block(node: Node, types: Types, constant: Constant) -> list[Any]:
    """Rows of a quantized table; a byte of a uint8 table holds several elements."""
    data, indices = _dims(types, 0), _dims(types, 1)
    code = _elem(types, 2)
    if data is None or indices is None:
        return [_typed(code, None)]
    axis = int(node.attributes.get("gather_axis", 0)) % len(data)
    rows = [*data[:axis], *indices, *data[axis + 1 :]]
    packed = 8 // int(node.attributes.get("bits", 4)) if _elem(types, 0) == onnx.TensorProto.UINT8 else 1
    if rows and packed > 1:
        rows[-1] = _times(rows[-1], packed)
    return [_typed(code, rows)]


def _attention(node: Node, types: Types, constant: Constant) -> list[Any]:
    """Packed self-attention: the width follows from the bias, the present from lengths that are numbers."""
    rows, bias, past = _dims(types, 0), _dims(types, 2), _dims(types, 4)
    code = _elem(types, 0)
    if rows is None or len(rows) != 3 or not bias:
        return [_typed(code, None), _typed(code, None)]
    sizes = node.attributes.get("qkv_hidden_sizes")
    output = _typed(code, [rows[0], rows[1], int(sizes[2]) if sizes else _part(bias[0], 3)])
    present = None
    if past is not None and not node.attributes.get("past_present_share_buffer"):
        present = _longer(past, 3, rows[1])
    return [output, _typed(code, present)]


def _multi_head_attention(node: Node, types: Types, constant: Constant) -> list[Any]:
    query, key, value, past = (_dims(types, i) for i in (0, 1, 2, 6))
    code = _elem(types, 0)
    output: Dims | None = None
    length: Dim = None
    if query is not None and len(query) == 5:
        output = [query[0], query[1], _times(query[2], query[4])]
    elif query is not None and value is not None and len(value) in (3, 4):
        output = [query[0], query[1], value[2] if len(value) == 3 else _times(value[1], value[3])]
        length = value[1] if len(value) == 3 else length
    elif query is not None and key is not None and len(key) == 5:
        output = query
    shared = past is not None and _dims(types, 8) is not None
    present = None if past is None or shared else _longer(past, 2, length)
    return [_typed(code, output), *[_typed(code, present)] * 2, _typed(code, None)]


def _group_query_attention(node: Node, types: Types, constant: Constant) -> list[Any]:
    query, value, past = (_dims(types, i) for i in (0, 2, 3))
    code, cache = _elem(types, 0), _elem(types, 3) or _elem(types, 0)
    heads, kv_heads = int(node.attributes.get("num_heads", 0)), int(node.attributes.get("kv_num_heads", 0))
    packed = heads + 2 * kv_heads
    total = constant(6)
    stated = int(total.reshape(-1)[0]) if total is not None and total.size else 0
    output: Dims | None = None
    present: Dims | None = None
    scores: Dims | None = None
    if query is not None and len(query) == 3:
        output = query if value is not None else [*query[:2], _times(_part(query[2], packed), heads)]
        if isinstance(query[2], int):
            length: Dim = stated if stated > 0 else value[1] if value is not None and len(value) == 3 else query[1]
            length = length if isinstance(length, int) else query[1]
            present = [query[0], kv_heads, length, query[2] // (heads if value is not None else packed)]
    if past is not None and len(past) == 4:
        present = [*past]
        if not node.attributes.get("sliding_window_cache"):
            present[2] = _present_length(node, past[2], stated)
    if query is not None and stated > 0 and isinstance(query[0], int) and isinstance(query[1], int):
        scores = [query[0], heads, query[1], stated]
    return [_typed(code, output), *[_typed(cache, present)] * 2, _typed(code, scores)]


def _present_length(node: Node, past: Dim, stated: int) -> Dim:
    if stated > 0 and isinstance(past, int):
        return max(stated, past)
    return None if past == 0 and len(node.inputs) > 6 else past


def _linear_attention(node: Node, types: Types, constant: Constant) -> list[Any]:
    query, value = _dims(types, 0), _dims(types, 2)
    heads, kv_heads = int(node.attributes.get("q_num_heads", 0)), int(node.attributes.get("kv_num_heads", 0))
    output: Dims | None = None
    state: Dims | None = None
    if query is not None and value is not None and len(query) == len(value) == 3 and heads > 0 and kv_heads > 0:
        width = _part(value[2], kv_heads)
        output = [*query[:2], _times(width, max(heads, kv_heads))]
        state = [query[0], kv_heads, _part(query[2], heads), width]
    return [_typed(_elem(types, 0), output), _typed(_elem(types, 3) or _elem(types, 0), state)]


def _causal_conv(node: Node, types: Types, constant: Constant) -> list[Any]:
    x, weight = _dims(types, 0), _dims(types, 1)
    state: Dims | None = None
    if x is not None and weight is not None and len(x) > 2 and len(weight) == 3:
        columns = (weight[2] - 1) * int(node.attributes.get("dilation", 1)) if isinstance(weight[2], int) else None
        state = [x[0], columns, *x[2:]] if node.attributes.get("channels_last") else [*x[:2], columns]
    return [types[0], _typed(_elem(types, 0), state)]


def _as_onnx(op_type: str, node: Node, types: Types, constant: Constant | None = None, version: int = 13) -> list[Any]:
    """An operator with the inference of an ONNX one: with a fused activation, in the blocked layout, of any opset."""
    if not types or types[0] is None:
        return [None]
    schema = onnx.defs.get_schema(op_type, version)
    known = {name: value for name, value in node.attributes.items() if name in schema.attributes}
    names = [f"i{at}" if types[at] is not None else "" for at in range(min(len(types), len(schema.inputs)))]
    given = {name: proto for name, proto in zip(names, types) if name}
    made = [output.name for output in schema.outputs]
    try:
        found = shape_inference.infer_node_outputs(schema, helper.make_node(op_type, names, made, **known), given)
    except shape_inference.InferenceError:
        return [None]
    return [found.get(name) for name in made]


def reorder_input(node: Node, types: Types, constant: Constant, block: int = 0) -> list[Any]:
    """Channels are filled up to whole blocks of ``block`` (8 or 16 by the machine; 0: unknown, so that only dimensions
    equal for both are known)."""
    dims = _dims(types, 0)
    if dims is not None and len(dims) > 1:
        channels = dims.pop(-1 if node.attributes.get("channels_last") else 1)
        filled = -(-channels // (block or 16)) * (block or 16) if isinstance(channels, int) else None
        dims.insert(1, filled if block or filled == channels else None)
    return [_typed(_elem(types, 0), dims)]


def _reorder_output(node: Node, types: Types, constant: Constant) -> list[Any]:
    dims = _dims(types, 0)
    if dims is not None and len(dims) > 1:
        channels = int(node.attributes["channels"])
        last = node.attributes.get("channels_last")
        dims = [dims[0], *dims[2:], channels] if last else [dims[0], channels, *dims[2:]]
    return [_typed(_elem(types, 0), dims)]


def _upsample(node: Node, types: Types, constant: Constant) -> list[Any]:
    dims, scales = _dims(types, 0), node.attributes.get("scales")
    scaled = None if dims is None or scales is None else [_times(dim, int(n)) for dim, n in zip(dims, scales)]
    return [_typed(_elem(types, 0), scaled)]


_RULES: dict[str, dict[Callable[..., list[Any]], str]] = {
    "": {
        partial(_as_onnx, "LayerNormalization", version=17): "LayerNormalization",
        _layer_norm: "SimplifiedLayerNormalization",
    },
    "com.microsoft": {
        _like_first: "BiasGelu FastGelu Gelu QuickGelu RotaryEmbedding Trilu",
        _matmul: "DynamicQuantizeMatMul FusedMatMul MatMulIntegerToFloat TransposeMatMul",
        _skip_layer_norm: "SkipLayerNormalization SkipSimplifiedLayerNormalization",
        partial(_as_onnx, "Conv"): "FusedConv",
        partial(_as_onnx, "Gemm"): "FusedGemm",
        partial(_as_onnx, "DequantizeLinear", version=21): "DequantizeLinear",
        partial(_as_onnx, "QuantizeLinear", version=21): "QuantizeLinear",
        _attention: "Attention",
        _causal_conv: "CausalConvWithState",
        _gather_block: "GatherBlockQuantized",
        _group_query_attention: "GroupQueryAttention",
        _linear_attention: "LinearAttention",
        _matmul_nbits: "MatMulNBits",
        _multi_head_attention: "MultiHeadAttention",
    },
    "com.microsoft.nchwc": {
        **{
            partial(_as_onnx, name): name
            for name in ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
        },
        reorder_input: "ReorderInput",
        _reorder_output: "ReorderOutput",
        _upsample: "Upsample",
    },
}
RULES = {
    (domain, name): rule for domain, rules in _RULES.items() for rule, names in rules.items() for name in names.split()
}


def _dims(types: Types, position: int) -> Dims | None:
    return dims_of(types[position]) if position < len(types) else None


def _elem(types: Types, position: int) -> int:
    proto = types[position] if position < len(types) else None
    tensor = None if proto is None else tensor_of(proto)
    return 0 if tensor is None else int(tensor.elem_type)


def _typed(code: int, dims: Dims | None) -> Any:
    return helper.make_tensor_type_proto(code, dims)


def _part(dim: Dim, count: int) -> Dim:
    return dim // count if isinstance(dim, int) else None


def _times(*dims: Dim) -> Dim:
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return math.prod(numbers) if len(numbers) == len(dims) else None


def _longer(past: Dims, axis: int, more: Dim) -> Dims | None:
    """The past with more rows; unknown unless both lengths are numbers."""
    rows = past[axis] if axis < len(past) else None
    if not isinstance(rows, int) or not isinstance(more, int) or more <= 0:
        return None
    return [*past[:axis], rows + more, *past[axis + 1 :]]


def _transposed(dims: Dims, swap: bool, batch: bool) -> Dims:
    """The operand as the product reads it: with ``batch`` its first dimension becomes the second last."""
    if batch and len(dims) > 2:
        dims = [*dims[1:-1], dims[0], dims[-1]]
    return [*dims[:-2], dims[-1], dims[-2]] if swap and len(dims) > 1 else dims
