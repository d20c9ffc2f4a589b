"""Steps of two traces that belong together: the same op of the same run, in the same frame."""

from __future__ import annotations

from typing import Any

import numpy as np

Place = tuple[int, tuple[str, ...], int]


def align(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each step of one trace the step of the other at which the same op ran.

    Steps belong together if run, frame (with the iteration of a loop) and node index are the same.

    ``a_to_b, b_to_a``: one entry a step; -1 where the other trace has no such step.
    """
    ours, theirs = places(a), places(b)
    return _lookup(ours, theirs), _lookup(theirs, ours)


def partner(to: np.ndarray, step: int) -> int:
    """The step of the other trace to show beside a step: its partner, or that of the nearest earlier step with one.

    ``to``: one side of `align`.
    ``step``: -1: before the first.
    """
    earlier = to[: step + 1]
    paired = earlier[earlier >= 0]
    return int(paired[-1]) if len(paired) else -1


def places(trace: Any) -> list[Place]:
    """Run, frame path and node index of every step."""
    frames = [(frame.run, frame.path) for frame in trace.frames]
    return [(*frames[row.frame], row.op.node.index) for row in trace.log]


def _lookup(wanted: list[Place], among: list[Place]) -> np.ndarray:
    step_of = {place: step for step, place in enumerate(among)}
    return np.fromiter((step_of.get(place, -1) for place in wanted), np.int64, len(wanted))
