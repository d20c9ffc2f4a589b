"""Prompts and tokenizers: text, one list of tokens, or several lists of different lengths (padded on the left)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from kvviz.errors import InputError

_KINDS = "a prompt is a text, a list of token numbers, or a list of such lists"


class Words:
    """A tokenizer for a vocabulary of words, one token each; texts begin with ``start``, by default ``"<s>"``."""

    def __init__(self, words: Sequence[str], start: int | None = None) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.start = self.ids.get("<s>") if start is None else start

    def encode(self, text: str) -> list[int]:
        unknown = [word for word in text.split() if word not in self.ids]
        if unknown:
            raise InputError(
                f"the vocabulary of {len(self.words)} words does not have {', '.join(map(repr, unknown[:8]))}"
            )
        return ([] if self.start is None else [self.start]) + [self.ids[word] for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(self.words[t] if 0 <= t < len(self.words) else f"<{t}>" for t in tokens)


def as_tokenizer(tokenizer: Any) -> Any:
    """A list of words becomes a tokenizer; anything with ``encode`` and ``decode`` is one already."""
    if tokenizer is None or (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
        return tokenizer
    if isinstance(tokenizer, Sequence) and not isinstance(tokenizer, str):
        return Words(tokenizer)
    raise InputError("tokenizer must be a list of words, or an object with encode(text) and decode(tokens)")


def text_of(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token by itself; the number where there is no tokenizer."""
    if tokenizer is None:
        return [str(token) for token in tokens]
    return [str(tokenizer.decode([token])) for token in tokens]


def as_batch(prompt: Any, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as one block of tokens, padded on the left with token 0, and the mask that tells tokens from padding."""
    if not isinstance(prompt, str):
        try:
            prompt = prompt.tolist() if isinstance(prompt, np.ndarray) else list(prompt)
            len(prompt)
        except TypeError:
            raise InputError(_KINDS) from None
    several = not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], (int, np.integer))
    rows = [_encode(row, tokenizer) for row in (prompt if several else [prompt])]
    width = max((len(row) for row in rows), default=0)
    if any(not row for row in rows):
        raise InputError("the prompt is empty; give at least one token")
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
            "the prompt is a text: pass tokenizer= as well (a list of words, or an object with encode/decode)"
        )
    encoded = tokenizer.encode(row)
    return [int(token) for token in getattr(encoded, "ids", encoded)]
