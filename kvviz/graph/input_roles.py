"""The purpose of inputs and outputs, by their names: caches, masks, positions; and what integers index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvviz.graph.cache_writes import VIEWS
from kvviz.graph.model import Dim, Graph, Node, Value, weight_layout

ShapeOf = Callable[[Graph, str], "tuple[Dim, ...]"]

# Operators whose first output holds the same numbers as their first input.
_SAME = VIEWS | {"Expand", "Tile"}
_LOOK_UPS = frozenset({"Gather", "GatherElements", "GatherND", "GatherBlockQuantized"})
# The table that each index input of EmbedLayerNormalization (com.microsoft) selects from.
_EMBEDDED = {0: 2, 1: 4, 7: 3}


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Numbers from ``low`` up to, not including, ``high``."""

    low: int
    high: int


def written_shape(graph: Graph, name: str) -> tuple[Dim, ...]:
    """The shape of a value as the model declares it: of a weight, also behind Cast or DequantizeLinear, or of an inner
    value."""
    while name not in graph.weights:
        value, node = graph.value_info.get(name), graph.producers.get(name)
        if value is not None and value.shape is not None:
            return value.shape
        if node is None or node.op_type not in ("Cast", "DequantizeLinear", "Identity"):
            return ()
        name = node.inputs[0]
    return weight_layout(graph, name).shape or ()


def index_range(graph: Graph, name: str, shape_of: ShapeOf = written_shape) -> IndexRange | None:
    """The range of an integer input for which every look-up finds something; None if nothing is looked up by it.

    The input is followed through views, casts and sums with a constant, into subgraphs and functions, to the look-ups
    (Gather, GatherElements, GatherND, onnxruntime's EmbedLayerNormalization and GatherBlockQuantized) and OneHot.
    ``shape_of``: the shape of a value of a graph, ``()`` if it is not known.
    """
    # Needed first: inference of bodies includes their captured values.
    shape_of(graph, name)
    low, high = 0, None
    seen: set[tuple[int, str, int]] = set()
    stack = [(graph, name, 0)]
    while stack:
        inside, value, added = stack.pop()
        if (id(inside), value, added) in seen or len(seen) > 10_000:
            continue
        seen.add((id(inside), value, added))
        for node in inside.consumers.get(value, ()):
            for position in (i for i, read in enumerate(node.inputs) if read == value):
                size = _looked_up(graph, inside, node, position, shape_of)
                if size:
                    low = max(low, -added)
                    high = size - added if high is None else min(high, size - added)
                stack += [(inside, node.outputs[0], added + more) for more in _passed_on(graph, inside, node, position)]
                if node.function is not None and position < len(node.function.inputs):
                    stack.append((node.function, node.function.inputs[position].name, added))
            stack += [(body, value, added) for body in node.subgraphs.values() if value in node.captures]
    return IndexRange(low, high) if high is not None and low < high else None


def _passed_on(main: Graph, graph: Graph, node: Node, position: int) -> Iterator[int]:
    """Constants added to an input on its way to the first output, if that holds the same numbers."""
    if node.domain:
        return
    if position == 0 and node.op_type in _SAME:
        yield 0
    elif node.op_type in ("Add", "Sub") and len(node.inputs) == 2:
        amount = _number(main, graph, node.inputs[1 - position])
        if amount is not None and (node.op_type == "Add" or position == 0):
            yield amount if node.op_type == "Add" else -amount


def _looked_up(main: Graph, graph: Graph, node: Node, position: int, shape_of: ShapeOf) -> int:
    """How many entries an input of a node selects from; 0 if it selects none, or that is not known."""
    if node.op_type in _LOOK_UPS and position == 1:
        axis = node.attributes.get("gather_axis" if node.domain else "axis", 0)
        at = int(node.attributes.get("batch_dims", 0) if "ND" in node.op_type else axis)
        return length_at(shape_of(graph, node.inputs[0]), at)
    if node.op_type == "EmbedLayerNormalization" and position in _EMBEDDED and len(node.inputs) > _EMBEDDED[position]:
        return length_at(shape_of(graph, node.inputs[_EMBEDDED[position]]), 0)
    if (node.op_type, node.domain, position) == ("OneHot", "", 0):
        return _number(main, graph, node.inputs[1]) or 0
    return 0


def _number(main: Graph, graph: Graph, name: str) -> int | None:
    """A constant of one number, of the graph itself or (as exporters write bodies) of the main one."""
    array = next((inside.weights[name] for inside in (graph, main) if name in inside.weights), None)
    return None if array is None or np.size(array) != 1 else int(np.ravel(array)[0])


def length_at(shape: tuple[Dim, ...], axis: int) -> int:
    length = shape[axis] if -len(shape) <= axis < len(shape) else 0
    return length if isinstance(length, int) else 0


_INPUT_START = re.compile(r"^(past_key_values|past_states|past|input(?=_state))(?=[._\d]|$)")
_OUTPUT_START = re.compile(r"^(present_key_values|present_states|present|past_key_values|output(?=_state))(?=[._\d]|$)")
_INPUT_END = re.compile(r"_(prev|in)(?=[._]?\d*$)")
_OUTPUT_START_WORD = re.compile(r"^(updated|new|next)_")
_OUTPUT_END = re.compile(r"_(next|out|new|updated)(?=[._]?\d*$)")
_CACHE_WORD = re.compile(
    r"(^|[._/])(past|present|kv|states?\d*|conv|ssm|recurrent|memory|mems?|hidden)(?=$|[._/\d])"
    r"|[._]\d+[._](key|value)$|cache|state",
    re.IGNORECASE,
)
_STATE_WORD = re.compile(
    r"(^|[._])(conv|ssm|recurrent|states?|rnn|lstm|gru|hidden|h|c|cell)(?=$|[._\d])", re.IGNORECASE
)
_CROSS_WORD = re.compile(r"[._](encoder|cross)([._]|$)", re.IGNORECASE)
_KIND_WORD = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*")


def canonical_input(name: str) -> str:
    """A cache input's name without its words for "before": ``past_key_values.0.key`` gives ``C.0.key``."""
    return _INPUT_END.sub("", _INPUT_START.sub("C", name))


def canonical_output(name: str) -> str:
    """A cache output's name without its words for "after": ``present.0.key`` gives ``C.0.key``."""
    return _OUTPUT_END.sub("", _OUTPUT_START.sub("C", _OUTPUT_START_WORD.sub("", name)))


def names_agree(input_name: str, output_name: str) -> bool:
    """Whether two names mean the same cache before and after, as in ``past_key_0`` and ``present_key_0``."""
    if input_name == output_name:
        return False
    before, after = canonical_input(input_name), canonical_output(output_name)
    # PyTorch's recurrent layers: h, hn; state, stateN.
    return before == after or after in (f"{before}n", f"{before}N", f"{before}_n")


def looks_like_cache(name: str) -> bool:
    """Whether a name means a cache or a state; ``h`` and ``c`` alone are not enough."""
    return bool(_CACHE_WORD.search(name))


def looks_like_state(name: str) -> bool:
    """Whether a name means a fixed-size state (recurrent, convolution) rather than keys and values."""
    return bool(_STATE_WORD.search(name)) and not re.search(r"(^|[._])(key|value|kv)([._\d]|$)", name)


def looks_like_cross(name: str) -> bool:
    """Whether a name means cross-attention: keys and values of the encoder, the same at every step."""
    return bool(_CROSS_WORD.search(name))


def short_name(input_name: str) -> str:
    """Layer, then the content of a cache: ``past_value_cross_3`` gives ``3.cross.value``."""
    rest = canonical_input(input_name)
    rest = rest[1:].lstrip("._") if rest != input_name and rest.startswith("C") else rest
    digits = re.search(r"\d+", rest)
    if not digits:
        return rest or input_name
    words = [word for part in _KIND_WORD.findall(rest) for word in part.split("_") if word != "cache"]
    # A kind in front of its qualifier, as in key_self_0, goes last.
    if words[:1] in (["key"], ["value"]) and words[1:] not in ([], ["value"]):
        words = [*words[1:], words[0]]
    return ".".join([digits[0], *words])


# Role, names in order of preference, and NumPy's kinds of element types that fit ("" for any).
_ROLES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("tokens", ("input_ids", "decoder_input_ids", "token_ids", "input_tokens", "tokens", "ids", "input"), "iu"),
    ("embeddings", ("inputs_embeds", "input_embeds", "decoder_inputs_embeds"), ""),
    ("attention_mask", ("attention_mask", "decoder_attention_mask", "attn_mask", "mask"), ""),
    ("position_ids", ("position_ids", "decoder_position_ids", "positions", "position", "pos_ids"), "iu"),
    ("token_type_ids", ("token_type_ids", "segment_ids"), "iu"),
    ("use_cache_branch", ("use_cache_branch",), ""),
    ("cache_position", ("cache_position", "cache_positions", "input_pos"), "iu"),
    ("write_indices", ("write_indices",), "iu"),
    ("nonpad_kv_seqlen", ("nonpad_kv_seqlen", "nonpad_kv_seqlens"), "iu"),
    ("encoder_hidden_states", ("encoder_hidden_states", "encoder_outputs", "encoder_last_hidden_state"), ""),
    ("encoder_attention_mask", ("encoder_attention_mask",), ""),
    ("past_sequence_length", ("past_sequence_length", "past_key_values_length", "past_seq_len", "past_length"), "iu"),
    ("current_sequence_length", ("current_sequence_length",), "iu"),
    ("total_sequence_length", ("total_sequence_length", "total_seq_len", "total_seq_length"), "iu"),
    ("seqlens_k", ("seqlens_k", "seqlen_k"), "iu"),
    ("num_logits_to_keep", ("num_logits_to_keep", "logits_to_keep"), "iu"),
    ("beam_width", ("beam_width",), "iu"),
    ("cache_indirection", ("cache_indirection",), "iu"),
    ("block_table", ("block_table",), "iu"),
)
_LOGITS = ("logits", "lm_logits", "decoder_logits", "prediction_scores", "scores")


def control_inputs(graph: Graph) -> dict[str, str]:
    """Role to input name, for inputs other than caches: ``{"tokens": "input_ids", …}``. An input of another name counts
    as the tokens if it is the only candidate: integers of shape (batch, sequence). Among several, the one that is
    looked up in the largest table has the tokens."""
    by_name = {value.name.lower(): value for value in graph.inputs}
    roles: dict[str, str] = {}
    for role, candidates, kinds in _ROLES:
        value = next((by_name[n] for n in candidates if n in by_name and _fits(by_name[n], kinds)), None)
        if value is not None:
            roles[role] = value.name
    if "tokens" not in roles and "embeddings" not in roles:
        taken = set(roles.values())
        free = [v for v in graph.inputs if v.name not in taken and not looks_like_cache(v.name)]
        free = [v for v in free if v.dtype is not None and v.dtype.kind in "iu" and v.shape and len(v.shape) == 2]
        if len(free) > 1:
            rows = [bounds.high if (bounds := index_range(graph, v.name)) else 0 for v in free]
            free = [v for v, n in zip(free, rows) if n == max(rows)]
        if len(free) == 1:
            roles = {"tokens": free[0].name, **roles}
    return roles


def logits_output(graph: Graph) -> str | None:
    """Name of the output that scores the next token; None if there is none. It is called ``logits`` (or an older word
    for it), else, if the graph reads tokens, it is its only floating-point output of rank 2 or 3 that is not named like
    a cache."""
    by_name = {value.name.lower(): value.name for value in graph.outputs}
    for name in _LOGITS:
        if name in by_name:
            return by_name[name]
    named = [value.name for value in graph.outputs if "logits" in value.name.lower()]
    if named:
        return named[0]
    if "tokens" not in control_inputs(graph):
        return None
    free = [v for v in graph.outputs if v.kind == "tensor" and not looks_like_cache(v.name)]
    free = [v for v in free if v.dtype is None or v.dtype.kind not in "iubO"]
    free = [v for v in free if v.shape is None or len(v.shape) in (2, 3)]
    return free[0].name if len(free) == 1 else None


def _fits(value: Value, kinds: str) -> bool:
    return not kinds or value.dtype is None or value.dtype.kind in kinds
