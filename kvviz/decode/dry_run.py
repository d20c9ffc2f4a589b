"""Dry runs: what a run does to memory, from layouts alone. No weight is read and no number computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from kvviz.decode.single_run import SingleRun
from kvviz.decode.synthetic_inputs import Maker
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.policy import Policy
from kvviz.engine.session import Session
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import remember
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import find_policy
from kvviz.trace.model_or_trace import as_graph
from kvviz.trace.recording import Trace


@with_other_names
def dry(
    graph: Graph | str | PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    prompt_tokens: int | None = None,
    max_new_tokens: int = 16,
    batch: int = 1,
    chunk: int | None = None,
    dims: Mapping[str, int] | None = None,
    counts: Mapping[str, int] | None = None,
    kv_capacity: int | None = None,
    donate: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    policy: str | Policy = "ideal",
    growth: str | None = None,
    cache: str = "growing",
) -> Trace:
    """Work out what a run or a decode does to memory, from layouts alone.

    Every decision, byte figure and cache meter is the one that `kvviz.run` or `kvviz.decode` records. Weights are not
    read, and arrays have no contents: a decode of a model of 144 GB takes seconds and a few hundred MB. What follows
    from lengths, masks and small constants is computed; numbers that depend on data are never guessed.

    Parameters
    ----------
    graph : Graph or path
        From `kvviz.load` or `kvviz.shapes`.
    inputs : mapping of str to array_like, optional
        Inputs whose values matter, as lengths or scales; all others are made from their shapes.
    prompt_tokens : int, optional
        Decode after a prompt of so many tokens; without it the graph is run once.
    max_new_tokens, batch : int
        In a decode: tokens to generate (as many runs are made), and sequences.
    chunk : int, optional
        In a decode: tokens of the prompt that a run is fed at most; by default all at once.
    dims : mapping of str to int, optional
        Lengths of open dimensions, as in `kvviz.inputs`.
    counts : mapping of str to int, optional
        What depends on data, by node: how many elements a NonZero or Compress picks, how often a Loop runs, 1 or 0 for
        the branch of an If.
    kv_capacity, donate, outputs, policy, growth, cache
        As in `kvviz.run` and `kvviz.decode`.

    Returns
    -------
    Trace
        With ``dry`` set; ``outputs``, ``tokens`` and ``logits`` are not recorded.

    Raises
    ------
    UnknownValueError
        A shape or a branch depends on data that ``counts`` does not state.
    InputError
        As in `kvviz.run` and `kvviz.decode`.

    Notes
    -----
    A policy of your own takes part as it is, if it looks at layouts only: shapes, types, strides, owners. Arrays of a
    dry run have no contents that a rule could read.

    Examples
    --------
    >>> trace = kvviz.dry(kvviz.shapes.preset("llama-3-8b"), prompt_tokens=2048, max_new_tokens=8)
    >>> trace.peak_bytes
    """
    graph = as_graph(graph, "kvviz.dry")
    stated = dict(counts or {})
    if stated:
        _check_counts(graph, stated)
    given = dict(inputs or {})
    donate = (donate,) if isinstance(donate, str) else tuple(donate)
    if prompt_tokens is None:
        options = (("kv_capacity", kv_capacity, None), ("chunk", chunk, None), ("growth", growth, None))
        for name, value, usual in (*options, ("batch", batch, 1), ("cache", cache, "growing")):
            if value != usual:
                raise InputError(f"{name}={value!r} is for a decode; give prompt_tokens, too")
        policy = find_policy(policy)
        # Inputs that only what is given would have needed are left out.
        begun = policy.feeds_inner(graph, tuple(given), donate, outputs) if policy.feeds_inner else graph
        maker = Maker(begun, dims or {}, given, dry=True)
        feeds = maker.filled(maker.open_dims()).make()
        return _traced(SingleRun(graph, feeds, outputs, donate, policy, dry=stated), given)
    if prompt_tokens < 1 or batch < 1:
        raise InputError(f"a decode needs at least one token and one sequence, not {prompt_tokens} and {batch}")
    maker = Maker(graph, dims or {}, given, decoding=True, dry=True)
    feeds = maker.filled(maker.open_dims()).make()
    prompt = [[0] * prompt_tokens] * batch
    session = DecodeSession(
        graph,
        prompt,
        max_new_tokens,
        feeds,
        policy,
        kv_capacity,
        stop_tokens=(),
        growth=growth,
        donate=donate,
        cache=cache,
        chunk=chunk,
        dry=stated,
    )
    return _traced(session, given)


def _traced(session: Session, given: Mapping[str, Any]) -> Trace:
    """Every face of a trace shows its title. What the caller donated has its contents still."""
    try:
        trace = session.run_to_end()
    finally:
        for value in given.values():
            if isinstance(value, np.ndarray):
                remember(value)
    trace.title += ", dry run"
    return trace


def _check_counts(graph: Graph, counts: Mapping[str, int]) -> None:
    names = {node.name for _, node in graph.walk()}
    for name, count in counts.items():
        if name not in names:
            raise InputError(f"counts names {name!r}, and the graph has no such node")
        if count < 0:
            raise InputError(f"counts of {name!r} must be 0 or more, not {count}")
