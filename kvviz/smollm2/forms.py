"""The forms of the decoder: which operators keep the cache and attend to it.

``concat`` has elementary operators only, and a cache that grows by Concat, as exporters write at opset 18; in
``attention`` (operators of ONNX 23) and ``gqa`` (GroupQueryAttention of onnxruntime) one node attends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto

from kvviz.smollm2.builder import Builder
from kvviz.smollm2.checkpoint import Shape

Shared = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write the decoder.

    ``prepare(build, shape)`` adds what all layers share, and gives its values. ``norm(build, x, rest, weight,
    epsilon)`` adds an RMS norm of ``x``, or of ``x + rest`` where ``rest`` is not empty, and gives the normed values
    and what they are the norm of. ``attend(build, shape, layer, projected, shared)`` adds rotary embedding, cache and
    attention to queries, keys and values of shape ``(batch, new, heads·size)``, and gives the shape of the queries
    back.
    """

    name: str
    opset: int
    ir_version: int
    inputs: tuple[str, ...]  # those that are no caches
    prepare: Callable[[Builder, Shape], Shared]
    norm: Callable[[Builder, str, str, str, float], tuple[str, str]]
    attend: Callable[[Builder, Shape, int, tuple[str, ...], Shared], str]
    microsoft: bool = False  # it uses operators of onnxruntime
    packed: bool = False  # queries, keys and values are projected by one product and stay side by side
    adds_in_norm: bool = False  # residual sums are left to the norm after them


def caches(layer: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Names of a layer's pasts and presents."""
    kinds = ("key", "value")
    past, present = (tuple(f"{name}.{layer}.{kind}" for kind in kinds) for name in ("past_key_values", "present"))
    return (past[0], past[1]), (present[0], present[1])


def mask_bias(build: Builder) -> str:
    """Add what hides keys: 0 where a query may look and the lowest float32 elsewhere, ``(batch, 1, new, total)``. A
    query sees the tokens up to its own that the mask does not call padding. Not minus infinity: the rows of padding see
    nothing, and would be NaN."""
    build.scope = "/model/mask"
    total = build.op("Squeeze", build.op("Shape", "attention_mask", start=1, end=2))
    past = build.op("Shape", caches(0)[0][0], start=2, end=3)
    zero, one = build.constant("zero", np.int64(0)), build.constant("one", np.int64(1))
    columns = build.op("Range", zero, total, one)
    rows = build.op("Slice", columns, past, build.ints(2**62), build.ints(0))
    causal = build.op("LessOrEqual", columns, build.op("Unsqueeze", rows, build.ints(1)))
    real = build.op("Unsqueeze", build.op("Cast", "attention_mask", to=9), build.ints(1, 2))
    seen = build.op("And", real, causal)
    return build.op(
        "Where",
        seen,
        build.number("shown", 0),
        build.number("hidden", lowest(build.dtype)),
    )


def lowest(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).min)


def rotary_tables(shape: Shape, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of all positions, ``(positions, head size / 2)``, computed in float64."""
    speeds = shape.theta ** (-np.arange(0, shape.head, 2) / shape.head)
    angles = np.arange(shape.positions)[:, None] * speeds
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _prepare_concat(build: Builder, shape: Shape) -> Shared:
    """Cosines and sines of the tokens' positions, ``(batch, 1, new, head size)``, and the mask."""
    build.scope = "/model/rotary_emb"
    angles = []
    for name, table in zip(("cos", "sin"), rotary_tables(shape, build.dtype)):
        # Both halves of a head turn by the same angles.
        whole = build.weight(f"model.rotary_emb.{name}", np.concatenate((table, table), axis=1))
        rows = build.op("Gather", whole, "position_ids", name=name)
        angles.append(build.op("Unsqueeze", rows, build.ints(1), name=name))
    return (*angles, mask_bias(build))


def _norm_concat(build: Builder, x: str, rest: str, weight: str, epsilon: float) -> tuple[str, str]:
    square = build.op("Pow", x, build.number("two", 2))
    mean = build.op("ReduceMean", square, build.ints(-1))
    root = build.op("Sqrt", build.op("Add", mean, build.number("epsilon", epsilon)))
    return build.op("Mul", build.op("Div", x, root), weight), x


def _attend_concat(build: Builder, shape: Shape, layer: int, projected: tuple[str, ...], shared: Shared) -> str:
    cos, sin, bias = shared
    q, k, v = (
        _to_heads(build, x, heads, shape.head, name)
        for x, heads, name in zip(projected, (shape.heads, shape.kv_heads, shape.kv_heads), "qkv")
    )
    q, k = _rotated(build, q, cos, sin, "q_rope"), _rotated(build, k, cos, sin, "k_rope")
    pasts, presents = caches(layer)
    for past, new, present, name in zip(pasts, (k, v), presents, ("k_cache", "v_cache")):
        build.op("Concat", past, new, name=name, output=present, axis=2)
    scale = build.number("scale", shape.head**-0.5)
    # Query heads that share a key head are rows of one product, so keys and values are never repeated in memory.
    q = build.op("Reshape", build.op("Mul", q, scale), build.ints(0, shape.kv_heads, -1, shape.head))
    scores = build.op("MatMul", q, build.op("Transpose", presents[0], perm=[0, 1, 3, 2]))
    scores = build.op("Reshape", scores, build.ints(0, shape.heads, -1, 0))
    weights = build.op("Softmax", build.op("Add", scores, bias), axis=-1)
    mixed = build.op("MatMul", build.op("Reshape", weights, build.ints(0, shape.kv_heads, -1, 0)), presents[1])
    mixed = build.op("Reshape", mixed, build.ints(0, shape.heads, -1, shape.head))
    mixed = build.op("Transpose", mixed, perm=[0, 2, 1, 3])
    return build.op("Reshape", mixed, build.ints(0, 0, shape.heads * shape.head))


def _to_heads(build: Builder, x: str, heads: int, size: int, name: str) -> str:
    split = build.op("Reshape", x, build.ints(0, 0, heads, size), name=name)
    return build.op("Transpose", split, name=name, perm=[0, 2, 1, 3])


def _rotated(build: Builder, x: str, cos: str, sin: str, name: str) -> str:
    """Each element turned together with the one half a head away."""
    first, second = build.node("Split", (x,), ("", ""), name, axis=-1, num_outputs=2)
    turned = build.op("Concat", build.op("Neg", second, name=name), first, name=name, axis=-1)
    return build.op("Add", build.op("Mul", x, cos, name=name), build.op("Mul", turned, sin, name=name), name=name)


CONCAT = Form(
    "concat", 18, 8, ("input_ids", "attention_mask", "position_ids"), _prepare_concat, _norm_concat, _attend_concat
)


def _tables(build: Builder, shape: Shape) -> tuple[str, str]:
    cos, sin = rotary_tables(shape, build.dtype)
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
