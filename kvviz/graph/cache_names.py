"""Which output carries on which cache input, by name: the conventions of the exporters, made alike."""

from __future__ import annotations

import re

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
