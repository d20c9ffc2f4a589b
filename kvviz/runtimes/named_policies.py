"""Policies and schedules by name, and as data: for a trace, and made again from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from types import MethodType
from typing import Any

from kvviz.engine.plan import check_outputs, needed
from kvviz.engine.policy import Policy, Schedule, ideal, model_order, never
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.frontier import PlanningEvent, follow, takes_log
from kvviz.runtimes.ort.ort_policy import OrtOrder, onnxruntime
from kvviz.runtimes.rten.dispatch_rule import Rules
from kvviz.runtimes.rten.rten_planner import QUIRKS, look_ahead
from kvviz.runtimes.rten.rten_planner import rten as rten_order
from kvviz.runtimes.rten.rten_policy import BY_REFERENCE, rten
from kvviz.runtimes.schedules import Before, LeastLive, Picks, depth_first, least_live
from kvviz.trace.recording import Trace
from kvviz.trace.trace_data import PolicyFacts

NAMED = {policy.name: policy for policy in (ideal, never, rten, onnxruntime)}


def find_policy(policy: str | Policy) -> Policy:
    """The policy of that name; a `Policy` is passed through. Raises `KvvizError` for an unknown name."""
    if isinstance(policy, Policy):
        return policy
    if policy not in NAMED:
        raise KvvizError(f"there is no policy {policy!r}; choose one of {', '.join(NAMED)} or pass a kvviz.Policy")
    return NAMED[policy]


NAMES = ("model", "rten", "onnxruntime", "depth_first", "least_live")
_SCHEDULES: dict[str, Schedule] = {
    "model": model_order,
    "rten": rten_order,
    "look_ahead": look_ahead,
    "onnxruntime": onnxruntime.schedule,
    "onnxruntime without reuse": OrtOrder(mem_reuse=False),
    "onnxruntime in parallel": OrtOrder(parallel=True),
    "onnxruntime in parallel without reuse": OrtOrder(False, True),
    "depth_first": depth_first,
    "least_live": least_live(),
}
_LABELS = {
    "model_order": "the model's order",
    "rten": "rten's order",
    "look_ahead": "rten's order, looking ahead",
    "depth_first": "depth-first order",
    "LeastLive": "least-live order",
    "OrtOrder": "onnxruntime's order",
    "Picks": "the picked order",
    "Before": "a changed order",
}


@dataclass(frozen=True, slots=True)
class OwnOrder:
    """A caller's schedule: a trace has only its name, so it cannot produce another order."""

    name: str

    def __call__(self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Sequence[Node]:
        raise KvvizError(f"{self.name} is a schedule of the caller's own")


def named(name: str) -> Schedule:
    """The schedule of a name: ``model``, ``rten``, ``onnxruntime``, ``depth_first`` or ``least_live``; raises
    `KvvizError` for another name."""
    if name not in NAMES:
        raise KvvizError(f"there is no schedule {name!r}; choose one of {', '.join(NAMES)}")
    return _SCHEDULES[name]


def _found(given: str | Policy | Schedule) -> Policy | Schedule:
    if not isinstance(given, str):
        return given
    return _SCHEDULES[given] if given in NAMES and given not in NAMED else find_policy(given)


def label(schedule: Any) -> str:
    """A schedule in a few words: ``rten's order``."""
    if isinstance(schedule, OwnOrder):
        return schedule.name
    name = getattr(schedule, "__name__", "") or type(schedule).__name__
    return _LABELS.get(name, name)


def planning_events(
    graph: Graph, outputs: Sequence[str] | None = None, policy: str | Policy | Schedule = "rten"
) -> tuple[PlanningEvent, ...]:
    """Plan a graph and return every event of the planner.

    ``graph``: also a body, whose captures count as given.
    ``outputs``: wanted values; the graph's outputs by default. Their order may change the plan.
    ``policy``: whose planner: a policy, the name of one, a schedule, or the name of one.

    Raises `GraphError`: for an output that the graph does not have.
    Raises `KvvizError`: for a name that no policy or schedule has.
    """

    names = tuple(value.name for value in graph.outputs) if outputs is None else tuple(outputs)
    check_outputs(graph, names)
    found = _found(policy)
    schedule = found.schedule if isinstance(found, Policy) else found
    if isinstance(found, Policy) and found.rewrite:
        graph = found.rewrite(graph, names)
    nodes = needed(graph, names)
    events: list[PlanningEvent] = []
    given_log = {"log": events.append} if takes_log(schedule) else {}
    order = schedule(graph, nodes, names, **given_log)
    if any(event.phase == "pick" for event in events):
        return tuple(events)
    # A planner whose order follows from the walk alone, or that logs nothing: its order is shown as picks.
    picks: list[PlanningEvent] = []
    follow([(node, f"{node.op_type} is next in {label(schedule)}") for node in order], nodes, picks.append)
    walked = [event for event in events if event.phase == "walk"]
    return (*walked, *picks, *(event for event in events if event.phase != "walk"))


_ORT_OPTIONS = (("mem_reuse",), (), ("mem_reuse", "parallel"), ("parallel",))
# The fields of a policy that decide; the others are its name, and data that follow while it runs.
_DECIDES = attrgetter("in_place", "rewrite", "prepare", "homes", "copies_state", "rules")


@lru_cache(maxsize=64)
def facts_of(policy: Policy) -> PolicyFacts:
    alike = ((n, o) for n, o, known in _candidates(policy) if _DECIDES(policy) == _DECIDES(known))
    base, options = next(alike, ("", ()))
    captures = ""
    if base and policy.captures != _based(base, options).captures:
        # A caller's own rule for captures makes all of the policy its own.
        captures = next((name for name, known in NAMED.items() if known.captures == policy.captures), "")
        base, options = (base, options) if captures else ("", ())
    return PolicyFacts(
        policy.name,
        policy.about,
        policy.version,
        policy.rules,
        policy.places_outputs,
        base=base,
        options=options,
        captures=captures,
        schedule=_schedule_data(policy.schedule),
        growth=policy.growth,
    )


def policy_of(trace: Trace) -> Policy | None:
    """The policy that a trace was run with, or None if it is not known here."""
    if "policy" not in trace.notes:
        trace.notes["policy"] = _policy(trace.policy)
    found: Policy | None = trace.notes["policy"]
    return found


def schedule_of(facts: PolicyFacts) -> Schedule:
    """The order that a trace was planned in; an `OwnOrder` if it is not known here."""
    return _schedule(facts.schedule)


def _candidates(policy: Policy) -> list[tuple[str, tuple[str, ...], Policy]]:
    rule = policy.in_place
    if isinstance(rule, MethodType) and isinstance(rule.__self__, Rules):
        options = tuple(name for name in QUIRKS if name in rule.__self__.quirks)
        options += (BY_REFERENCE,) * rule.__self__.lends
        return [("rten", options, _based("rten", options))]
    return [
        ("ideal", (), ideal),
        ("never", (), never),
        *(("onnxruntime", options, _based("onnxruntime", options)) for options in _ORT_OPTIONS),
    ]


def _based(base: str, options: tuple[str, ...]) -> Policy:
    if base == "rten":
        captures = BY_REFERENCE if BY_REFERENCE in options else "by_value"
        return rten(quirks=[name for name in options if name != BY_REFERENCE], captures=captures)
    if base == "onnxruntime":
        return onnxruntime(mem_reuse="mem_reuse" in options, parallel="parallel" in options)
    return NAMED[base]


def _policy(facts: PolicyFacts) -> Policy | None:
    if facts.base not in NAMED or (facts.base == "rten" and not {*QUIRKS, BY_REFERENCE} >= set(facts.options)):
        return None
    policy = _based(facts.base, facts.options)
    changes: dict[str, Any] = {name: getattr(facts, name) for name in ("name", "about", "version", "growth")}
    if facts.captures in NAMED:
        changes["captures"] = NAMED[facts.captures].captures
    if facts.schedule != _schedule_data(policy.schedule):
        changes["schedule"] = schedule_of(facts)
    return replace(policy, **changes)


_ATTRIBUTES: dict[type, tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    Picks: ("picks", lambda s: (s.picks, s.model)),
    Before: ("before", lambda s: (_schedule_data(s.base), s.pairs)),
    LeastLive: ("least_live", lambda s: (s.sizes,)),
    OwnOrder: ("own", lambda s: (s.name,)),
}


def _schedule_data(schedule: Any) -> tuple[Any, ...]:
    if type(schedule) in _ATTRIBUTES:
        name, attributes = _ATTRIBUTES[type(schedule)]
        return (name, *attributes(schedule))
    return next(((name,) for name, known in _SCHEDULES.items() if schedule == known), ("own", label(schedule)))


def _schedule(data: tuple[Any, ...]) -> Schedule:
    name, *values = data
    if name == "picks":
        return Picks(*values)
    if name == "before":
        return Before(_schedule(values[0]), values[1])
    if name == "least_live":
        return LeastLive(*values)
    return _SCHEDULES[name] if name in _SCHEDULES else OwnOrder(*values)
