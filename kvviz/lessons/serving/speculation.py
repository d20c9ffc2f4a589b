"""Speculative decoding: tokens are guessed, one pass checks them all, and rows of wrong guesses are rolled back.

What is told is what greedy decoding tells: a guess is taken only where the model says the same (Leviathan and others,
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
    """The first rows of the caches, as views: nothing is copied, only the count moves back.

    The rows behind keep their bytes until the next pass overwrites them.

    Raises `KvvizError`: if there are not so many rows.
    """
    held = min(array.shape[AXIS] for array in rows.values()) if rows else 0
    if not 0 <= length <= held:
        raise KvvizError(f"the caches have {held} rows; they cannot go back to {length}")
    return {name: array[:, :, :length] for name, array in rows.items()}


def repeat_draft(tokens: list[int], most: int) -> list[int]:
    """Guess that the text goes on as it did after the last time that this token was told: prompt lookup."""
    before = next((i for i in range(len(tokens) - 2, -1, -1) if tokens[i] == tokens[-1]), None)
    return [] if before is None else tokens[before + 1 : before + 1 + most]


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a speculative decode came to.

    Attributes
    ----------
    tokens : list of int
    passes : int
        Forward passes, the prefill among them; without guesses it would be one for each token.
    guessed, accepted : int
        Tokens.
    rolled_back : int
        Rows of wrong guesses, in each cache.
    bytes_copied : int
        By the ops that write the caches.
    """

    tokens: list[int]
    passes: int
    guessed: int
    accepted: int
    rolled_back: int
    bytes_copied: int


def speculate(
    graph: Graph, prompt: Sequence[int], new_tokens: int, draft: Draft = repeat_draft, width: int = 4
) -> Speculation:
    """Decode greedily with guesses that are checked in one pass.

    Parameters
    ----------
    graph : Graph
        With growing caches.
    prompt : sequence of int
    new_tokens : int
    draft : callable
        Makes the guesses.
    width : int
        Guesses that are checked at once, at most; more of a draft are left out.

    Raises `KvvizError`: if no new token is asked for.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.speculate")
    if new_tokens < 1:
        raise KvvizError(f"new_tokens is {new_tokens}; ask for one at least")
    room = len(prompt) + new_tokens + width
    caches = frozenset(name.replace("past_key_values", "present") for name in empty_rows(graph))
    rows, said = empty_rows(graph, room=room), list(prompt)
    guesses: list[int] = []
    due = list(prompt)
    passes = guessed = accepted = dropped = copied = 0
    while len(said) < len(prompt) + new_tokens:
        done = forward(graph, [[*due, *guesses]], rows, donate=True, record=True)
        passes += 1
        guessed += len(guesses)
        assert done.trace is not None
        copied += sum(step.copied for step in done.trace.steps if caches & set(step.outputs))
        after = done.logits[0, len(due) - 1 :].argmax(-1).tolist()
        # Guess by guess: it is right where the model would have said the same.
        right = next((i for i, guess in enumerate(guesses) if guess != after[i]), len(guesses))
        accepted += right
        dropped += len(guesses) - right
        held = done.rows[next(iter(done.rows))].shape[AXIS]
        rows = roll_back(done.rows, held - (len(guesses) - right))
        said += after[: right + 1]
        due = said[-1:]
        left = len(prompt) + new_tokens - len(said)
        most = min(width, left - 1)
        guesses = list(draft(said, most))[:most] if most > 0 else []
    tokens = said[len(prompt) : len(prompt) + new_tokens]
    return Speculation(tokens, passes, guessed, accepted, dropped, copied)
