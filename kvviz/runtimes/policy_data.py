"""A policy as data, for a trace, and the policy that such data describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

from kvviz.engine.plans.policy import Policy, Schedule, ideal, never
from kvviz.runtimes.named_policies import NAMED
from kvviz.runtimes.named_schedules import OwnOrder, label
from kvviz.runtimes.ort.ort_order import OrtOrder
from kvviz.runtimes.ort.ort_order import schedule as ort_order
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.rten.dispatch_rule import Rules
from kvviz.runtimes.rten.quirks import QUIRKS
from kvviz.runtimes.rten.rten_planner import look_ahead
from kvviz.runtimes.rten.rten_planner import rten as rten_order
from kvviz.runtimes.rten.rten_policy import BY_REFERENCE, rten
from kvviz.runtimes.schedules import Before, LeastLive, Picks, depth_first
from kvviz.trace.recording import Trace
from kvviz.trace.schema.policy_facts import PolicyFacts

_SCHEDULES: dict[str, Schedule] = {
    "model": ideal.schedule,
    "rten": rten_order,
    "look_ahead": look_ahead,
    "onnxruntime": ort_order,
    "onnxruntime without reuse": OrtOrder(mem_reuse=False),
    "onnxruntime in parallel": OrtOrder(parallel=True),
    "onnxruntime in parallel without reuse": OrtOrder(False, True),
    "depth_first": depth_first,
}
_ORT_OPTIONS = (("mem_reuse",), (), ("mem_reuse", "parallel"), ("parallel",))
# What decides in a policy; the others are its name, and what follows from it while it runs.
_DECIDES = ("in_place", "rewrite", "prepare", "homes", "copies_state", "rules")


def facts_of(policy: Policy) -> PolicyFacts:
    """A policy as data."""
    base, options = next(((n, o) for n, o, known in _candidates(policy) if _decides_as(policy, known)), ("", ()))
    captures = ""
    if base and policy.captures != _based(base, options).captures:
        # A rule of the caller's own for captures makes all of it one.
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
    """The order that a trace was planned in; an `OwnOrder` where it is not known here."""
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


def _decides_as(policy: Policy, other: Policy) -> bool:
    return all(getattr(policy, name) == getattr(other, name) for name in _DECIDES)


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
    for name, known in _SCHEDULES.items():
        if schedule == known:
            return (name,)
    name, attributes = _ATTRIBUTES.get(type(schedule), ("own", lambda s: (label(s),)))
    return (name, *attributes(schedule))


def _schedule(data: tuple[Any, ...]) -> Schedule:
    name, *values = data
    if name == "picks":
        return Picks(*values)
    if name == "before":
        return Before(_schedule(values[0]), values[1])
    if name == "least_live":
        return LeastLive(*values)
    return _SCHEDULES[name] if name in _SCHEDULES else OwnOrder(*values)
