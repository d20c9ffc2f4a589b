"""Control inputs: what the other inputs of a decoder mean, by their names."""

from __future__ import annotations

from kvviz.graph.cache_names import looks_like_cache
from kvviz.graph.model import Graph, Value

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
    counts as the tokens where it is the only one that can be: integers of shape (batch, sequence)."""
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
