"""Which runs are sent with their steps, and what is sent for every run: totals, words and caches.

Invariant: the totals of all runs are sent, whether or not their steps are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from kvviz.caches.cache_facts import rows_given
from kvviz.caches.path_search import attention_ops
from kvviz.trace.recording import Trace
from kvviz.trace.records import meter_in_turn
from kvviz.trace.units import run_label

__all__ = ["caches_header", "few_runs", "run_label", "runs_header", "story_header"]

# The default maximum of steps in a payload; 60,000 are about 1.5 MB, and a second of work for the page.
BUDGET = 60_000
# Of a longer recording, the first runs, the last one, and this many in between are sent.
_BETWEEN = 6


def few_runs(runs: Sequence[Any], budget: int | None = None) -> frozenset[int] | None:
    """The runs whose steps are sent if there are too many steps.

    Those in between are multiples of a power of two, so that they stay the same while a recording grows.

    ``budget``: steps; `BUDGET` by default.

    Returns the first two runs, the last one, and some in between; None: all of them fit.
    """
    budget = BUDGET if budget is None else budget
    if sum(run.last - run.first for run in runs) <= budget or len(runs) < 2:
        return None
    stride = 1
    while len(runs) > stride * _BETWEEN:
        stride *= 2
    last = len(runs) - 1
    chosen = [0, last]
    left = budget - sum(runs[i].last - runs[i].first for i in chosen)
    for i in dict.fromkeys((1, *range(stride, last, stride))):
        if 0 < i < last and (left := left - (runs[i].last - runs[i].first)) >= 0:
            chosen.append(i)
    return frozenset(chosen)


def runs_header(trace: Trace, kept: Sequence[int]) -> list[dict[str, Any]]:
    """Totals of every run.

    ``kept``: numbers of the steps that are sent, ascending. ``first`` and ``last`` are places among them, equal for a
      run whose steps are not sent; ``from`` is the number of its first step, and ``steps`` how many were recorded.
    """
    return [
        {
            "first": bisect_left(kept, run.first),
            "last": bisect_left(kept, run.last),
            "from": run.first,
            "steps": run.last - run.first,
            "label": run_label(trace, run.index),
            "token": run.token,
            "text": run.text,
            "peak": run.peak_bytes,
            "copied": run.bytes_copied,
            "written": run.bytes_written,
            "allocated": run.bytes_allocated,
        }
        for run in trace.runs
    ]


def story_header(trace: Trace) -> list[dict[str, Any]]:
    """Words of the prompt, then of every token with the run that produced it."""
    tokens = [*trace.prompt, *trace.known("tokens")]
    words = list(trace.words or ())
    words += [str(token) for token in tokens[len(words) :]]
    makers = [run.index for run in trace.runs if run.token is not None]
    return [
        {
            "text": word,
            "run": makers[i - len(trace.prompt)] if 0 <= i - len(trace.prompt) < len(makers) else None,
            "prompt": i < len(trace.prompt),
        }
        for i, word in enumerate(words[: len(tokens)])
    ]


def caches_header(trace: Trace) -> list[dict[str, Any]]:
    """The cache meters that all panes show, by run; `kvviz.view.page_data.payload_cache_rows` has more."""
    meter_in_turn(trace.caches)
    places = [_layer_and_role(cache.name) for cache in trace.caches]
    return [
        {
            "name": cache.name,
            "layer": layer,
            "role": role,
            "input": cache.input,
            "output": cache.output,
            "protocol": cache.protocol,
            "axis": cache.axis,
            "capacity": [r.capacity for r in cache.runs],
            "valid": [r.valid for r in cache.runs],
            "given": rows_given(trace, cache),
            "copied": [r.bytes_copied for r in cache.runs],
            "written": [r.bytes_written for r in cache.runs],
            "storage": [r.storage for r in cache.runs],
            "attention": attention_ops(trace, cache),
        }
        for cache, (layer, role) in zip(trace.caches, places)
    ]


def _layer_and_role(name: str) -> tuple[int, str]:
    """Split ``0.key`` into layer 0 and ``key``; a name without a leading number has no layer (-1)."""
    layer, _, role = name.partition(".")
    return (int(layer), role) if layer.isdecimal() and role else (-1, name)
