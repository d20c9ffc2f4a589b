"""Figures of all caches together: what tables and plots of lessons begin with."""

from __future__ import annotations

from collections import Counter

from kvviz.trace.recording import Trace


def per_run(trace: Trace, meter: str) -> list[int]:
    """One meter of the caches, added up over all of them, for each run.

    Parameters
    ----------
    meter : str
        A field of ``trace.caches[i].runs[j]``: ``"bytes_copied"``, ``"bytes_written"``, ``"bytes_moved_outside"``, …
    """
    return [sum(getattr(cache.runs[run.index], meter) for cache in trace.caches) for run in trace.runs]


def copied_by(trace: Trace) -> Counter[str]:
    """Bytes that all ops of each kind copied, the largest first."""
    found: Counter[str] = Counter()
    for step in trace.steps:
        found[step.op_type] += step.copied
    return Counter(dict(found.most_common()))
