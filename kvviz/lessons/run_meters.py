"""Figures of all caches together: what tables and plots of lessons begin with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvviz.report.explain import explain
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step


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


def doubling_moves(rows: int, runs: int) -> list[int]:
    """Rows that a caller moves after each run, if a full cache goes into a buffer of twice its length.

    Parameters
    ----------
    rows : int
        Valid rows after the first run; each later run adds one. The first buffer has room for one row.
    runs : int
    """
    capacity, found = 1, []
    for valid in range(rows, rows + runs):
        full = valid >= capacity  # no room for one row more
        found.append(valid if full else 0)
        capacity = 2 * valid if full else capacity
    return found


@dataclass(slots=True)
class MissedKind:
    """Missed in-place ops of one kind: how many, what they spent, and the costliest of them."""

    count: int
    bytes: int
    worst: Step


def missed_in(trace: Trace, run: int) -> dict[str, MissedKind]:
    """What could have run in place in a run and did not, by kind of op, the costliest first."""
    asked, kinds = trace.runs[run], dict[str, MissedKind]()
    for entry in explain(trace).missed:
        for step in (trace.steps[i] for i in entry.steps if asked.first <= i < asked.last):
            spent = max(step.allocated, step.copied)
            kind = kinds.setdefault(entry.op_type, MissedKind(0, 0, step))
            kind.count, kind.bytes = kind.count + 1, kind.bytes + spent
            kind.worst = max(kind.worst, step, key=lambda one: max(one.allocated, one.copied))
    return dict(sorted(kinds.items(), key=lambda item: -item[1].bytes))
