"""Figures of traces that are compared: a row of a comparison, and figures for the runs that both have finished.

A trace in a debugger may be unfinished, and an interrupted one ends within a run, while the other has all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvviz.explain.summary import counts
from kvviz.runtimes.named_policies import label, schedule_of
from kvviz.trace.recording import Trace
from kvviz.trace.units import short, weight_bytes

TOLERANCE = 1e-5


def unlike(trace: Trace, reference: Trace) -> tuple[bool | None, str]:
    """Compare the results of a trace with those of another one. Returns whether all common results agree within
    `TOLERANCE`, relative or absolute; tokens, integers and shapes exactly; None if one of them is a dry run. Also a
    text: the largest difference, or what one of them lacks; empty if everything agrees."""
    if trace.dry or reference.dry:
        return None, "dry run, no results"
    if trace is reference:
        return True, ""
    worst, text, equal = 0.0, "", True
    for name, have, want in _results(trace, reference):
        difference = _difference(have, want)
        if isinstance(difference, str):
            return False, f"{short(name, 40)} {difference}"
        size, within = difference
        if size > worst or (not within and equal):
            worst, text = size, f"{short(name, 40)}: off by {size:.2g}"
        equal = equal and within
    missing = [name for name in reference.outputs if name not in trace.outputs]
    missing += [name for name in trace.outputs if name not in reference.outputs]
    if missing and not text:
        text = f"only one of them computed {', '.join(short(name, 40) for name in missing[:3])}"
    return equal, text


def _results(trace: Trace, reference: Trace) -> Iterator[tuple[str, Any, Any]]:
    """Name and both values of every result: tokens and logits of a decode, results of every run of a stream."""
    if trace.prompt or reference.prompt:
        yield "tokens", [np.array(row) for row in trace.batch_tokens], [np.array(r) for r in reference.batch_tokens]
        for run, (have, want) in enumerate(zip(trace.logits, reference.logits)):
            yield f"the logits of run {run}", have, want
    for run, (have, want) in enumerate(zip(trace.results, reference.results)):
        for name in have:
            yield f"{name} of run {run}", have[name], want[name]
    for name, have in trace.outputs.items():
        if name in reference.outputs:
            yield name, have, reference.outputs[name]


def _difference(have: Any, want: Any) -> tuple[float, bool] | str:
    """The largest difference and whether it is within the tolerance, or a text on a difference in kind."""
    if isinstance(have, (list, tuple)) and isinstance(want, (list, tuple)):
        if len(have) != len(want):
            return f"has {len(have)} elements, not {len(want)}"
        found = [_difference(mine, theirs) for mine, theirs in zip(have, want)]
        wrong = next((f for f in found if isinstance(f, str)), None)
        if wrong is not None:
            return wrong
        pairs = [f for f in found if not isinstance(f, str)]
        return max((size for size, _ in pairs), default=0.0), all(within for _, within in pairs)
    if not (isinstance(have, np.ndarray) and isinstance(want, np.ndarray)):
        return (0.0, True) if type(have) is type(want) else "is of another kind"
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
    if have.dtype == object or have.dtype.kind in "USb":
        same = bool((have == want).all())
        return (0.0, True) if same else "has other elements"
    if have.tobytes() == want.tobytes():
        return 0.0, True
    kind: type = np.complex128 if have.dtype.kind == "c" else np.float64
    mine: np.ndarray = have.astype(kind)
    theirs: np.ndarray = want.astype(kind)
    exact = have.dtype.kind in "iu"
    within = bool(np.allclose(mine, theirs, 0 if exact else TOLERANCE, 0 if exact else TOLERANCE, equal_nan=True))
    if (np.isnan(mine) != np.isnan(theirs)).any():
        return "has NaN at other places"
    with np.errstate(invalid="ignore"):
        gaps = np.abs(mine - theirs)
    return float(gaps.max(initial=0.0, where=~np.isnan(gaps))), within


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one of the compared traces.

    ``policy, schedule``: names of its rules and of its order.
    ``peak, above_weights``: the largest number of bytes alive, with and without the weights.
    ``allocated, written, copied``: bytes.
    ``moved_outside``: bytes that the caller of a decode moved between runs to give caches more room; not part of
      ``copied``.
    ``in_place, missed``: ops that ran in place, and that could have by kind but spent ``missed_bytes`` instead.
    ``cannot, cannot_bytes``: ops that cannot run in place by kind under the policy, and bytes that they spent; a policy
      that can do less also misses less.
    ``equal``: its results are those of the first row, within 1e-5; None if either is a dry run.
    ``difference``: how the results differ; empty if they do not.
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


class Alike(NamedTuple):
    """The figures of two traces over the same runs, by name. ``runs``: how many are counted; None: all of both.
    ``note``: which runs are counted, if not all of both; else empty."""

    runs: int | None
    note: str
    figures: tuple[dict[str, int], dict[str, int]]


def alike(a: Trace, b: Trace) -> Alike:
    """Figures of the runs that both traces have finished; of everything recorded if one has finished none."""
    shared, note = min(finished(a), finished(b)), ""
    if not shared == len(a.runs) == len(b.runs):
        which = f"the {shared} runs" if shared > 1 else "the one run"
        note = f"figures of {which} that both have finished"
        note = note if shared else "one of them has not finished a run, so the figures cover different steps"
    runs = (shared or None) if note else None
    return Alike(runs, note, (figures(a, runs), figures(b, runs)))


def finished(trace: Trace) -> int:
    return len(trace.runs) - (trace.live is not None or trace.interrupted)


def figures(trace: Trace, runs: int | None = None) -> dict[str, int]:
    count = counts(trace, runs)
    if runs is None:
        peak, copied, allocated = trace.peak_bytes, trace.bytes_copied, trace.bytes_allocated
    else:
        counted = trace.runs[:runs]
        peak = max(run.peak_bytes for run in counted)
        copied, allocated = (sum(getattr(run, name) for run in counted) for name in ("bytes_copied", "bytes_allocated"))
    steps = len(trace.steps) if runs is None else trace.runs[runs - 1].last
    found = {"peak": peak, "copied": copied, "allocated": allocated}
    return found | {"in_place": count.in_place, "missed": count.missed, "steps": steps}


def row_of(name: str, trace: Trace, reference: Trace) -> Row:
    count = counts(trace)
    weights = weight_bytes(trace)
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
