"""Schedules by name, names for schedules, and the steps of a planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.engine.plans.plan import check_outputs, needed
from kvviz.engine.plans.policy import Policy, Schedule, model_order
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.ort.ort_order import schedule as onnxruntime_order
from kvviz.runtimes.rten.rten_planner import rten
from kvviz.runtimes.schedules.frontier import follow
from kvviz.runtimes.schedules.greedy import depth_first, least_live
from kvviz.runtimes.schedules.planning_events import PlanningEvent, takes_log

_NAMED: dict[str, Schedule] = {
    "model": model_order,
    "rten": rten,
    "onnxruntime": onnxruntime_order,
    "depth_first": depth_first,
    "least_live": least_live(),
}
NAMES = tuple(_NAMED)
_LABELS = {
    "model_order": "the model's order",
    "rten": "rten's order",
    "look_ahead": "rten's order, looking ahead",
    "depth_first": "depth-first order",
    "LeastLive": "least-live order",
    "Picks": "the picked order",
    "Before": "a changed order",
}


@dataclass(frozen=True, slots=True)
class OwnOrder:
    """A schedule that the caller wrote: a trace has only its name, so it cannot be asked for another order."""

    name: str

    def __call__(self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Sequence[Node]:
        """Raise KvvizError."""
        raise KvvizError(f"{self.name} is a schedule of the caller's own")


def named(name: str) -> Schedule:
    """The schedule of a name: ``model``, ``rten``, ``onnxruntime``, ``depth_first`` or ``least_live``.

    Raises `KvvizError`: if no schedule has that name.
    """
    if name not in _NAMED:
        raise KvvizError(f"there is no schedule {name!r}; choose one of {', '.join(NAMES)}")
    return _NAMED[name]


def find_schedule(given: str | Policy | Schedule) -> Schedule:
    """The schedule of a policy, of the name of a policy or schedule, or the schedule itself."""
    if isinstance(given, Policy):
        return given.schedule
    if not isinstance(given, str):
        return given
    return named(given) if given in NAMES else find_policy(given).schedule


def find_rewrite(given: str | Policy | Schedule) -> Callable[[Graph, Sequence[str]], Graph] | None:
    """How a policy, or the one of that name, changes a graph before it plans; None for a schedule alone."""
    if isinstance(given, str) and (given == "onnxruntime" or given not in NAMES):
        given = find_policy(given)
    return given.rewrite if isinstance(given, Policy) else None


def label(schedule: Any) -> str:
    """A schedule in a few words: ``rten's order``."""
    if isinstance(schedule, OwnOrder):
        return schedule.name
    if getattr(schedule, "__module__", "").startswith("kvviz.runtimes.ort."):
        return "onnxruntime's order"
    name = getattr(schedule, "__name__", "") or type(schedule).__name__
    return _LABELS.get(name, name)


def planning_events(
    graph: Graph, outputs: Sequence[str] | None = None, policy: str | Policy | Schedule = "rten"
) -> tuple[PlanningEvent, ...]:
    """Plan a graph and give every step of it.

    ``graph``: also a body: its captures are there already.
    ``outputs``: what is wanted; the graph's outputs by default. Their order may change the plan.
    ``policy``: whose planner: a policy, the name of one, a schedule, or the name of one.

    Raises `GraphError`: for an output that the graph does not have.
    Raises `KvvizError`: for a name that no policy or schedule has.
    """

    names = tuple(value.name for value in graph.outputs) if outputs is None else tuple(outputs)
    check_outputs(graph, names)
    schedule = find_schedule(policy)
    rewrite = find_rewrite(policy)
    graph = rewrite(graph, names) if rewrite else graph
    nodes = needed(graph, names)
    events: list[PlanningEvent] = []
    given_log = {"log": events.append} if takes_log(schedule) else {}
    order = schedule(graph, nodes, names, **given_log)
    if any(event.phase == "pick" for event in events):
        return tuple(events)
    # A planner that has its order from the walk alone, or logs nothing: what runs is shown all the same.
    picks: list[PlanningEvent] = []
    follow([(node, f"{node.op_type} is next in {label(schedule)}") for node in order], nodes, picks.append)
    walked = [event for event in events if event.phase == "walk"]
    return (*walked, *picks, *(event for event in events if event.phase != "walk"))
