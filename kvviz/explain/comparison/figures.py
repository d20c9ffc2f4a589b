"""Figures of traces that are compared: a row of a comparison, and figures for the runs that both have finished.

A trace in a debugger may be unfinished, and an interrupted one ends within a run, while the other has all runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.explain.comparison.equality import unlike
from kvviz.explain.summary import counts
from kvviz.runtimes.named_schedules import label
from kvviz.runtimes.policy_data import schedule_of
from kvviz.trace.recording import Trace


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one of the compared traces.

    Attributes
    ----------
    name : str
    policy, schedule : str
        Names of its rules and of its order.
    peak, above_weights : int
        The largest number of bytes alive, with and without the weights.
    allocated, written, copied : int
        Bytes.
    moved_outside : int
        Bytes that the caller of a decode moved between runs to give caches more room; not part of ``copied``.
    in_place, missed : int
        Ops that ran in place, and that could have by kind but spent memory instead.
    missed_bytes : int
        Bytes that these spent.
    cannot, cannot_bytes : int
        Ops that cannot run in place by kind under the policy, and bytes that they spent. A policy that can do less
        also misses less.
    steps : int
    equal : bool or None
        Its results are those of the first row, within 1e-5; None if either is a dry run, which has no results.
    difference : str
        How the results differ; empty if they do not.
    """

    name: str
    policy: str
    schedule: str
    peak: int
    above_weights: int
    allocated: int
    written: int
    copied: int
    moved_outside: int
    in_place: int
    missed: int
    missed_bytes: int
    cannot: int
    cannot_bytes: int
    steps: int
    equal: bool | None
    difference: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of the first runs of a trace.

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

    ``runs``: how many runs are counted; None: all of both.
    ``note``: which runs are counted, if not all of both; else empty.
    """

    runs: int | None
    note: str
    first: Figures
    second: Figures


def alike(a: Trace, b: Trace) -> Alike:
    """Figures of the runs that both traces have finished; of everything recorded if one has finished none."""
    shared = min(finished(a), finished(b))
    if shared == len(a.runs) == len(b.runs):
        return Alike(None, "", figures(a), figures(b))
    if not shared:
        note = "one of them has not finished a run, so the figures cover different steps"
        return Alike(None, note, figures(a), figures(b))
    which = f"the {shared} runs" if shared > 1 else "the one run"
    return Alike(shared, f"figures of {which} that both have finished", figures(a, shared), figures(b, shared))


def finished(trace: Trace) -> int:
    """The number of finished runs of a trace."""
    return len(trace.runs) - (trace.live is not None or trace.interrupted)


def figures(trace: Trace, runs: int | None = None) -> Figures:
    """The figures of a trace, or of its first runs."""
    count = counts(trace, runs)
    if runs is None:
        peak, copied, allocated = trace.peak_bytes, trace.bytes_copied, trace.bytes_allocated
    else:
        counted = trace.runs[:runs]
        peak = max(run.peak_bytes for run in counted)
        copied, allocated = (sum(getattr(run, name) for run in counted) for name in ("bytes_copied", "bytes_allocated"))
    steps = len(trace.steps) if runs is None else trace.runs[runs - 1].last
    return Figures(peak, copied, allocated, count.in_place, count.missed, steps)


def row_of(name: str, trace: Trace, reference: Trace) -> Row:
    """A trace as a row of a comparison; its results are compared with those of a reference."""
    count = counts(trace)
    weights = sum(s.capacity for s in trace.log.storages if s.origin == "weights")
    equal, difference = unlike(trace, reference)
    return Row(
        name,
        trace.policy.name,
        label(schedule_of(trace.policy)),
        trace.peak_bytes,
        trace.peak_bytes - weights,
        trace.bytes_allocated,
        trace.bytes_written,
        trace.bytes_copied,
        sum(run.bytes_moved_outside for run in trace.runs),
        count.in_place,
        count.missed,
        count.missed_bytes,
        count.cannot,
        count.cannot_bytes,
        len(trace.steps),
        equal,
        difference,
    )
