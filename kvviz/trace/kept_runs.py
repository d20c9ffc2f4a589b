"""Of which runs a trace has steps, in words: totals and meters are of all runs, everything else of those only.

Invariant: where every run has its steps, nothing is said.
"""

from __future__ import annotations

from kvviz.trace.recording import Trace
from kvviz.trace.units import count


def kept_runs(trace: Trace) -> tuple[int, ...]:
    """Runs whose steps were kept; a run that has only begun is one of them."""
    begun = len(trace.runs) - 1 if trace.live is not None or trace.interrupted else -1
    return tuple(run.index for run in trace.runs if run.last > run.first or run.index == begun)


def keeps_all(trace: Trace) -> bool:
    """Whether every run has its steps, or, as where nothing was recorded, none has."""
    return len(kept_runs(trace)) == len(trace.runs) or not trace.log


def steps_summary(trace: Trace) -> str:
    """``6,400 steps in 16 runs``, or ``13,640 steps of 8 of 512 runs were kept``."""
    steps, runs = count(len(trace.steps), "step"), count(len(trace.runs), "run")
    if keeps_all(trace):
        return f"{steps} in {runs}"
    return f"{steps} of {len(kept_runs(trace)):,} of {runs} were kept"


def in_kept_runs(trace: Trace) -> str:
    """What stands behind a sum over steps: empty, or ``in the 8 runs whose steps were kept``."""
    if keeps_all(trace):
        return ""
    runs = len(kept_runs(trace))
    return f"in the {count(runs, 'run')} whose steps were kept" if runs > 1 else "in the run whose steps were kept"
