"""One forward pass of a decoder with its caches in one's own hands.

What a serving system does between two passes is done to plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.decode.public_runs import run
from kvviz.errors import KvvizError
from kvviz.graph.cache_pairs import CachePair, cache_pairs, control_inputs, logits_output
from kvviz.graph.model import Graph
from kvviz.memory import reserve
from kvviz.trace.model_or_trace import as_graph
from kvviz.trace.recording import Trace

Rows = dict[str, np.ndarray]
"""Cached keys and values by input name, each (batch, KV heads, rows, head size)."""

AXIS = 2


@dataclass(frozen=True, slots=True)
class Pass:
    """What a forward pass gave.

    Attributes
    ----------
    logits : ndarray
        (batch, new tokens, vocabulary).
    rows : Rows
        The caches with the new rows behind the old ones.
    trace : Trace or None
        If it was recorded.
    """

    logits: np.ndarray
    rows: Rows
    trace: Trace | None

    @property
    def next_tokens(self) -> list[int]:
        """The likeliest next token of each sequence."""
        return [int(token) for token in self.logits[:, -1].argmax(-1)]


def pairs_of(graph: Graph) -> tuple[CachePair, ...]:
    """The caches of a graph that takes them with any number of rows.

    Raises `KvvizError`: if a cache of it is of another kind.
    """
    pairs = tuple(cache_pairs(graph))
    other = [pair.name for pair in pairs if pair.protocol != "growing" or pair.axis != AXIS]
    if other or not pairs:
        raise KvvizError(f"{graph.name} has no caches that grow row by row; use the form with Concat")
    return pairs


def empty_rows(graph: Graph, batch: int = 1, room: int = 0) -> Rows:
    """Caches without a row.

    ``room``: rows to reserve, so that rows are appended in place.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.empty_rows")
    shapes = {value.name: value.shape for value in graph.inputs}
    made: Rows = {}
    for pair in pairs_of(graph):
        _, heads, _, size = shapes[pair.input] or ()
        bare = np.zeros((batch, int(heads or 0), 0, int(size or 0)), np.float32)
        made[pair.input] = reserve(bare, AXIS, room) if room else bare
    return made


def forward(
    graph: Graph,
    tokens: Sequence[Sequence[int]],
    past: Rows | None = None,
    *,
    positions: Sequence[Sequence[int]] | None = None,
    mask: Sequence[Sequence[int]] | None = None,
    donate: bool = False,
    record: bool = False,
) -> Pass:
    """Run a decoder over new tokens.

    Parameters
    ----------
    graph : Graph
        With growing caches.
    tokens : sequence of sequence of int
        New tokens of each sequence, as many of each.
    past : Rows, optional
        What is cached; nothing by default.
    positions : sequence of sequence of int, optional
        Of the new tokens; by default they come right behind the cached rows.
    mask : sequence of sequence of int, optional
        1 for each row, cached ones first, that may be attended to; by default all.
    donate : bool
        The pass may overwrite ``past``: rows are appended in place where there is room.
    record : bool
        Keep the trace.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.forward")
    lengths = {np.size(one) for one in tokens} if all(np.ndim(one) == 1 for one in tokens) else set()
    if len(lengths) != 1 or 0 in lengths:
        raise KvvizError(f"give tokens as lists of equal length, one for each sequence; not {tokens!r:.60}")
    ids = np.asarray(tokens, np.int64)
    batch, new = ids.shape
    pairs = pairs_of(graph)
    rows = empty_rows(graph, batch) if past is None else past
    if lost := [pair.input for pair in pairs if pair.input not in rows]:
        raise KvvizError(f"past= has no rows of {', '.join(lost[:3])}; begin with serving.empty_rows(graph)")
    held = rows[pairs[0].input].shape[AXIS]
    at = np.arange(held, held + new)[None].repeat(batch, 0)
    seen = np.ones((batch, held + new), np.int64)
    at = at if positions is None else _like(at, positions, "positions")
    seen = seen if mask is None else _like(seen, mask, "mask")
    made = {"tokens": ids, "position_ids": at, "attention_mask": seen}
    roles = {role: name for role, name in control_inputs(graph).items() if role in made}
    feeds: dict[str, Any] = {name: made[role] for role, name in roles.items()}
    given = [pair.input for pair in pairs] if donate else []
    trace = run(graph, {**feeds, **rows}, donate=given, record=record)
    logits = trace.outputs[logits_output(graph) or "logits"]
    return Pass(logits, {pair.input: trace.outputs[pair.output] for pair in pairs}, trace if record else None)


def _like(usual: np.ndarray, given: Any, name: str) -> np.ndarray:
    """What was given in place of what is usual, if it has its shape."""
    try:
        made = np.asarray(given, np.int64)
    except ValueError:
        made = None
    if made is None or made.shape != usual.shape:
        shape = "lists of several lengths" if made is None else f"shape {made.shape}"
        raise KvvizError(f"{name}= has {shape}; it needs {usual.shape}: one number for each, by sequence")
    return made


Change = Callable[[Rows, list[int]], tuple[Rows, list[int]]]


@dataclass(frozen=True, slots=True)
class Told:
    """A decode with a change of the caches after each pass.

    Attributes
    ----------
    tokens : list of int
        What was told.
    kept : list of list of int
        Positions whose rows each decode step found in the cache.
    """

    tokens: list[int]
    kept: list[list[int]]


def tell(graph: Graph, prompt: Sequence[int], new_tokens: int, change: Change | None = None) -> Told:
    """Decode greedily; rows keep the positions at which they were computed, whatever is thrown away.

    Parameters
    ----------
    prompt : sequence of int
    new_tokens : int
    change : callable, optional
        Called after each pass with the rows and their positions; gives those that the next pass finds.

    Raises `KvvizError`: if no new token is asked for.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.tell")
    if new_tokens < 1:
        raise KvvizError(f"new_tokens is {new_tokens}; ask for one at least")
    done = forward(graph, [list(prompt)])
    positions, rows = list(range(len(prompt))), done.rows
    tokens, kept = done.next_tokens, []
    while len(tokens) < new_tokens:
        if change is not None:
            rows, positions = change(rows, positions)
        kept.append(positions)
        at = len(prompt) + len(tokens) - 1
        done = forward(graph, [[tokens[-1]]], rows, positions=[[at]])
        rows, positions = done.rows, [*positions, at]
        tokens += done.next_tokens
    return Told(tokens, kept)


def take(rows: Mapping[str, np.ndarray], places: Sequence[int]) -> Rows:
    """The rows at these places, copied."""
    return {name: np.take(array, np.asarray(places, np.int64), axis=AXIS) for name, array in rows.items()}
