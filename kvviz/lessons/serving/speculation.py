"""Speculative decoding: tokens are guessed, one pass checks them all, and rows of wrong guesses are rolled back.

The result is that of greedy decoding: a guess is taken only where the model says the same (Leviathan and others,
*Fast Inference from Transformers via Speculative Decoding*, 2023, of which this is the case without sampling).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.lessons.serving.forward_pass import AXIS, Rows, empty_rows, forward
from kvviz.trace.model_or_trace import as_graph

Draft = Callable[[list[int], int], list[int]]
"""Tokens so far, and how many guesses are wanted at most; gives the guesses."""


def roll_back(rows: Rows, length: int) -> Rows:
    """The first rows of the caches, as views: only the count moves back, and the next pass overwrites what is behind.

    Raises `KvvizError`: if there are not so many rows.
    """
    held = min((array.shape[AXIS] for array in rows.values()), default=0)
    if not 0 <= length <= held:
        raise KvvizError(f"the caches have {held} rows; they cannot go back to {length}")
    return {name: array[:, :, :length] for name, array in rows.items()}


def repeat_draft(tokens: list[int], most: int) -> list[int]:
    """Guess that the text goes on as it did after the same token before: prompt lookup."""
    before = next((i for i in range(len(tokens) - 2, -1, -1) if tokens[i] == tokens[-1]), None)
    return [] if before is None else tokens[before + 1 : before + 1 + most]


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a speculative decode came to."""

    tokens: list[int]
    passes: int  # with the prefill; without guesses it would be one for each token
    guessed: int  # tokens
    accepted: int
    rolled_back: int  # rows of wrong guesses, in each cache
    bytes_copied: int  # by the ops that write the caches


def speculate(
    graph: Graph, prompt: Sequence[int], new_tokens: int, draft: Draft = repeat_draft, width: int = 4
) -> Speculation:
    """Decode greedily with guesses of a draft, of which at most ``width`` are checked in one pass.

    Raises `KvvizError`: if no new token is asked for.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.speculate")
    if new_tokens < 1:
        raise KvvizError(f"new_tokens is {new_tokens}; ask for one at least")
    rows, said, due = empty_rows(graph, room=len(prompt) + new_tokens + width), list(prompt), list(prompt)
    guesses: list[int] = []
    passes = guessed = accepted = copied = 0
    while len(said) < len(prompt) + new_tokens:
        done = forward(graph, [[*due, *guesses]], rows, donate=True, record=True)
        assert done.trace is not None
        copied += sum(cache.runs[0].bytes_copied for cache in done.trace.caches)
        after = done.logits[0, len(due) - 1 :].argmax(-1).tolist()
        # A guess is right if the model says the same, and all guesses before it are right.
        right = next((i for i, guess in enumerate(guesses) if guess != after[i]), len(guesses))
        passes, guessed, accepted = passes + 1, guessed + len(guesses), accepted + right
        rows = roll_back(done.rows, len(said) + right)
        said += after[: right + 1]
        due = said[-1:]
        most = min(width, len(prompt) + new_tokens - len(said) - 1)
        guesses = list(draft(said, most))[:most] if most > 0 else []
    tokens = said[len(prompt) : len(prompt) + new_tokens]
    return Speculation(tokens, passes, guessed, accepted, guessed - accepted, copied)
