"""What names of inputs and outputs say: which is a cache, which output carries it on, and what the others mean."""

from __future__ import annotations

import re

from kvviz.graph.caches.look_ups import index_range
from kvviz.graph.model import Graph, Value

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
    """A cache input's name without what says "before": ``past_key_values.0.key`` gives ``C.0.key``."""
    return _INPUT_END.sub("", _INPUT_START.sub("C", name))


def canonical_output(name: str) -> str:
    """A cache output's name without what says "after": ``present.0.key`` gives ``C.0.key``."""
    return _OUTPUT_END.sub("", _OUTPUT_START.sub("C", _OUTPUT_START_WORD.sub("", name)))


def names_agree(input_name: str, output_name: str) -> bool:
    """Whether two names say "the same cache before and after", as in ``past_key_0`` and ``present_key_0``."""
    if input_name == output_name:
        return False
    before, after = canonical_input(input_name), canonical_output(output_name)
    # PyTorch's recurrent layers: h, hn; state, stateN.
    return before == after or after in (f"{before}n", f"{before}N", f"{before}_n")


def looks_like_cache(name: str) -> bool:
    """Whether a name speaks of a cache or a state; ``h`` and ``c`` alone are too little."""
    return bool(_CACHE_WORD.search(name))


def looks_like_state(name: str) -> bool:
    """Whether a name speaks of a fixed-size state (recurrent, convolution) rather than of keys and values."""
    return bool(_STATE_WORD.search(name)) and not re.search(r"(^|[._])(key|value|kv)([._\d]|$)", name)


def looks_like_cross(name: str) -> bool:
    """Whether a name speaks of cross-attention: keys and values of the encoder, the same at every step."""
    return bool(_CROSS_WORD.search(name))


def short_name(input_name: str) -> str:
    """Layer, then what a cache holds: ``past_value_cross_3`` gives ``3.cross.value``."""
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
    """Role to input name, for the inputs that are no caches: ``{"tokens": "input_ids", …}``. An input of another name
    counts as the tokens where it is the only one that can be: integers of shape (batch, sequence). Of several the one
    that is looked up in the largest table holds the tokens."""
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
    """Name of the output that scores the next token; None where the graph has no such output. An output called
    ``logits`` (or an older word for it), else, if the graph reads tokens, its only floating-point output of rank 2 or 3
    whose name does not speak of a cache."""
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
