"""Dimensions of a cache that the model leaves open: heads, and numbers for a head and a row.

They follow from the graph where its shapes can be inferred, else from the width of the projection that makes the new
rows, else from the ``genai_config.json`` beside the model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kvviz.graph.cache_ops import CacheOp, cache_ops
from kvviz.graph.cache_pairs import CachePair
from kvviz.graph.model import Graph, Node, Value
from kvviz.runtimes.ort.known_types import known

_CONFIG = "genai_config.json"
_CONFIG_LIMIT = 1 << 20
# Attention operators that take queries, keys and values as inputs 0 to 2; all three packed in the first where the
# others are absent (com.microsoft of onnxruntime 1.31, Attention of ONNX 23).
_PROJECTED = frozenset({"GroupQueryAttention", "MultiHeadAttention", "SparseAttention", "PagedAttention"})
# How many operators may lie between an attention and the projection that feeds it (bias, norm, rotation …).
_FARTHEST = 12


def cache_dimension(graph: Graph, pair: CachePair, axis: int) -> int | None:
    """Length of a dimension of a cache that is neither batch nor rows; None where nothing tells."""
    present = known(graph).types.get(pair.output)
    if present is not None and present.shape is not None and axis < len(present.shape):
        length = present.shape[axis]
        if isinstance(length, int):
            return length
    rank = len(next(value.shape for value in graph.inputs if value.name == pair.input) or ())
    for inner, node, op in _writers(graph, pair):
        length = _from_attention(inner, node, op, axis, rank)
        if length:
            return length
    return _configured(graph, axis, rank)


def _writers(graph: Graph, pair: CachePair) -> Iterator[tuple[Graph, Node, CacheOp]]:
    for inner, node in graph.walk():
        if node.name in pair.writer:
            ops = cache_ops(node)
            yield from ((inner, node, op) for op in ops if node.inputs[op.past] == pair.input or len(ops) == 1)


def _from_attention(graph: Graph, node: Node, op: CacheOp, axis: int, rank: int) -> int:
    """What an attention operator says of its cache; 0 for nothing."""
    given = node.attributes
    heads = int(given.get("num_heads") or given.get("q_num_heads") or 0)
    kv_heads = int(given.get("kv_num_heads") or heads)
    packed = not (len(node.inputs) > 1 and node.inputs[1])
    projected = node.op_type in _PROJECTED or (node.op_type, node.domain) == ("Attention", "")
    # The key comes first among the caches, and among the projections behind the queries.
    name = node.inputs[0 if packed else min(op.present, len(node.inputs) - 1)]
    shape = _shape(graph, name) if projected else ()
    if rank == 4 and len(shape) == 4 and axis in (1, 3):
        # Divided by head already: (batch, heads, rows, size).
        return shape[axis] if isinstance(shape[axis], int) else 0
    if rank == 4 and axis == 1:
        return kv_heads
    if axis != rank - 1 or not heads:
        return 0
    if len(shape) == 5:
        return shape[-1] if isinstance(shape[-1], int) else 0
    if projected:
        return _width(graph, name) // (heads + 2 * kv_heads if packed else kv_heads)
    if (node.op_type, node.domain) != ("Attention", "com.microsoft"):
        return 0
    sizes: Any = given.get("qkv_hidden_sizes") or ()
    if len(sizes) == 3:
        return int(sizes[1]) // heads
    weights = _shape(graph, node.inputs[1])
    return weights[-1] // 3 // heads if weights and isinstance(weights[-1], int) else 0


def _width(graph: Graph, name: str) -> int:
    """Length of the last axis of a value, by its shape or, where an operator on the way is unknown, by the weights of
    the projection that made it; 0 where neither tells."""
    for _ in range(_FARTHEST):
        shape = _shape(graph, name)
        if shape and isinstance(shape[-1], int):
            return shape[-1]
        node = graph.producers.get(name)
        if node is None or not node.inputs:
            return 0
        if node.op_type == "MatMulNBits":
            return int(node.attributes["N"])
        if node.op_type in ("MatMul", "Gemm"):
            weight = _shape(graph, node.inputs[1])
            last = weight[0 if node.attributes.get("transB") else -1] if weight else 0
            return last if isinstance(last, int) else 0
        if node.op_type == "Split":
            return _part(graph, node, graph.output_places[name])
        if node.op_type in ("Reshape", "Transpose", "Slice", "Concat", "Gather", "Flatten", "Squeeze", "Unsqueeze"):
            return 0
        name = node.inputs[0]
    return 0


def _part(graph: Graph, node: Node, position: int) -> int:
    """Width of one output of a Split of the last axis, as far as its sizes are known without a shape."""
    if node.attributes.get("axis", 0) not in (-1, 2):
        return 0
    sizes = node.attributes.get("split")
    if sizes is None and len(node.inputs) > 1 and node.inputs[1] in graph.weights:
        sizes = np.ravel(graph.weights[node.inputs[1]]).tolist()
    if sizes is not None:
        return int(sizes[position]) if position < len(sizes) else 0
    whole, count = _width(graph, node.inputs[0]), len(node.outputs)
    part = -(-whole // count)
    return part if position < count - 1 else whole - part * (count - 1)


def _shape(graph: Graph, name: str) -> tuple[Any, ...]:
    value: Value | None = known(graph).types.get(name)
    return value.shape or () if value is not None else ()


def _configured(graph: Graph, axis: int, rank: int) -> int | None:
    """What onnxruntime-genai's configuration says; None where it is missing, damaged or silent."""
    key = "head_size" if axis == rank - 1 else "num_key_value_heads" if (axis, rank) == (1, 4) else None
    if key is None or graph.folder is None:
        return None
    path = os.path.join(graph.folder, _CONFIG)
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _CONFIG_LIMIT:
            return None
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        for part in ("model", "decoder", key):
            said = said[part] if isinstance(said, Mapping) else None
    except (OSError, ValueError, KeyError, RecursionError):
        return None
    return said if type(said) is int and said > 0 else None
