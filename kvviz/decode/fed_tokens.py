"""Tokens and their mask, run by run: what is due next, by what the graph takes a run and whether it keeps a cache.

Invariant: ``mask`` has a column for every token that was fed or is due, 1 for a token and 0 for padding.
"""

from __future__ import annotations

import numpy as np

from kvviz.errors import InputError
from kvviz.graph.cache_pairs import CachePair
from kvviz.graph.model import Value

_WINDOW = "window"


class FedTokens:
    """The tokens of a decode.

    With caches every run is fed the tokens that follow those in the caches: the prompt, as many at once as the graph
    takes, and then one at a time. Without caches every run is fed the whole sequence; where its length is fixed,
    padding follows the tokens.

    ``past``: rows that are in the caches before the first run.
    ``chunk``: tokens of the prompt that a run is fed at most.
    ``slides``: whether the oldest tokens make way where a sequence is longer than a graph without caches takes.
    """

    def __init__(
        self,
        value: Value,
        pairs: tuple[CachePair, ...],
        tokens: np.ndarray,
        mask: np.ndarray,
        past: int,
        new: int,
        slides: bool,
        chunk: int | None = None,
    ) -> None:
        batch, length = tokens.shape
        self.caches = any(pair.protocol != "cross" for pair in pairs)
        size = value.shape[-1] if value.shape else None
        self.size = size if isinstance(size, int) and size > 0 else None  # tokens that a run takes, if that is fixed
        self.past = past  # rows in the caches before the run that is due
        self.tokens = tokens
        self.mask = np.concatenate([np.ones((batch, past), np.int64), mask], 1)
        if slides and (self.caches or self.size is None):
            what = "keeps a cache" if self.caches else "takes sequences of any length"
            raise InputError(f"cache='{_WINDOW}' is for a graph without a cache and of a fixed length; this one {what}")
        if chunk is not None:
            self._cut(chunk)
        elif self.size is None:
            self._later = tokens[:, :0]
        elif self.caches:
            self._divide(value.name, length, new)
        else:
            self._fit(value.name, int(mask.sum(1).max()) + new - 1, new, slides)

    @property
    def due(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of the run that is due, and the mask of what is in the caches and of these."""
        return self.tokens, self.mask[:, : self.past + self.tokens.shape[1]]

    def ended(self) -> bool:
        """The run that was due has ended. Returns whether it chooses tokens: what is left of a prompt comes first."""
        if not self.caches:
            return True
        self.past += self.tokens.shape[1]
        if not self._later.shape[1]:
            return True
        self.tokens, self._later = self._later[:, : self.size], self._later[:, self.size :]
        return False

    def add(self, chosen: np.ndarray) -> None:
        """Let these tokens, one for each sequence, be what follows."""
        chosen = chosen.astype(np.int64)
        if self.caches:
            self.tokens = chosen[:, None]
            self.mask = np.concatenate([self.mask, np.ones_like(self.tokens)], 1)
            return
        at = self.mask.sum(1)
        if self.size is None:
            self.tokens = np.pad(self.tokens, ((0, 0), (0, 1)))
            self.mask = np.pad(self.mask, ((0, 0), (0, 1)))
        else:
            full = at == self.size
            self.tokens[full] = np.roll(self.tokens[full], -1, 1)
            at = at - full
        rows = np.arange(len(at))
        self.tokens[rows, at] = chosen
        self.mask[rows, at] = 1

    def _cut(self, chunk: int) -> None:
        """Feed a prompt in parts of the caller's size; the last one may be shorter."""
        if chunk < 1 or not self.caches or self.size is not None:
            why = "keeps no cache" if not self.caches else f"takes {self.size} tokens a run"
            raise InputError(
                f"chunk={chunk}: a part of the prompt has at least one token"
                if chunk < 1
                else f"chunk={chunk} divides the prompt of a graph with caches that takes any length; this one {why}"
            )
        self.size = chunk
        self.tokens, self._later = self.tokens[:, :chunk], self.tokens[:, chunk:]

    def _divide(self, name: str, length: int, new: int) -> None:
        """Feed a prompt in parts, as a graph with caches takes them."""
        size = self.size or length
        if length % size or (size > 1 and new > 1):
            raise InputError(
                f"input {name!r} takes {size} tokens a run, but a decode feeds it a prompt of {length} and then single "
                "tokens; export the model with an open length, or with a length of 1"
            )
        if length > size and not self.mask[:, -1].all():
            raise InputError(f"input {name!r} takes {size} token a run: decode prompts of unequal length one by one")
        self.tokens, self._later = self.tokens[:, :size], self.tokens[:, size:]

    def _fit(self, name: str, need: int, new: int, slides: bool) -> None:
        """Pad sequences to the length that a graph without caches takes."""
        size = self.size or 0
        if need > size and not slides:
            fewer = new - (need - size)
            ask = f"ask for at most {fewer} new tokens" if fewer > 0 else "give a shorter prompt"
            raise InputError(
                f"input {name!r} takes {size} tokens, and without a cache a run is fed all of them: prompt and new "
                f"tokens need {need}; {ask}, or pass cache='{_WINDOW}' to feed only the last {size}"
            )
        at = np.maximum(self.mask.sum(1) - size, 0)[:, None] + np.arange(size)
        inside = at < self.mask.shape[1]
        at = np.minimum(at, self.mask.shape[1] - 1)
        self.tokens = np.where(inside, np.take_along_axis(self.tokens, at, 1), 0)
        self.mask = np.where(inside, np.take_along_axis(self.mask, at, 1), 0)
