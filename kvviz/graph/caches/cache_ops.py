"""Operators that write caches: which input is the past, which output the present, and on which axis they grow."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.graph.model import Node

_MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class CacheOp:
    """One output of an operator that carries a cache on."""

    past: int  # position of the input
    present: int  # position of the output
    axis: int | None  # sequence axis, from 0 or (negative) from the end
    protocol: str  # ``"growing"``, ``"static"``, ``"window"`` or ``"state"``


def _pairs(protocol: str, axis: int | None, *pairs: tuple[int, int]) -> tuple[CacheOp, ...]:
    return tuple(CacheOp(past, present, axis, protocol) for past, present in pairs)


# Positions as in the schemas of onnx 1.23 and onnxruntime 1.31.
_TABLE: dict[tuple[str, str], tuple[CacheOp, ...]] = {
    ("", "Attention"): _pairs("growing", 2, (4, 1), (5, 2)),
    ("", "LinearAttention"): _pairs("state", None, (3, 1)),
    ("", "CausalConvWithState"): _pairs("state", None, (3, 1)),
    ("", "LSTM"): _pairs("state", None, (5, 1), (6, 2)),
    ("", "GRU"): _pairs("state", None, (5, 1)),
    ("", "RNN"): _pairs("state", None, (5, 1)),
    (_MS, "GroupQueryAttention"): _pairs("growing", 2, (3, 1), (4, 2)),
    (_MS, "MultiHeadAttention"): _pairs("growing", 2, (6, 1), (7, 2)),
    (_MS, "Attention"): _pairs("growing", 3, (4, 1)),
    (_MS, "QAttention"): _pairs("growing", 3, (8, 1)),
    (_MS, "DecoderMaskedMultiHeadAttention"): _pairs("growing", 2, (5, 1), (6, 2)),
    (_MS, "DecoderMaskedSelfAttention"): _pairs("growing", 3, (4, 1)),
    (_MS, "SparseAttention"): _pairs("static", 2, (3, 1), (4, 2)),
    (_MS, "PagedAttention"): _pairs("static", None, (3, 1), (4, 2)),
    (_MS, "LinearAttention"): _pairs("state", None, (3, 1)),
    (_MS, "CausalConvWithState"): _pairs("state", None, (3, 1)),
    (_MS, "DynamicQuantizeLSTM"): _pairs("state", None, (5, 1), (6, 2)),
}
_SCATTERS = frozenset({"ScatterND", "ScatterElements", "Scatter", "TensorScatter"})

VIEWS = frozenset({"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Cast", "Slice", "Flatten", "CastLike"})
"""Operators that pass a cache on under another shape, or a part of it."""

PICKS = frozenset({"Split", "Gather", "Expand", "DequantizeLinear", "QuantizeLinear"})
"""Operators that a past may pass before it is written: halves of a combined cache, beams, a quantised cache."""


def cache_ops(node: Node) -> tuple[CacheOp, ...]:
    """The cache outputs of a node by its operator and attributes; empty for operators that write none. Concat is not in
    here: any of its inputs may be the past."""
    if not node.domain and node.op_type in _SCATTERS:
        return _scatter(node)
    found = _TABLE.get((node.domain, node.op_type), ())
    present = tuple(op for op in found if op.past < len(node.inputs) and node.inputs[op.past])
    protocol = _special_protocol(node)
    return tuple(CacheOp(op.past, op.present, op.axis, protocol or op.protocol) for op in present)


def _scatter(node: Node) -> tuple[CacheOp, ...]:
    if node.op_type == "TensorScatter":
        circular = node.attributes.get("mode") == "circular"
        return (CacheOp(0, 0, node.attributes.get("axis", -2), "window" if circular else "static"),)
    # ScatterND writes whole slices of its first axis; exporters move the sequence axis there.
    axis = 0 if node.op_type == "ScatterND" else node.attributes.get("axis", 0)
    return (CacheOp(0, 0, axis, "static"),)


def _special_protocol(node: Node) -> str:
    """What attributes and inputs change: shared buffers, evicting windows."""
    given = node.attributes
    if node.op_type == "GroupQueryAttention" and given.get("sliding_window_cache"):
        return "window"
    if given.get("past_present_share_buffer"):
        return "static"
    # The length of the past as an input means that the buffers have a fixed size (onnxruntime's MultiHeadAttention).
    if (node.domain, node.op_type) == (_MS, "MultiHeadAttention") and len(node.inputs) > 8 and node.inputs[8]:
        return "static"
    return ""
