"""The forms ``attention`` (operators of ONNX 23) and ``gqa`` (GroupQueryAttention of onnxruntime): one node attends."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from kvviz.smollm2.builder import Builder
from kvviz.smollm2.checkpoint import Shape
from kvviz.smollm2.forms import Form, Shared, caches, mask_bias, rotary_tables


def _tables(build: Builder, shape: Shape) -> tuple[str, str]:
    cos, sin = rotary_tables(shape)
    return build.weight("model.rotary_emb.cos", cos), build.weight("model.rotary_emb.sin", sin)


def _norm(build: Builder, x: str, rest: str, weight: str, epsilon: float) -> tuple[str, str]:
    return build.op("RMSNormalization", x, weight, axis=-1, epsilon=epsilon), x


def _prepare_attention(build: Builder, shape: Shape) -> Shared:
    """Cosines and sines of the tokens' positions, ``(batch, new, head size / 2)``, and the mask."""
    tables = _tables(build, shape)
    build.scope = "/model/rotary_emb"
    # Looked up once here, not in each of the operators that turn by them.
    rows = (build.op("Gather", table, "position_ids", name=name) for table, name in zip(tables, ("cos", "sin")))
    return (*rows, mask_bias(build))


def _attend(build: Builder, shape: Shape, layer: int, projected: tuple[str, ...], shared: Shared) -> str:
    cos, sin, bias = shared
    q, k = (
        build.op("RotaryEmbedding", x, cos, sin, name=name, num_heads=heads)
        for x, heads, name in zip(projected, (shape.heads, shape.kv_heads), ("q_rope", "k_rope"))
    )
    pasts, presents = caches(layer)
    return build.node(
        "Attention",
        (q, k, projected[2], bias, *pasts),
        ("", *presents),
        q_num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
    )[0]


def _norm_gqa(build: Builder, x: str, rest: str, weight: str, epsilon: float) -> tuple[str, str]:
    if not rest:
        return _norm(build, x, rest, weight, epsilon)
    outputs = ("", None, None, "")
    normed, _, _, total = build.node(
        "SkipSimplifiedLayerNormalization", (x, rest, weight), outputs, domain="com.microsoft", epsilon=epsilon
    )
    return normed, total


def _prepare_gqa(build: Builder, shape: Shape) -> Shared:
    """Tables, the number of tokens in each row less one, and the largest of these numbers with the padding."""
    tables = _tables(build, shape)
    build.scope = "/model/mask"
    count = build.op("ReduceSum", "attention_mask", build.ints(1), keepdims=0)
    last = build.op("Sub", count, build.constant("one", np.int64(1)))
    total = build.op("Squeeze", build.op("Shape", "attention_mask", start=1, end=2))
    return (*tables, *(build.op("Cast", x, to=TensorProto.INT32) for x in (last, total)))


def _attend_gqa(build: Builder, shape: Shape, layer: int, projected: tuple[str, ...], shared: Shared) -> str:
    cos, sin, last, total = shared
    pasts, presents = caches(layer)
    return build.node(
        "GroupQueryAttention",
        (*projected, "", "", *pasts, last, total, cos, sin),
        ("", *presents),
        domain="com.microsoft",
        num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
        do_rotary=1,
    )[0]


_INPUTS = ("input_ids", "attention_mask", "position_ids")
ATTENTION = Form("attention", 23, 11, _INPUTS, _prepare_attention, _norm, _attend)
# The operator counts positions itself. It wants padding on the right, so prompts of a batch have to be of one length.
GQA = Form(
    "gqa",
    23,
    11,
    _INPUTS[:2],
    _prepare_gqa,
    _norm_gqa,
    _attend_gqa,
    microsoft=True,
    packed=True,
    adds_in_norm=True,
)
