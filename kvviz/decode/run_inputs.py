"""Inputs of each run of a decode loop, from the graph's declarations: caches, masks, positions, flags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from kvviz.decode.cache_protocols import fixed_rows, is_fixed
from kvviz.decode.plausible_values import shape_of
from kvviz.errors import InputError, LoadError
from kvviz.graph.cache_pairs import CachePair
from kvviz.graph.cache_writes import CacheOp, cache_ops
from kvviz.graph.input_roles import index_range, length_at
from kvviz.graph.model import Graph, Node, Value
from kvviz.memory.ghosts import ghost, with_room
from kvviz.runtimes.ort.known_types import known
from kvviz.text.companions import json_file

# The most axes that an array of this NumPy has.
_AXES = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32


def check_rank(value: Value) -> None:
    rank = len(value.shape or ())
    if rank > _AXES:
        raise InputError(
            f"input {value.name!r} has {rank} dimensions, but an array of NumPy has at most {_AXES}; "
            "export the model with fewer"
        )


def first_caches(
    graph: Graph,
    pairs: tuple[CachePair, ...],
    batch: int,
    capacity: int | None,
    given: Mapping[str, Any],
    rows: int,
    later: bool = False,
    dry: bool = False,
) -> dict[str, np.ndarray]:
    """Empty caches for the first run: no rows for growing ones, full zeros for static ones and states.

    ``capacity``: rows to reserve for growing caches, and the length of fixed-size ones that the model leaves open.
    ``rows``: those that the whole decode will need.
    ``later``: growing caches get more room later, and begin with ``capacity`` rows or one.
    ``dry``: caches without contents.
    """
    declared = {value.name: value for value in graph.inputs}
    if capacity is not None and not any(pair.axis is not None and pair.protocol != "cross" for pair in pairs):
        why = "its states have no rows" if any(pair.protocol != "cross" for pair in pairs) else "it keeps no cache"
        warnings.warn(f"kv_capacity={capacity} has no use for {graph.name}: {why}; leave it out", stacklevel=5)
    caches: dict[str, np.ndarray] = {}
    for pair in pairs:
        value = declared[pair.input]
        if pair.input in given:
            caches[pair.input] = np.asarray(given[pair.input])
            continue
        shape = _cache_shape(graph, value, pair, batch, capacity, rows)
        if pair.protocol in ("static", "shared") and pair.axis is not None and shape[pair.axis] < rows:
            raise InputError(
                f"cache {pair.input!r} holds {shape[pair.axis]} rows, but prompt and new tokens need {rows}; "
                f"ask for fewer tokens or export a longer cache"
            )
        array = (ghost if dry else np.zeros)(shape, value.dtype or np.float32)
        if (later or capacity is not None) and pair.protocol == "growing" and pair.axis is not None:
            if capacity is not None and capacity < rows and not later:
                raise InputError(f"kv_capacity is {capacity} rows, but prompt and new tokens need {rows}")
            array = with_room(array, pair.axis, 1 if capacity is None else capacity)
        caches[pair.input] = array
    return caches


def _cache_shape(
    graph: Graph, value: Value, pair: CachePair, batch: int, capacity: int | None, rows: int
) -> tuple[int, ...]:
    shape: list[int] = []
    if value.shape is None:
        raise InputError(f"cache {value.name!r} has no declared shape; pass it in inputs=")
    check_rank(value)
    for axis, dim in enumerate(value.shape):
        if isinstance(dim, int):
            shape.append(dim)
        elif axis == pair.axis:
            shape.append(fixed_rows(graph, pair, capacity, rows) if is_fixed(pair) else 0)
        elif axis == 0 or (isinstance(dim, str) and "batch" in dim):
            shape.append(batch)
        else:
            length = cache_dimension(graph, pair, axis)
            if length is None:
                called = "without a name" if dim is None else repr(dim)
                raise InputError(
                    f"cache {value.name!r} has a dimension {called} that the model does not fix; "
                    "pass that cache in inputs= (with 0 rows)"
                )
            shape.append(length)
    return tuple(shape)


Made = Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]
BY_ROLE: dict[str, Made] = {
    "tokens": lambda tokens, mask, past, rows: tokens,
    "attention_mask": lambda tokens, mask, past, rows: mask,
    "position_ids": lambda tokens, mask, past, rows: np.maximum(mask.cumsum(1) - 1, 0)[:, past:],
    "cache_position": lambda tokens, mask, past, rows: np.arange(past, past + tokens.shape[1]),
    "write_indices": lambda tokens, mask, past, rows: np.full(len(tokens), past),
    "nonpad_kv_seqlen": lambda tokens, mask, past, rows: np.full(len(tokens), rows),
    "use_cache_branch": lambda tokens, mask, past, rows: np.array([past > 0]),
    "past_sequence_length": lambda tokens, mask, past, rows: np.array(past),
    "total_sequence_length": lambda tokens, mask, past, rows: np.array(past + tokens.shape[1]),
    "seqlens_k": lambda tokens, mask, past, rows: mask.sum(1) - 1,
    # Scores of padding are meaningless.
    "num_logits_to_keep": lambda tokens, mask, past, rows: np.array(1 if mask[:, -1:].all() else tokens.shape[1]),
}
"""The inputs of a run that follow from its tokens, their mask, and the rows in its caches before and after it."""


def control_feeds(
    graph: Graph,
    roles: Mapping[str, str],
    tokens: np.ndarray,
    mask: np.ndarray,
    past: int,
    given: Mapping[str, Any],
    window: int | None = None,
) -> dict[str, Any]:
    """Every input of one run except caches; the caller's ``given`` ones take precedence. ``mask`` is ``(batch, past +
    new)``. ``window``: rows of a circular cache, the most that can hold tokens."""
    batch, new = tokens.shape
    rows = past + new if window is None else min(past + new, window)
    declared = {value.name: value for value in graph.inputs}
    feeds: dict[str, Any] = {}
    for role, name in roles.items():
        value = declared.get(name)
        if value is not None and name not in given and role in BY_ROLE:
            feeds[name] = _fitted(value, BY_ROLE[role](tokens, mask, past, rows))
    encoder = roles.get("encoder_hidden_states")
    wants_mask = roles.get("encoder_attention_mask")
    if encoder is not None and encoder in given and wants_mask and wants_mask not in given:
        length = np.asarray(given[encoder]).shape[1]
        feeds[wants_mask] = _fitted(declared[wants_mask], np.ones((batch, length)))
    return feeds


def check_positions(graph: Graph, roles: Mapping[str, str], rows: int) -> None:
    """Refuse more tokens than the table of positions has rows, if the graph looks up its position input."""
    for name in (roles[role] for role in ("position_ids", "cache_position") if role in roles):
        table = index_range(graph, name, shape_of)
        if table is not None and table.high < rows:
            raise InputError(
                f"input {name!r} is looked up in {table.high} positions, but prompt and new tokens need {rows}; "
                f"ask for fewer tokens"
            )


def _fitted(value: Value, array: np.ndarray) -> np.ndarray:
    """An input in the declared dtype and rank; a mask is padded to a fixed length."""
    array = np.asarray(array).astype(value.dtype or np.int64)
    if value.shape is None:
        return array
    rank = len(value.shape)
    if array.ndim < rank:
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    while array.ndim > rank and array.shape[0] == 1:
        # A batch of one that the graph does not declare.
        array = array[0]
    if rank == 2 and isinstance(value.shape[1], int) and array.shape[1] < value.shape[1]:
        array = np.pad(array, ((0, 0), (0, value.shape[1] - array.shape[1])))
    return array


# -- cache dimensions -------------------------------------------------------------------------------------------------
# Dimensions of a cache that the model leaves open: heads, and numbers for a head and a row.
#
# They follow from the graph where its shapes can be inferred, else from the width of the projection that makes the
# new rows, else from the ``genai_config.json`` beside the model.


# Attention operators that take queries, keys and values as inputs 0 to 2; all three packed in the first if the others
# are absent (com.microsoft of onnxruntime 1.31, Attention of ONNX 23).
_PROJECTED = frozenset({"GroupQueryAttention", "MultiHeadAttention", "SparseAttention", "PagedAttention"})
# The most operators between an attention and the projection that feeds it (bias, norm, rotation …).
_FARTHEST = 12


def cache_dimension(graph: Graph, pair: CachePair, axis: int) -> int | None:
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
    """The dimension by an attention operator's attributes; 0 if unknown."""
    given = node.attributes
    heads = int(given.get("num_heads") or given.get("q_num_heads") or 0)
    kv_heads = int(given.get("kv_num_heads") or heads)
    packed = not (len(node.inputs) > 1 and node.inputs[1])
    projected = node.op_type in _PROJECTED or (node.op_type, node.domain) == ("Attention", "")
    # The key comes first among the caches, and among the projections behind the queries.
    name = node.inputs[0 if packed else min(op.present, len(node.inputs) - 1)]
    shape = shape_of(graph, name) if projected else ()
    if rank == 4 and len(shape) == 4 and axis in (1, 3):
        # Divided by head already: (batch, heads, rows, size).
        return length_at(shape, axis)
    if rank == 4 and axis == 1:
        return kv_heads
    if axis != rank - 1 or not heads:
        return 0
    if len(shape) == 5:
        return length_at(shape, -1)
    if projected:
        return _width(graph, name) // (heads + 2 * kv_heads if packed else kv_heads)
    if (node.op_type, node.domain) != ("Attention", "com.microsoft"):
        return 0
    sizes: Any = given.get("qkv_hidden_sizes") or ()
    if len(sizes) == 3:
        return int(sizes[1]) // heads
    return length_at(shape_of(graph, node.inputs[1]), -1) // 3 // heads


def _width(graph: Graph, name: str) -> int:
    """Length of the last axis of a value, by its shape or, behind an unknown operator, by the weights of the projection
    that made it; 0 if neither is known."""
    for _ in range(_FARTHEST):
        if width := length_at(shape_of(graph, name), -1):
            return width
        node = graph.producers.get(name)
        if node is None or not node.inputs:
            return 0
        if node.op_type == "MatMulNBits":
            return int(node.attributes["N"])
        if node.op_type in ("MatMul", "Gemm"):
            return length_at(shape_of(graph, node.inputs[1]), 0 if node.attributes.get("transB") else -1)
        if node.op_type == "Split":
            return _part(graph, node, graph.output_places[name])
        if node.op_type in ("Reshape", "Transpose", "Slice", "Concat", "Gather", "Flatten", "Squeeze", "Unsqueeze"):
            return 0
        name = node.inputs[0]
    return 0


def _part(graph: Graph, node: Node, position: int) -> int:
    """Width of one output of a Split of the last axis, if its sizes determine it."""
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


def _configured(graph: Graph, axis: int, rank: int) -> int | None:
    """The dimension by onnxruntime-genai's configuration; None if that is missing, damaged or silent."""
    key = "head_size" if axis == rank - 1 else "num_key_value_heads" if (axis, rank) == (1, 4) else None
    said: Any = None
    if key is not None and graph.folder is not None:
        with suppress(LoadError):
            said = json_file((graph.folder,), "genai_config.json")
    for part in ("model", "decoder", key):
        said = said.get(part) if isinstance(said, Mapping) else None
    return said if type(said) is int and said > 0 else None
