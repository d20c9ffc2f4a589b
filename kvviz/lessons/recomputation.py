"""Rows that are computed again: in a decode without a cache, and from other tokens, to see what they depend on."""

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
    """What was generated without a cache, and what it took."""

    tokens: list[int] = field(default_factory=list)  # new ones
    words: list[str] = field(default_factory=list)  # prompt and new tokens as text
    logits: list[np.ndarray] = field(default_factory=list)  # last row of each run, (1, vocabulary)
    rows: list[int] = field(default_factory=list)  # key rows that each run computed for one head of one layer


def recompute(graph: Graph, prompt: str | Sequence[int], max_new_tokens: int = 16, tokenizer: Any = None) -> Recomputed:
    """Decode greedily as `kvviz.decode` does, but feed the whole sequence to every run, with empty caches.

    Raises `KvvizError`: if the graph has no caches that grow, or several prompts were given.
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


def changed_rows(graph: Graph, tokens: Sequence[int], other: Sequence[int]) -> np.ndarray:
    """How much the key rows of tokens differ from those that are computed from other tokens in their place.

    ``other`` is at least as long; what it has behind is not compared. Gives the largest absolute difference in each
    row over all heads, (layers, tokens).
    """
    graph = as_graph(graph, "kvviz.lessons.changed_rows")
    count = len(tokens)
    if len(other) < count:
        raise KvvizError(f"the other tokens are {len(other)}; give at least as many as there are rows, {count}")
    mine, theirs = (forward(graph, [list(one)]).rows for one in (tokens, other))
    keys = [name for name in mine if name.endswith("key")]
    return np.array([abs(mine[name] - theirs[name][:, :, :count]).max((0, 1, 3)) for name in keys])
