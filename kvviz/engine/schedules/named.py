"""Schedules by name, and names for schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvviz.engine.schedules.greedy import depth_first, least_live
from kvviz.engine.schedules.rten import rten
from kvviz.errors import KvvizError

if TYPE_CHECKING:
    from kvviz.engine.policy import Policy, Schedule
    from kvviz.graph.model import Graph

NAMES = ("model", "rten", "onnxruntime", "depth_first", "least_live")
_LABELS = {
    "model_order": "the model's order",
    "rten": "rten's order",
    "look_ahead": "rten's order, looking ahead",
    "depth_first": "depth-first order",
    "LeastLive": "least-live order",
    "Picks": "the picked order",
    "Before": "a changed order",
}


def named(name: str) -> Schedule:
    """The schedule of a name: ``model``, ``rten``, ``onnxruntime``, ``depth_first`` or ``least_live``.

    Raises
    ------
    KvvizError
        If no schedule has that name.
    """
    from kvviz.engine.policy import model_order

    if name == "onnxruntime":
        from kvviz.engine.ort.order import schedule

        return schedule
    ready: dict[str, Schedule] = {
        "model": model_order,
        "rten": rten,
        "depth_first": depth_first,
        "least_live": least_live(),
    }
    if name not in ready:
        raise KvvizError(f"there is no schedule {name!r}; choose one of {', '.join(NAMES)}")
    return ready[name]


def find_schedule(given: str | Policy | Schedule) -> Schedule:
    """The schedule of a policy, of the name of a policy or schedule, or the schedule itself."""
    from kvviz.engine.policy import Policy, find_policy

    if isinstance(given, Policy):
        return given.schedule
    if not isinstance(given, str):
        return given
    return named(given) if given in NAMES else find_policy(given).schedule


def find_rewrite(given: str | Policy | Schedule) -> Callable[[Graph, Sequence[str]], Graph] | None:
    """How a policy, or the one of that name, changes a graph before it plans; None for a schedule alone."""
    from kvviz.engine.policy import Policy, find_policy

    if isinstance(given, str) and (given == "onnxruntime" or given not in NAMES):
        given = find_policy(given)
    return given.rewrite if isinstance(given, Policy) else None


def label(schedule: Any) -> str:
    """A schedule in a few words: ``rten's order``."""
    if getattr(schedule, "__module__", "").startswith("kvviz.engine.ort."):
        return "onnxruntime's order"
    name = getattr(schedule, "__name__", "") or type(schedule).__name__
    return _LABELS.get(name, name)
