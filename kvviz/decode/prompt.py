"""Prompts and tokenizers: text, one list of tokens, or several lists of different lengths (padded on the left)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import index
from typing import Any

import numpy as np

from kvviz.errors import InputError
from kvviz.graph.model import Graph
from kvviz.text.companions import Words

_KINDS = "a prompt is a text, a list of token numbers, or a list of such lists"


def as_tokenizer(tokenizer: Any) -> Any:
    """A list of words becomes a tokenizer; anything with ``encode`` and ``decode`` is one already."""
    if tokenizer is None or (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
        return tokenizer
    if isinstance(tokenizer, Sequence) and not isinstance(tokenizer, str):
        return Words(tokenizer)
    raise InputError("tokenizer must be a list of words, or an object with encode(text) and decode(tokens)")


def tokenizer_for(
    graph: Graph, prompt: Any, tokenizer: Any, stop_tokens: Collection[int] | None
) -> tuple[Any, frozenset[int]]:
    """The tokenizer of a decode, and the tokens that end it. By default the tokenizer beside the model encodes a text,
    and then its end-of-text tokens are the default too."""
    own = as_tokenizer(tokenizer)
    if own is not None or not _is_text(prompt) or graph.companions is None:
        return own, frozenset(stop_tokens or ())
    own = graph.companions.tokenizer
    ends = () if own is None else own.stop_tokens
    return own, frozenset(ends if stop_tokens is None else stop_tokens)


def _is_text(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return True
    return isinstance(prompt, (list, tuple)) and any(isinstance(row, str) for row in prompt)


def text_of(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token by itself; the number without a tokenizer."""
    if tokenizer is None:
        return [str(token) for token in tokens]
    return [str(tokenizer.decode([token])) for token in tokens]


def as_prompts(prompt: Any) -> list[Any]:
    if isinstance(prompt, str):
        return [prompt]
    try:
        given = prompt.tolist() if isinstance(prompt, np.ndarray) else list(prompt)
        return given if len(given) and not isinstance(given[0], (int, np.integer)) else [given]
    except TypeError:
        raise InputError(_KINDS) from None


def as_batch(prompt: Any, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as one block of tokens, padded on the left with token 0, and the mask of real tokens."""
    rows = [_encode(row, tokenizer) for row in as_prompts(prompt)]
    width = max((len(row) for row in rows), default=0)
    if any(not row for row in rows):
        raise InputError("the prompt is empty; give at least one token")
    if (least := min(min(row) for row in rows)) < 0:
        # Gather would count it from the end of the vocabulary.
        raise InputError(f"the prompt has the token {least}; tokens are numbered from 0")
    if (most := max(max(row) for row in rows)) > np.iinfo(np.int64).max:
        raise InputError(f"the prompt has the token {most}, which does not fit into 64 bits")
    tokens = np.zeros((len(rows), width), np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        tokens[i, width - len(row) :] = row
        mask[i, width - len(row) :] = 1
    return tokens, mask


def _encode(row: Any, tokenizer: Any) -> list[int]:
    if not isinstance(row, str):
        try:
            return [index(token) for token in row]
        except TypeError:
            raise InputError(_KINDS) from None
    if tokenizer is None:
        raise InputError(
            "the prompt is a text: pass tokenizer= as well (a list of words, or an object with encode/decode), "
            "or put the model's own tokenizer.json beside it"
        )
    encoded = tokenizer.encode(row)
    return [int(token) for token in getattr(encoded, "ids", encoded)]
