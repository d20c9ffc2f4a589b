"""A vocabulary of words, one token each."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.errors import InputError


class Words:
    """A tokenizer for a vocabulary of words, one token each.

    Texts begin with ``start``, by default ``"<s>"``, and end with ``"</s>"`` if the vocabulary has it.
    """

    def __init__(self, words: Sequence[str], start: int | None = None) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.start = self.ids.get("<s>") if start is None else start

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return tuple(self.ids[word] for word in ("</s>",) if word in self.ids)

    def encode(self, text: str) -> list[int]:
        unknown = [word for word in text.split() if word not in self.ids]
        if unknown:
            raise InputError(
                f"the vocabulary of {len(self.words)} words does not have {', '.join(map(repr, unknown[:8]))}"
            )
        return ([] if self.start is None else [self.start]) + [self.ids[word] for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(self.words[t] if 0 <= t < len(self.words) else f"<{t}>" for t in tokens)
