"""Figures of two traces over the runs that both have finished: like is compared with like.

A trace in a debugger may go on, and one that was stopped ends inside of a run; what it is held against has run all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.explain.summary import counts


@dataclass(frozen=True, slots=True)
class Figures:
    """What the first runs of a trace come to.

    ``peak, copied, allocated``: bytes.
    ``in_place, missed, steps``: steps.
    """

    peak: int
    copied: int
    allocated: int
    in_place: int
    missed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Alike:
    """The figures of two traces over the same runs.

    ``runs``: how many runs are counted, None: all of both.
    ``note``: which runs they are where it is not all of both, else empty.
    """

    runs: int | None
    note: str
    first: Figures
    second: Figures


def alike(a: Any, b: Any) -> Alike:
    """Figures of the runs that both traces have finished; of all that was recorded where one has finished none."""
    shared = min(finished(a), finished(b))
    if shared == len(a.runs) == len(b.runs):
        return Alike(None, "", figures(a), figures(b))
    if not shared:
        note = "one of them has not finished a run, so the figures cover different steps"
        return Alike(None, note, figures(a), figures(b))
    told = f"the {shared} runs" if shared > 1 else "the one run"
    return Alike(shared, f"figures of {told} that both have finished", figures(a, shared), figures(b, shared))


def finished(trace: Any) -> int:
    """How many runs of a trace have run to their end."""
    return len(trace.runs) - (trace.live is not None or trace.interrupted)


def figures(trace: Any, runs: int | None = None) -> Figures:
    """What a trace, or its first runs, come to."""
    count = counts(trace, runs)
    if runs is None:
        peak, copied, allocated = trace.peak_bytes, trace.bytes_copied, trace.bytes_allocated
    else:
        counted = trace.runs[:runs]
        peak = max(run.peak_bytes for run in counted)
        copied, allocated = (sum(getattr(run, name) for run in counted) for name in ("bytes_copied", "bytes_allocated"))
    steps = len(trace.steps) if runs is None else trace.runs[runs - 1].last
    return Figures(peak, copied, allocated, count.in_place, count.missed, steps)
