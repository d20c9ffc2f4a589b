"""The public functions: run a graph once, decode, or compute from layouts alone what either does to memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.decode.prompt import as_prompts
from kvviz.decode.run_sessions import SingleRun, again
from kvviz.decode.synthetic_inputs import generated
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.plan import Counts
from kvviz.engine.policy import Policy
from kvviz.engine.sessions.session import Session, note_interrupt
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from kvviz.interrupts import held_back
from kvviz.memory.ghosts import remember
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import find_policy
from kvviz.trace.model_or_trace import as_graph, as_inputs
from kvviz.trace.recording import Trace
from kvviz.trace.schema.run_options import RunOptions, names_in, refuse_for_one_run


@with_other_names
def run(
    graph: Graph | str | os.PathLike[str],
    inputs: Mapping[str, Any],
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    *,
    record: bool = True,
    poison: bool = False,
    dry: bool = False,
) -> Trace:
    """Run a graph once and record what it does to memory.

    Parameters
    ----------
    graph : Graph or path
        From `kvviz.load`, or the path of a model.
    inputs : mapping of str to array_like
        By name. Only donated inputs may change. The policy ``rten`` also accepts inner values: nodes that only compute
        these do not run, and inputs that nothing else reads may be left out.
    outputs : sequence of str, optional
        Values to compute (any value of the main graph); the graph's outputs by default.
    donate : sequence of str
        Inputs that the run may overwrite, or append to if they come from `kvviz.reserve`.
    policy : str or Policy
        ``"ideal"``, ``"never"``, or a `kvviz.Policy`.
    record : bool
        False counts bytes but records no steps.
    poison : bool
        Overwrite freed storages with a pattern, to catch a use after free.
    dry : bool
        Work out layouts only: the same as `kvviz.dry`.

    Returns
    -------
    Trace
        With ``outputs``. If the run was stopped from the keyboard, ``interrupted`` is set and the trace holds what ran.
        Of a graph that ran before on such inputs, the rest of the trace is made by a second run when it is first read,
        and has no steps if the first one was stopped.

    Raises
    ------
    InputError, UnsupportedOpsError, GraphError, OpError
        The message is one sentence. An input error changes nothing.

    Examples
    --------
    >>> trace = kvviz.run(graph, {"x": np.ones((2, 3), np.float32)}, donate=["x"])
    >>> trace.outputs["y"].shape
    (2, 3)
    """
    graph = as_graph(graph, "kvviz.run")
    if dry:
        return _dry_run(graph, inputs, {}, {}, outputs, donate, policy, record)
    trace = None if donate or poison else again(graph, inputs, outputs, policy, record)
    return trace or SingleRun(graph, inputs, outputs, donate, policy, record, poison).run_to_end()


@with_other_names
def decode(
    graph: Graph | str | os.PathLike[str],
    prompt: Any,
    max_new_tokens: int = 16,
    inputs: Mapping[str, Any] | None = None,
    policy: str | Policy = "ideal",
    kv_capacity: int | None = None,
    tokenizer: Any = None,
    *,
    stop_tokens: Collection[int] | None = None,
    record: bool = True,
    poison: bool = False,
    progress: bool = True,
    growth: str | None = None,
    donate: Sequence[str] = (),
    cache: str = "growing",
    detail: Collection[int] | None = None,
    dry: bool = False,
) -> Trace:
    """Decode greedily and record every op of every step.

    Parameters
    ----------
    graph : Graph or path
        A decoder with caches of any usual form: growing, merged (``use_cache_branch``), static, GroupQueryAttention,
        states. A decoder without a cache is fed the whole sequence at every run.
    prompt : str, sequence of int, or sequence of these
        Several prompts make a batch, padded on the left; on the right for GroupQueryAttention, which counts rows, and
        for decoders without a cache. If the graph takes one token per run, each token of the prompt has its own run.
    max_new_tokens : int
        Maximum number of tokens to generate; the prefill gives the first one.
    inputs : mapping, optional
        Further inputs, such as ``encoder_hidden_states``, or initial caches.
    policy : str or Policy
    kv_capacity : int, optional
        Rows to reserve in growing caches, so that new rows are appended in place.
    tokenizer : list of str, or object with encode and decode, optional
        For a prompt that is a text, and to show tokens as words. By default the tokenizer beside the model, if the
        prompt is a text.
    stop_tokens : collection of int, optional
        Tokens that end the decode. By default the end-of-text tokens of the model's own tokenizer, if the prompt was
        tokenized with it; otherwise none.
    record, poison : bool
        As in `kvviz.run`.
    progress : bool
        Show a progress bar when it takes longer than a second.
    growth : str, optional
        ``"start"``: room for growing caches is reserved once, before the first run. ``"after"``: a growing cache that
        has no room for one more row is moved after a run, by the caller, into a buffer of ``max(kv_capacity, 2 × its
        length)`` rows, and begins with ``kv_capacity`` rows or one. These bytes are not copied by kernels;
        `Run.bytes_moved_outside` counts them. By default the policy decides.
    donate : sequence of str
        Inputs that a run may overwrite: inputs made for each run (tokens, masks, positions), and caches given to start
        from. Caches of earlier runs are always donated.
    cache : str
        ``"growing"``; ``"shared"``: past and present of GroupQueryAttention are one buffer of ``kv_capacity`` rows
        (by default as many as are needed), in which rows are overwritten; ``"window"``: a decoder without a cache whose
        sequences have a fixed length is fed the last tokens that fit.
    detail : collection of int, optional
        Numbers of the runs whose steps are kept, besides the first run; by default all runs. Totals, tokens and cache
        meters are kept for every run. A long decode of a large model needs some hundred bytes per step.
    dry : bool
        Work out layouts only: the same as `kvviz.dry` after a prompt of this length. Which tokens are generated is not
        known, so that none ends the decode.

    Returns
    -------
    Trace
        With ``tokens``, ``words``, ``caches``, and ``logits`` (for each token an array of shape (batch, vocabulary)).
        Caches are donated from run to run. Stopping it from the keyboard leaves a trace of what ran, with
        ``interrupted`` set.

    Examples
    --------
    >>> trace = kvviz.decode(graph, "once upon a time", 12, tokenizer=words, kv_capacity=32)
    >>> print(*trace.words)
    """
    graph = as_graph(graph, "kvviz.decode")
    options = RunOptions(
        *("decode", donate, max_new_tokens, kv_capacity, growth, cache, tokenizer),
        stop_tokens=stop_tokens,
        detail=detail,
    )
    if dry:
        return _dry_decode(graph, prompt, options, inputs, {}, {}, policy, record)
    from tqdm.auto import tqdm

    session = DecodeSession(graph, prompt, options, inputs, policy, record, poison)
    with held_back():
        with tqdm(total=max_new_tokens, unit="token", delay=1.0, disable=not progress, leave=False) as bar:
            # A session held by its own bell would wait for the collector.
            runs = session.trace.runs
            session.on_run_end = lambda: bar.update(int(runs[-1].token is not None))
            session.run_to_end()
        return note_interrupt(session.trace)


@with_other_names
def dry(
    graph: Graph | str | os.PathLike[str],
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
    detail: Collection[int] | None = None,
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
        Inputs whose values matter, such as lengths or scales; all others are made from their shapes.
    prompt_tokens : int, optional
        Decode after a prompt of this length; without it the graph is run once.
    max_new_tokens, batch : int
        In a decode: tokens to generate (as many runs are made), and sequences.
    chunk : int, optional
        In a decode: the most tokens of the prompt per run; by default all at once.
    dims : mapping of str to int, optional
        Lengths of open dimensions, as in `kvviz.inputs`.
    counts : mapping of str to int, optional
        Counts that depend on data, by node: how many elements a NonZero or Compress picks, how often a Loop runs, 1 or
        0 for the branch of an If.
    kv_capacity, donate, outputs, policy, growth, cache, detail
        As in `kvviz.run` and `kvviz.decode`.

    Returns
    -------
    Trace
        With ``dry`` set; ``outputs``, ``tokens`` and ``logits`` are not recorded.

    Raises
    ------
    UnknownValueError
        A shape or a branch depends on data that ``counts`` does not give.
    InputError
        As in `kvviz.run` and `kvviz.decode`.

    Notes
    -----
    A policy of your own works unchanged if it reads layouts only: shapes, types, strides, owners. Arrays of a
    dry run have no contents that a rule could read.

    Examples
    --------
    >>> trace = kvviz.dry(kvviz.shapes.preset("llama-3-8b"), prompt_tokens=2048, max_new_tokens=8)
    >>> trace.peak_bytes
    """
    graph = as_graph(graph, "kvviz.dry")
    options = RunOptions(
        *("decode", donate, max_new_tokens, kv_capacity, growth, cache), tokenizer=None, chunk=chunk, detail=detail
    )
    if prompt_tokens is None:
        refuse_for_one_run(options, "prompt_tokens")
        if batch != 1:
            raise InputError(f"batch={batch} is for a decode; give prompt_tokens, too")
        return _dry_run(graph, inputs, dims, counts, outputs, donate, policy)
    if not isinstance(prompt_tokens, (int, np.integer)):
        raise InputError(
            f"prompt_tokens is how many tokens the prompt has, not {prompt_tokens!r}; kvviz.decode takes the tokens"
        )
    if prompt_tokens < 1 or batch < 1:
        raise InputError(f"a decode needs at least one token and one sequence, not {prompt_tokens} and {batch}")
    if outputs is not None:
        raise InputError("outputs is for one run; a decode computes all outputs")
    return _dry_decode(graph, [[0] * prompt_tokens] * batch, options, inputs, dims, counts, policy)


def _dry_run(
    graph: Graph,
    inputs: Mapping[str, Any] | None,
    dims: Mapping[str, int] | None,
    counts: Counts | None,
    outputs: Sequence[str] | None,
    donate: Sequence[str],
    policy: str | Policy,
    record: bool = True,
) -> Trace:
    given, stated = as_inputs(inputs), _checked(graph, counts)
    donate = names_in(donate)
    policy = find_policy(policy)
    # Inputs that only given values would have needed are left out.
    begun = policy.feeds_inner(graph, tuple(given), donate, outputs) if policy.feeds_inner else graph
    feeds = generated(begun, dims or {}, given, dry=True)
    return _traced(SingleRun(graph, feeds, outputs, donate, policy, record, dry=stated), given)


def _dry_decode(
    graph: Graph,
    prompt: Any,
    options: RunOptions,
    inputs: Mapping[str, Any] | None,
    dims: Mapping[str, int] | None,
    counts: Counts | None,
    policy: str | Policy,
    record: bool = True,
) -> Trace:
    given, stated = as_inputs(inputs), _checked(graph, counts)
    prompts = as_prompts(prompt)
    feeds = generated(graph, dims or {}, given, decoding=len(prompts), dry=True)
    return _traced(DecodeSession(graph, prompts, options, feeds, policy, record, dry=stated), given)


def _traced(session: Session, given: Mapping[str, Any]) -> Trace:
    """Every display of a trace shows its title. Donated inputs still have their contents."""
    try:
        trace = session.run_to_end()
    finally:
        for value in given.values():
            if isinstance(value, np.ndarray):
                remember(value)
    trace.title += ", dry run"
    return trace


def _checked(graph: Graph, counts: Counts | None) -> Counts:
    """The given counts, after checking that their nodes use them."""
    nodes = {node.name: node for _, node in graph.walk()} if counts else {}
    for name, count in (counts or {}).items():
        if name not in nodes:
            raise InputError(f"counts names {name!r}, and the graph has no such node")
        if count < 0:
            raise InputError(f"counts of {name!r} must be 0 or more, not {count}")
    return dict(counts or {})
