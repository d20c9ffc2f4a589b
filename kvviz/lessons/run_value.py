"""A value of a recorded run by its name: the step that made it, and what it was then."""

from __future__ import annotations

import numpy as np

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step


def step_that_makes(trace: Trace, name: str, run: int) -> Step:
    """The first step of a run with an output of this name; of a value that an If passes on, the op inside.

    Raises `KvvizError`: if there is no such run, or no op of it makes the value.
    """
    if not 0 <= run < len(trace.runs):
        raise KvvizError(f"there is no run {run}; the trace has {len(trace.runs)}")
    one = trace.runs[run]
    made = next((step for step in trace.steps[one.first : one.last] if name in step.outputs), None)
    if made is None:
        raise KvvizError(f"no op of run {run} makes {name!r}")
    return made


def value_in_run(trace: Trace, name: str, run: int) -> np.ndarray:
    """A value as it was right after the op of that run which made it; see `kvviz.Trace.value`.

    Raises `KvvizError`: if there is no such run, or no op of it makes the value.
    """
    return trace.value(name, step_that_makes(trace, name, run).index)
