"""A decode without a cache: what every run computes again, and what a cache would leave of it."""

from __future__ import annotations

from kvviz.explain.cache_findings import CacheFinding
from kvviz.graph.cache_pairs import control_inputs
from kvviz.trace.units import count
from kvviz.trace.value_index import Index

KIND = "no cache"


def recomputed_rows(index: Index) -> tuple[CacheFinding, ...]:
    """That no cache is kept, with the tokens that the runs computed; nothing for other traces.

    With a cache the first run computes the prompt and each later one a single token, in every sequence.
    """
    trace = index.trace
    if trace.options.kind != "decode" or 0 not in index.mains or any(c.protocol != "cross" for c in trace.caches):
        return ()
    name = control_inputs(trace.graph)["tokens"]
    fed = index.places.get((index.mains[0], name))
    if fed is None or not fed.shape:
        return ()
    runs, size = len(trace.runs), fed.shape[-1]
    sequences = fed.shape[0] if len(fed.shape) > 1 else 1
    fixed = next(value.shape and isinstance(value.shape[-1], int) for value in trace.graph.inputs if value.name == name)
    computed = sequences * sum(size if fixed else size + run for run in range(runs))
    longest = trace.options.rows - (trace.options.max_new_tokens or 0) + runs  # with all but the last new token
    text = f"{KIND}: every run computes all tokens again, {computed:,} in {count(runs, 'run')}"
    # A sequence whose first tokens are gone has its tokens at other places in every run, so nothing could be kept.
    if runs > 1 and not (fixed and longest > size):
        text += f"; a cache would leave {sequences * longest:,}"
    return (CacheFinding(KIND, (), 0, 0, text),)
