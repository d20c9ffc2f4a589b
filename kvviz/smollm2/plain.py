"""The form ``concat``: elementary operators only, and a cache that grows by Concat, as exporters write at opset 18."""

from __future__ import annotations

import numpy as np

from kvviz.smollm2.builder import Builder
from kvviz.smollm2.checkpoint import Shape
from kvviz.smollm2.forms import Form, Shared, caches, mask_bias, rotary_tables


def _prepare(build: Builder, shape: Shape) -> Shared:
    """Cosines and sines of the tokens' positions, ``(batch, 1, new, head size)``, and the mask."""
    build.scope = "/model/rotary_emb"
    angles = []
    for name, table in zip(("cos", "sin"), rotary_tables(shape)):
        # Both halves of a head turn by the same angles.
        whole = build.weight(f"model.rotary_emb.{name}", np.concatenate((table, table), axis=1))
        rows = build.op("Gather", whole, "position_ids", name=name)
        angles.append(build.op("Unsqueeze", rows, build.ints(1), name=name))
    return (*angles, mask_bias(build))


def _norm(build: Builder, x: str, rest: str, weight: str, epsilon: float) -> tuple[str, str]:
    square = build.op("Pow", x, build.constant("two", np.float32(2)))
    mean = build.op("ReduceMean", square, build.ints(-1))
    root = build.op("Sqrt", build.op("Add", mean, build.constant("epsilon", np.float32(epsilon))))
    return build.op("Mul", build.op("Div", x, root), weight), x


def _attend(build: Builder, shape: Shape, layer: int, projected: tuple[str, ...], shared: Shared) -> str:
    cos, sin, bias = shared
    q, k, v = (
        _to_heads(build, x, heads, shape.head, name)
        for x, heads, name in zip(projected, (shape.heads, shape.kv_heads, shape.kv_heads), "qkv")
    )
    q, k = _rotated(build, q, cos, sin, "q_rope"), _rotated(build, k, cos, sin, "k_rope")
    pasts, presents = caches(layer)
    for past, new, present, name in zip(pasts, (k, v), presents, ("k_cache", "v_cache")):
        build.op("Concat", past, new, name=name, output=present, axis=2)
    scale = build.constant("scale", np.float32(shape.head**-0.5))
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


CONCAT = Form("concat", 18, 8, ("input_ids", "attention_mask", "position_ids"), _prepare, _norm, _attend)
