"""Decode without a cache: every run reads the whole sequence, and throws its keys and values away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvviz.decode.prompt import as_batch, text_of, tokenizer_for
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.lessons.serving.forward_pass import forward
from kvviz.trace.model_or_trace import as_graph


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What was generated without a cache, and what it took.

    Attributes
    ----------
    tokens : list of int
        New tokens.
    words : list of str
        Prompt and new tokens as text.
    logits : list of ndarray
        The last row of each run, (1, vocabulary), as `kvviz.decode` keeps them.
    rows : list of int
        Key rows that each run computed for one head of one layer, as its recording counts them; there are as many value
        rows, and as many for every other KV head and layer.
    """

    tokens: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    logits: list[np.ndarray] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


def recompute(graph: Graph, prompt: str | Sequence[int], max_new_tokens: int = 16, tokenizer: Any = None) -> Recomputed:
    """Decode greedily as `kvviz.decode` does, but feed the whole sequence to every run, with empty caches.

    Parameters
    ----------
    graph : Graph
        A decoder with growing caches.
    prompt : str or sequence of int
    max_new_tokens : int
        Runs; each gives one token.
    tokenizer : list of str, or object with encode and decode, optional
        As in `kvviz.decode`.

    Returns
    -------
    Recomputed

    Raises
    ------
    KvvizError
        If the graph has no caches that grow, or several prompts were given.
    """
    graph = as_graph(graph, "kvviz.lessons.recompute")
    own, _ = tokenizer_for(graph, prompt, tokenizer, ())
    tokens, _ = as_batch(prompt, own)
    if len(tokens) != 1:
        raise KvvizError(f"give one prompt, not {len(tokens)}")
    sequence = [int(token) for token in tokens[0]]
    made = Recomputed(words=text_of(own, sequence))
    for _ in range(max_new_tokens):
        done = forward(graph, [sequence], record=True)
        assert done.trace is not None
        made.rows.append(done.trace.caches[0].runs[0].rows_written)
        made.logits.append(done.logits[:, -1].copy())
        made.tokens.extend(done.next_tokens)
        sequence = [*sequence, *done.next_tokens]
        made.words.extend(text_of(own, done.next_tokens))
    return made
